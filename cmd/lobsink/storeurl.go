package main

import (
	"errors"
	"net/url"
	"strings"
)

// storeURL is a --store, taken apart.
type storeURL struct {
	// path is the file of a SQLite database; "": another one.
	path string
	// postgres is the URL of a PostgreSQL database.
	postgres string
	// oracle is an Oracle database; zero: another one.
	oracle oracleLogon
}

// oracleLogon is who logs on where. No user: somebody else says who we are.
type oracleLogon struct{ user, connect string }

const storeForms = "write sqlite:PATH, postgres://USER@HOST:PORT/DATABASE or oracle:USER@CONNECT"

// parseStore takes a --store apart. Its errors never repeat it: it may have a
// password.
func parseStore(text string) (storeURL, error) {
	scheme, rest, found := strings.Cut(text, ":")
	if !found {
		return storeURL{}, errors.New("this is no URL of a database; " + storeForms)
	}
	switch scheme {
	case "sqlite":
		if abs, ok := strings.CutPrefix(rest, "//"); ok {
			if !strings.HasPrefix(abs, "/") {
				return storeURL{}, errors.New("after sqlite:// comes the path from the root, sqlite:///var/lib/lobsink.db; write sqlite:PATH for one in this folder")
			}
			rest = abs
		}
		if rest == "" || strings.HasPrefix(rest, ":") || strings.HasSuffix(rest, "/") {
			return storeURL{}, errors.New("a SQLite database needs a file; write sqlite:PATH")
		}
		return storeURL{path: rest}, nil
	case "postgres", "postgresql":
		if u, err := url.Parse(text); err != nil || u.Opaque != "" {
			return storeURL{}, errors.New("this is no URL of a PostgreSQL database; write postgres://USER@HOST:PORT/DATABASE, with %XX for special characters of the password")
		}
		return storeURL{postgres: text}, nil
	case "oracle":
		logon, err := parseOracle(rest)
		return storeURL{oracle: logon}, err
	}
	return storeURL{}, errors.New("there is no such kind of database; " + storeForms)
}

// parseOracle takes what follows oracle: apart. What follows the first @ is the
// client library's own, and stays as it is.
func parseOracle(rest string) (oracleLogon, error) {
	user, connect, found := strings.Cut(rest, "@")
	switch {
	case !found || connect == "":
		return oracleLogon{}, errors.New("it is not said where the Oracle database is; write oracle:USER@CONNECT, where CONNECT is //HOST:PORT/SERVICE, a TNS alias or a descriptor")
	case strings.ContainsAny(user, ":/"):
		return oracleLogon{}, errors.New("before the @ of an Oracle database comes a user and nothing else; write oracle:USER@CONNECT, and the password into LOBSINK_ORACLE_PASSWORD or the file that LOBSINK_ORACLE_PASSWORD_FILE names")
	}
	return oracleLogon{user, connect}, nil
}

// storeText is a --store that parseStore takes.
type storeText string

// Set implements pflag.Value.
func (t *storeText) Set(s string) error {
	if _, err := parseStore(s); err != nil {
		return err
	}
	*t = storeText(s)
	return nil
}

func (t *storeText) String() string { return redact(string(*t)) }

// Type implements pflag.Value.
func (t *storeText) Type() string { return "URL" }

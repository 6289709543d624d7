package main

import (
	"errors"
	"net/url"
	"strings"
)

// storeURL is a --store, taken apart.
type storeURL struct {
	// path is the file of a SQLite database; "": PostgreSQL.
	path string
	// postgres is the URL of a PostgreSQL database.
	postgres string
}

const storeForms = "write sqlite:PATH or postgres://USER@HOST:PORT/DATABASE"

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
		return storeURL{}, errors.New("this build has no Oracle store yet; " + storeForms)
	}
	return storeURL{}, errors.New("there is no such kind of database; " + storeForms)
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

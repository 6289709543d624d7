package main

import (
	"regexp"
	"strings"
)

// masked stands for a secret, whatever its length.
const masked = "xxxxx"

var (
	urlStart = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*)://`)
	// passwordParameter is how PostgreSQL takes a password in the query of a
	// URL.
	passwordParameter = regexp.MustCompile(`(?i)((?:ssl)?password=)[^&\s"']*`)
)

// redact masks what may be a secret in the URLs of a text. It would rather mask
// too much: a password that should have been escaped may hold any character, so
// everything up to the last @ of a URL counts as the user and the password.
func redact(text string) string {
	var out strings.Builder
	for {
		at := urlStart.FindStringSubmatchIndex(text)
		if at == nil {
			break
		}
		scheme := text[at[2]:at[3]]
		out.WriteString(text[:at[1]])
		rest := text[at[1]:]
		end := urlEnd(rest)
		out.WriteString(redactAuthority(scheme, rest[:end]))
		text = rest[end:]
	}
	out.WriteString(text)
	return passwordParameter.ReplaceAllString(out.String(), "${1}"+masked)
}

// urlEnd returns where a URL ends: at a blank or a quote, or where the next one
// of a list begins.
func urlEnd(rest string) int {
	end := len(rest)
	if i := strings.IndexAny(rest, " \t\r\n\"'`"); i >= 0 {
		end = i
	}
	if next := urlStart.FindStringIndex(rest[:end]); next != nil {
		if comma := strings.LastIndexByte(rest[:next[0]], ','); comma >= 0 {
			end = comma
		}
	}
	return end
}

func redactAuthority(scheme, rest string) string {
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return rest
	}
	user, _, hasPassword := strings.Cut(rest[:at], ":")
	switch {
	case hasPassword:
		return user + ":" + masked + rest[at:]
	case scheme == "postgres" || scheme == "postgresql":
		return rest // a user without a password
	}
	return masked + rest[at:] // to NATS, a user alone is a token
}

package main

import (
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	env := map[string]string{"HOST": "db1", "EMPTY": "", "WORM": "${HOST}"}
	for text, want := range map[string]string{
		"":                                  "",
		"postgres://u@${HOST}/d":            "postgres://u@db1/d",
		"${HOST}${HOST}":                    "db1db1",
		"${NONE:-x}${EMPTY:-y}${HOST:-z}":   "xydb1",
		"${NONE:-}":                         "",
		"OPS$SCOTT $HOST $1 $":              "OPS$SCOTT $HOST $1 $",
		"$${HOST}":                          "${HOST}",
		"${WORM}":                           "${HOST}", // once, not again
		"${NONE:-postgres://a:b@h/d?x=1:-}": "postgres://a:b@h/d?x=1:-",
	} {
		if got, err := expand(text, env); err != nil || got != want {
			t.Errorf("expand(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"${NONE}":  "NONE is not set",
		"${EMPTY}": "EMPTY is not set",
		"${HOST":   "a } is missing",
		"${}":      "no name",
		"${A B}":   "no name",
		"${1:-x}":  "no name",
		"${HOST-}": "no name",
	} {
		if got, err := expand(text, env); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("expand(%q) = %q, %v; want an error with %q", text, got, err, want)
		}
	}
}

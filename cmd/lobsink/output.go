package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
)

// output is the form of a command's result: a table for people, or JSON.
type output struct{ form string }

func newOutput() *output { return &output{form: "table"} }

func (o *output) addFlag(cmd *cobra.Command) {
	cmd.Flags().VarP(&choice{&o.form, []string{"table", "json"}}, "output", "o", "`form` of the result: table or json")
}

func (o *output) json() bool { return o.form == "json" }

// printJSON prints one value, indented. Text stays as it is: the escapes that
// HTML would need make XML hard to read.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// items is a list in JSON: an object, so that it can get more fields.
type items[T any] struct {
	Items []T `json:"items"`
}

// listOf returns a list that is [] in JSON when it is empty.
func listOf[T any](list []T) items[T] {
	if list == nil {
		list = []T{}
	}
	return items[T]{list}
}

// newTable returns a table without frames, so that it can be cut and sorted.
func (a *app) newTable(heads ...string) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(a.stdout)
	style := table.StyleDefault
	style.Name = "plain"
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	row := table.Row{}
	for _, h := range heads {
		row = append(row, h)
	}
	t.AppendHeader(row)
	return t
}

// printable returns text as a terminal may show it: quoted, if it has control
// characters or anything else that is not seen.
func printable(text string) string {
	unseen := func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
	if text == "" || strings.ContainsFunc(text, unseen) {
		return strconv.Quote(text)
	}
	return text
}

// timestamp returns Unix nanoseconds as RFC 3339 in UTC.
func timestamp(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }

func checksumText(crc uint32) string { return fmt.Sprintf("%08x", crc) }

// known returns nil for a value that stands for none.
func known[T comparable](v T) *T {
	var none T
	if v == none {
		return nil
	}
	return &v
}

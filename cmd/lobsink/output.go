package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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

// ndjson is JSON with one item per line, and nothing around them.
const ndjson = "ndjson"

// addFlag adds the flag -o; more are forms beside table and json.
func (o *output) addFlag(cmd *cobra.Command, more ...string) {
	forms := append([]string{"table", "json"}, more...)
	last := len(forms) - 1
	cmd.Flags().VarP(&choice{&o.form, forms}, "output", "o",
		"`form` of the result: "+strings.Join(forms[:last], ", ")+" or "+forms[last])
}

func (o *output) json() bool { return o.form != "table" }

// list begins a list in the form of JSON that is asked for.
func (o *output) list(w io.Writer) jsonList { return jsonList{w: w, lines: o.form == ndjson} }

// printJSON prints one value, indented. Text stays as it is: the escapes that
// HTML would need make XML hard to read.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// jsonList prints a list in JSON, {"items":[...]}, while it becomes known: one
// item per line. A list that is cut short by an error is no JSON.
type jsonList struct {
	w       io.Writer
	lines   bool // ndjson
	printed int
}

func (l *jsonList) add(v any) error {
	item, err := compactJSON(v)
	if err != nil {
		return err
	}
	if l.lines {
		_, err = l.w.Write(append(item, '\n'))
		return err
	}
	before := ",\n  "
	if l.printed++; l.printed == 1 {
		before = "{\"items\": [\n  "
	}
	_, err = l.w.Write(append([]byte(before), item...))
	return err
}

// end ends the list. The object gets the fields too.
func (l *jsonList) end(fields ...field) error {
	if l.lines {
		return nil
	}
	after := "\n]"
	if l.printed == 0 {
		after = "{\"items\": []"
	}
	for _, f := range fields {
		after += fmt.Sprintf(", %q: %s", f.name, f.value)
	}
	_, err := io.WriteString(l.w, after+"}\n")
	return err
}

func compactJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// field is a name and a value as text.
type field struct{ name, value string }

// printFields prints one field per line.
func (a *app) printFields(fields []field) error {
	for _, f := range fields {
		if _, err := fmt.Fprintf(a.stdout, "%-15s %s\n", f.name, f.value); err != nil {
			return err
		}
	}
	return nil
}

// newTable returns a table without frames, so that it can be cut and sorted.
func newTable(heads ...string) table.Writer {
	t := table.NewWriter()
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

// printTable prints a table.
func (a *app) printTable(t table.Writer) error {
	_, err := fmt.Fprintln(a.stdout, t.Render())
	return err
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

// orDash returns a value as text, and - for one that is not known.
func orDash[T any](v *T) string {
	if v == nil {
		return "-"
	}
	return printable(fmt.Sprint(*v))
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// plural returns a number of things in words.
func plural(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return strconv.Itoa(n) + " " + thing
}

// shellQuoted returns text as one word of a POSIX shell.
func shellQuoted(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

package main

import (
	"fmt"
	"io"
)

// finding is what a check found out.
type finding struct {
	Check  string  `json:"check"`
	Result verdict `json:"result"`
	Text   string  `json:"text"`
}

// verdict is how well a check went.
type verdict string

const (
	fine    verdict = "ok"
	warning verdict = "warning"
	broken  verdict = "failed"
)

// findings are those of one command, in the order of the checks.
type findings struct {
	items []finding
	// errs are the errors of what failed, for the exit code.
	errs []error
}

func (f *findings) ok(check, format string, args ...any) {
	f.items = append(f.items, finding{check, fine, fmt.Sprintf(format, args...)})
}

func (f *findings) warn(check, format string, args ...any) {
	f.items = append(f.items, finding{check, warning, fmt.Sprintf(format, args...)})
}

func (f *findings) fail(check string, err error) {
	f.items = append(f.items, finding{check, broken, redact(err.Error())})
	f.errs = append(f.errs, err)
}

// warnings counts them.
func (f *findings) warnings() (n int) {
	for _, i := range f.items {
		if i.Result == warning {
			n++
		}
	}
	return n
}

// err returns nil if all went well: otherwise what is wrong, with the exit code of
// the first error. Strict counts warnings as errors of the configuration.
func (f *findings) err(strict bool) error {
	warnings := plural(f.warnings(), "warning")
	switch {
	case len(f.errs) > 0:
		return withCode(exitCode(f.errs[0]), fmt.Errorf("%s failed, %s", plural(len(f.errs), "check"), warnings))
	case strict && f.warnings() > 0:
		return misconfigured("%s, and --strict allows none", warnings)
	}
	return nil
}

// print prints one line for each finding.
func (f *findings) print(w io.Writer) error {
	for _, i := range f.items {
		if _, err := fmt.Fprintf(w, "%-8s %-14s %s\n", i.Result, i.Check, i.Text); err != nil {
			return err
		}
	}
	return nil
}

// printFindings prints them in the form of out. The fields are for JSON.
func (a *app) printFindings(f *findings, out *output) error {
	if !out.json() {
		return f.print(a.stdout)
	}
	list := jsonList{w: a.stdout}
	for _, i := range f.items {
		if err := list.add(i); err != nil {
			return err
		}
	}
	return list.end()
}

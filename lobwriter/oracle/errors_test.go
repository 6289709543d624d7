package oracle

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lobsink/lobsink/lobwriter"
)

// oraErr is an error as the driver makes it.
type oraErr struct {
	code int
	text string
}

func (e *oraErr) Code() int       { return e.code }
func (e *oraErr) Message() string { return e.text }
func (e *oraErr) Error() string   { return fmt.Sprintf("ORA-%05d: %s", e.code, e.text) }

// TestErrors: the error table, by what an operator would look up in it.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name  string
		kind  lobwriter.Kind
		codes []int
	}{
		{"the connection is lost/O66", lobwriter.Transient, []int{3113, 3114, 3135, 28, 31, 1012, 2396, 2399, 603, 12571}},
		{"a node fails, or a service moves/O28", lobwriter.Transient, []int{25402, 25408, 1109, 12514, 1033, 1089, 16456}},
		{"the listener", lobwriter.Transient, []int{12541, 12516, 12170, 12543}},
		{"late or cancelled", lobwriter.Transient, []int{1013, 3156}},
		{"somebody is in the way", lobwriter.Transient, []int{60, 54, 30006, 8177, 4021}},
		{"the package was compiled/O27", lobwriter.Transient, []int{4061, 4065, 4068, 6508}},
		{"too many sessions", lobwriter.Transient, []int{18, 20, 2391}},
		{"memory, cursors, Resource Manager", lobwriter.Transient, []int{4031, 4030, 4036, 1000, 40, 56720}},
		{"a standby", lobwriter.Transient, []int{16000}},
		{"space", lobwriter.Space, []int{1653, 1654, 1691, 1692, 1536, 1950, 257, 30036, 12954, 65114}},
		{"credentials", lobwriter.Credentials, []int{1017, 1005, 28000, 28001, 1045}},
		{"configuration", lobwriter.Fatal, []int{942, 904, 4063, 6550, 1031, 12154, 12505, 14400, 28040}},
		{"content", lobwriter.Invalid, []int{1400, 12899, 6502, 1461, 20813, 20814}},
		{"a damaged block", lobwriter.Transient, []int{1578, 8103, 26040, 22922, 600, 7445}},
		{"what nobody knows", lobwriter.Transient, []int{31337}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, code := range c.codes {
				err := classify("flush", fmt.Errorf("the driver: %w", &oraErr{code, "so it is"}))
				want := codeText(code)
				if lobwriter.KindOf(err) != c.kind || lobwriter.CodeOf(err) != want || !strings.Contains(err.Error(), want+": so it is") {
					t.Errorf("%s: %v, %s, %v", want, lobwriter.KindOf(err), lobwriter.CodeOf(err), err)
				}
			}
		})
	}
}

// TestErrorsByText: where the driver gives no code.
func TestErrorsByText(t *testing.T) {
	for _, c := range []struct {
		err  error
		kind lobwriter.Kind
		code string
	}{
		{&oraErr{0, "DPI-1010: not connected"}, lobwriter.Transient, "DPI-1010"},
		{&oraErr{0, "DPI-1080: connection was closed by ORA-03113"}, lobwriter.Transient, "ORA-03113"},
		{&oraErr{0, "DPI-1080: connection was closed by \nORA-28000: locked"}, lobwriter.Credentials, "ORA-28000"},
		{&oraErr{0, "DPI-1067: call timeout of 100 ms exceeded"}, lobwriter.Transient, "DPI-1067"},
		{&oraErr{0, "DPI-1047: Cannot locate a 64-bit Oracle Client library"}, lobwriter.Fatal, "DPI-1047"},
		{driver.ErrBadConn, lobwriter.Transient, ""},
		{context.DeadlineExceeded, lobwriter.Transient, ""},
		{errors.New("anything"), lobwriter.Transient, ""},
		{fmt.Errorf("said first: %w", &lobwriter.Error{Kind: lobwriter.Held, Err: errors.New("x")}), lobwriter.Held, ""},
		{&lobwriter.FencedError{}, lobwriter.Fenced, ""},
	} {
		if err := classify("x", c.err); lobwriter.KindOf(err) != c.kind || lobwriter.CodeOf(err) != c.code {
			t.Errorf("%v: %v, %q", c.err, lobwriter.KindOf(err), lobwriter.CodeOf(err))
		}
	}
}

// TestErrorTable: no code is in two places, and what may be isolated is not also
// known to be the database's fault.
func TestErrorTable(t *testing.T) {
	seen := map[int]bool{}
	for _, m := range meanings {
		for _, code := range m.codes {
			if seen[code] {
				t.Errorf("ORA-%05d is there twice", code)
			}
			seen[code] = true
		}
		if m.isolate && m.kind != lobwriter.Transient {
			t.Errorf("%v: %v errors are not repeated", m.codes, m.kind)
		}
	}
}

// TestDriverErrors: errors are one line, whatever the driver says around them.
func TestDriverErrors(t *testing.T) {
	err := classify("connect", fmt.Errorf("user=%q standalone params={a:1\n b:2}: %w", "bob", &oraErr{12541, "TNS:no\nlistener"}))
	if got, want := err.Error(), "connect: ORA-12541: TNS:no listener ("+hintConnect+")"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

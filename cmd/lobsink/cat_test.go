package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// call runs a command with the fixture's documents as its database.
func call(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "documents.db")
	documents, _ := newDocuments(t)
	if err := os.WriteFile(path, documents, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code = run(t.Context(), append(args, "--store", "sqlite:"+path), nil, &out, &errs)
	return out.String(), errs.String(), code
}

// TestCat: every byte of the text and no other, control characters and the ends
// of lines too.
func TestCat(t *testing.T) {
	for key, want := range map[string]string{
		"ORDER-1":         "<order><line>Präzision & \u0001</line></order>\r\n",
		"ORDER-3":         "<order>" + strings.Repeat("<x/>", 100),
		"it's\n-'quoted'": "",
	} {
		stdout, stderr, code := call(t, "doc", "cat", key)
		if stdout != want || stderr != "" || code != exitOK {
			t.Errorf("%q: %q, %q, exit %d; want %q", key, stdout, stderr, code, want)
		}
	}
}

// brokenPipe takes so many bytes and no more.
type brokenPipe struct{ room int }

func (b *brokenPipe) Write(p []byte) (int, error) {
	n := min(len(p), b.room)
	if b.room -= n; n < len(p) {
		return n, errors.New("no more room")
	}
	return n, nil
}

// TestCatToAFullDisk: what was not written is not passed over.
func TestCatToAFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "documents.db")
	documents, _ := newDocuments(t)
	if err := os.WriteFile(path, documents, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"doc", "cat", "ORDER-3"}, {"doc", "ls"}, {"doc", "ls", "-o", "json"}, {"doc", "show", "ORDER-1"}, {"version"}} {
		var errs bytes.Buffer
		code := run(t.Context(), append(command, "--store", "sqlite:"+path), nil, &brokenPipe{room: 10}, &errs)
		if code == exitOK || !strings.Contains(errs.String(), "no more room") {
			t.Errorf("%v: exit %d, %q", command, code, errs.String())
		}
	}
}

// TestInterrupted: a command that was told to stop has failed; nothing was
// unreachable.
func TestInterrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "documents.db")
	documents, _ := newDocuments(t)
	if err := os.WriteFile(path, documents, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	if code := run(ctx, []string{"doc", "verify", "--all", "--store", "sqlite:" + path}, nil, &out, &errs); code != exitFailed {
		t.Errorf("exit %d, %q", code, errs.String())
	}
}

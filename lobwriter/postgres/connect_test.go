package postgres

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lobsink/lobsink/lobwriter"
)

// TestCannotConnect: what cannot be reached is one line with the address, the
// cause once, what to do, and no password.
func TestCannotConnect(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://me:geheim@127.0.0.1:1/docs": "renew: cannot connect to PostgreSQL at 127.0.0.1:1, database docs, as me: " +
			"dial tcp 127.0.0.1:1: connect: connection refused (start the server, or correct --store)",
		"postgres://me:geheim@no.invalid/docs": "cannot connect to PostgreSQL at no.invalid:5432, database docs, as me: lookup no.invalid",
		"postgres://me:geheim@127.0.0.1:1,127.0.0.1:2/docs": "cannot connect to PostgreSQL at 127.0.0.1:1, 127.0.0.1:2, database docs, as me: " +
			"dial tcp 127.0.0.1:1: connect: connection refused; dial tcp 127.0.0.1:2: connect: connection refused (",
	} {
		_, err := pgconn.Connect(t.Context(), url)
		err = classify("renew", err)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks: %s", err, want)
			continue
		}
		if text := err.Error(); strings.ContainsAny(text, "\n\t") || strings.Contains(text, "geheim") {
			t.Errorf("more than one line, or the password: %q", text)
		}
		if k := lobwriter.KindOf(err); k != lobwriter.Transient {
			t.Errorf("%v is %s", err, k)
		}
	}
}

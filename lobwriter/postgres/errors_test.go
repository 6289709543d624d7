package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lobsink/lobsink/lobwriter"
)

// TestKinds: what each SQLSTATE that a deployment may meet means.
func TestKinds(t *testing.T) {
	for code, want := range map[string]lobwriter.Kind{
		"08006": lobwriter.Transient, // connection_failure
		"08003": lobwriter.Transient,
		"40001": lobwriter.Transient, // serialization_failure
		"40P01": lobwriter.Transient, // deadlock_detected
		"53100": lobwriter.Space,     // disk_full
		"53200": lobwriter.Transient, // out_of_memory
		"53300": lobwriter.Transient, // too_many_connections
		"55P03": lobwriter.Transient, // lock_not_available
		"57014": lobwriter.Transient, // query_canceled
		"57P01": lobwriter.Transient, // admin_shutdown
		"57P02": lobwriter.Transient, // crash_shutdown
		"57P03": lobwriter.Transient, // cannot_connect_now
		"25006": lobwriter.Transient, // read_only_sql_transaction
		"XX000": lobwriter.Transient, // internal_error
		"99999": lobwriter.Transient, // nobody knows
		"22021": lobwriter.Invalid,   // character_not_in_repertoire
		"23514": lobwriter.Invalid,   // check_violation
		"23505": lobwriter.Transient, // unique_violation
		"54000": lobwriter.Invalid,   // program_limit_exceeded
		"28P01": lobwriter.Credentials,
		"28000": lobwriter.Credentials,
		"3D000": lobwriter.Fatal, // invalid_catalog_name
		"42501": lobwriter.Fatal, // insufficient_privilege
		"42P01": lobwriter.Fatal, // undefined_table
		"42883": lobwriter.Fatal, // undefined_function
	} {
		err := classify("flush", fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code, Message: "m"}))
		if got := lobwriter.KindOf(err); got != want {
			t.Errorf("%s is %s, want %s", code, got, want)
		}
		if got := lobwriter.CodeOf(err); got != code {
			t.Errorf("code %q, want %q", got, code)
		}
	}
	for _, err := range []error{context.DeadlineExceeded, errors.New("unexpected EOF")} {
		if k := lobwriter.KindOf(classify("flush", err)); k != lobwriter.Transient {
			t.Errorf("%v is %s", err, k)
		}
	}
	fenced := &lobwriter.FencedError{}
	if classify("flush", fenced) != error(fenced) || classify("flush", nil) != nil {
		t.Error("what has a kind is changed")
	}
}

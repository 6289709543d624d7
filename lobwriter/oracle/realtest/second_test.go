//go:build cgo

package realtest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
	"github.com/lobsink/lobsink/lobwriter/oracle"
)

// TestContract runs the suite. All rules use one set of tables, one after the other.
func TestContract(t *testing.T) {
	lobtest.Test(t, func(t *testing.T) lobtest.Fixture {
		s, r := fixture(t)
		return lobtest.Fixture{
			Store: s, Reader: r,
			Second: func(t testing.TB) lobwriter.Store { return open(t) },
			Hold:   func(t testing.TB, partition int) func() { return hold(t, partition) },
			Operator: func(t testing.TB) lobwriter.Operator {
				op, err := oracle.OpenOperator(context.Background(), target)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { op.Close() })
				return op
			},
		}
	})
}

// TestKilledSessions: sessions are killed by the DBA while flushes go on. It needs
// the privilege ALTER SYSTEM.
func TestKilledSessions(t *testing.T) {
	s, r := fixture(t)
	own := lobtest.NewOwner(t, s, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	own.Store = lobwriter.Retry(s, lobwriter.RetryOptions{AttemptTimeout: 20 * time.Second, Most: time.Second})
	kill := `BEGIN
  FOR s IN (SELECT sid, serial# AS serial FROM v$session WHERE module = 'lobsink' AND client_info LIKE 'realtest%') LOOP
    EXECUTE IMMEDIATE 'ALTER SYSTEM KILL SESSION ''' || s.sid || ',' || s.serial || ''' IMMEDIATE';
  END LOOP;
END;`
	killer := raw(t)
	if _, err := killer.ExecContext(ctx, kill); err != nil {
		t.Skipf("it needs ALTER SYSTEM and V$SESSION: %v", err)
	}
	var want strings.Builder
	for seq := uint64(1); seq <= 200; seq++ {
		if seq%10 == 0 {
			go killer.ExecContext(ctx, kill)
		}
		text := fmt.Sprint("<", seq, ">")
		if _, err := own.Deliver(ctx, own.Append("k", lobtest.Text(seq, text))); err != nil {
			t.Fatal(err)
		}
		want.WriteString(text)
	}
	document(t, r, "k", want.String())
}

// TestSlowFenceRow: a flush whose fence row somebody holds for longer than its
// deadline leaves nothing behind, and is stored when it is repeated.
func TestSlowFenceRow(t *testing.T) {
	s, r := fixture(t)
	own := lobtest.NewOwner(t, s, 1)
	f := own.NewFlush(own.Append("k", lobtest.Text(1, "<a/>")))
	release := hold(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	_, err := s.Flush(ctx, f)
	cancel()
	if err == nil || lobwriter.KindOf(err) != lobwriter.Transient {
		t.Errorf("by the deadline: %v", err)
	}
	if _, err := s.Flush(t.Context(), f); lobwriter.CodeOf(err) != "ORA-30006" {
		t.Errorf("by WAIT 5: %v", err)
	}
	release()
	if _, err := own.Deliver(t.Context(), f.Groups...); err != nil {
		t.Fatal(err)
	}
	document(t, r, "k", "<a/>")
}

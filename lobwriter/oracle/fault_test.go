//go:build cgo

package oracle_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
	"github.com/lobsink/lobsink/lobwriter/oracle/standin"
)

// retrying repeats as a consumer does, for at most a minute.
func retrying(t *testing.T, s lobwriter.Store) (lobwriter.Store, context.Context) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return lobwriter.Retry(s, lobwriter.RetryOptions{
		AttemptTimeout: 5 * time.Second, First: time.Millisecond, Most: 20 * time.Millisecond, SpaceWait: time.Millisecond,
	}), ctx
}

// once has a fault befall the next call of a procedure.
func (d *db) once(procedure string, f standin.Fault) {
	var done atomic.Bool
	d.SetFaults(func(r standin.Request) standin.Fault {
		if r.Procedure == procedure && done.CompareAndSwap(false, true) {
			return f
		}
		return standin.Fault{}
	})
}

// TestFaults: whatever befalls a flush, once before it is committed and once after,
// its repetition stores the text once.
func TestFaults(t *testing.T) {
	d := start(t)
	own := lobtest.NewOwner(t, d.store, 1)
	var ctx context.Context
	own.Store, ctx = retrying(t, d.store)
	want := ""
	for _, c := range []struct {
		name string
		f    standin.Fault
	}{
		{"the connection is cut", standin.Fault{Cut: true}},
		{"the session is killed", standin.Fault{Code: 28}},
		{"idle for too long/O66", standin.Fault{Code: 2396}},
		{"end of file", standin.Fault{Code: 3113}},
		{"the node fails/O28", standin.Fault{Code: 25408}},
		{"the instance shuts down", standin.Fault{Code: 1089}},
		{"the package was compiled/O27", standin.Fault{Code: 4068}},
		{"a deadlock", standin.Fault{Code: 60}},
		{"a row is locked", standin.Fault{Code: 30006}},
		{"no room", standin.Fault{Code: 1691}},
		{"a standby", standin.Fault{Code: 16000}},
		{"an error that nobody knows", standin.Fault{Code: 31337}},
	} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/after %t", c.name, after), func(t *testing.T) {
				c.f.After = after
				d.once("flush", c.f)
				text := fmt.Sprintf("<%d/>", own.Rows["k"].Mark.Seq+1)
				r, err := own.Deliver(ctx, own.Append("k", lobtest.Text(own.Rows["k"].Mark.Seq+1, text)))
				if err != nil {
					t.Fatal(err)
				}
				if s := r.Answers[0].Status; s != lobwriter.Appended && s != lobwriter.AlreadyThere {
					t.Fatalf("answer %v", s)
				}
				want += text
				lobtest.CheckDocument(t, d.reader, lobwriter.UTF16, "k", want)
			})
		}
	}
}

// TestLogonFaults: a service that does not answer is tried again; what an operator
// has to change is said at once.
func TestLogonFaults(t *testing.T) {
	for code, want := range map[int]lobwriter.Kind{
		12541: lobwriter.Transient, 12514: lobwriter.Transient, 1033: lobwriter.Transient, 1017: lobwriter.Credentials, 28000: lobwriter.Credentials, 12154: lobwriter.Fatal,
	} {
		d, o := database(t)
		d.SetAccount("", "", code)
		if _, err := oracleOpen(t, o); lobwriter.KindOf(err) != want || lobwriter.CodeOf(err) != fmt.Sprintf("ORA-%05d", code) {
			t.Errorf("ORA-%05d: %v, %v", code, lobwriter.KindOf(err), err)
		}
		d.SetAccount("", "", 0)
		if want == lobwriter.Transient {
			open(t, o)
		}
	}
}

// TestCredentials: a refused password is tried once, not by every call: enough
// failures lock the account.
func TestCredentials(t *testing.T) {
	d := start(t)
	own := lobtest.NewOwner(t, d.store, 1)
	d.SetAccount("lobsink", "another", 0) // the password was changed in the database
	d.Cut()
	d.Trips()
	var refused int
	for range 30 {
		_, err := d.store.Flush(t.Context(), own.NewFlush(own.Append("k", lobtest.Text(1, "<a/>"))))
		if lobwriter.KindOf(err) == lobwriter.Credentials {
			refused++
		} else if err == nil {
			t.Fatal("it was stored")
		}
		if _, err := d.store.Renew(t.Context(), own.Claim, time.Hour); err == nil {
			t.Fatal("it was renewed")
		}
	}
	if n := d.Trips()[standin.Login]; n > 2 || refused < 25 {
		t.Errorf("%d logons, %d of 30 flushes were told so", n, refused)
	}
}

// TestMissingValues: a NULL where a number must be is no answer, whichever it is:
// the flush is repeated.
func TestMissingValues(t *testing.T) {
	d := start(t)
	own := lobtest.NewOwner(t, d.store, 1)
	want := ""
	for _, name := range []string{
		"p_outcome", "p_stored_life", "p_stored_epoch", "p_stored_flush", "p_stored_checkpoint", "p_stored_checkpoint_time", "p_stored_highest", "p_stored_highest_time",
		"p_lob_writes", "p_status", "p_code", "p_row_generation", "p_row_state", "p_row_life", "p_row_seq", "p_row_first_seq", "p_row_fragments", "p_row_holes",
		"p_row_late", "p_row_bytes", "p_row_units", "p_row_chunks", "p_row_crc", "p_row_reason_bytes", "p_error_bytes",
	} {
		d.once("flush", standin.Fault{Null: name})
		f := own.NewFlush(own.Append("k", lobtest.Text(own.Rows["k"].Mark.Seq+1, "x")))
		if r, err := d.store.Flush(t.Context(), f); lobwriter.KindOf(err) != lobwriter.Transient || err == nil {
			t.Errorf("%s is missing: %+v, %v", name, r, err)
		}
		if _, err := own.Deliver(t.Context(), f.Groups...); err != nil {
			t.Fatal(err)
		}
		want += "x"
	}
	lobtest.CheckDocument(t, d.reader, lobwriter.UTF16, "k", want)
}

// TestFrozen: a database that does not answer holds nobody beyond the deadline, at
// a call or at a logon. What it does when it wakes up is done once.
func TestFrozen(t *testing.T) {
	d := start(t)
	own := lobtest.NewOwner(t, d.store, 1)
	own.Flush(t, own.Append("k", lobtest.Text(1, "<a>")))
	f := own.NewFlush(own.Append("k", lobtest.Text(2, "</a>")))
	d.Freeze(true)
	for range 3 { // the first on an open session, the others at the logon
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err := d.store.Flush(ctx, f)
		cancel()
		if err == nil || lobwriter.KindOf(err) != lobwriter.Transient {
			t.Errorf("%v", err)
		}
	}
	d.Freeze(false)
	if _, err := own.Deliver(t.Context(), f.Groups...); err != nil {
		t.Fatal(err)
	}
	lobtest.CheckDocument(t, d.reader, lobwriter.UTF16, "k", "<a></a>")
}

// TestSlow: a call that takes longer than its deadline is given up and repeated.
func TestSlow(t *testing.T) {
	d := start(t)
	own := lobtest.NewOwner(t, d.store, 1)
	f := own.NewFlush(own.Append("k", lobtest.Text(1, "<a/>")))
	for _, after := range []bool{false, true} {
		d.once("flush", standin.Fault{Delay: time.Minute, After: after})
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := d.store.Flush(ctx, f)
		cancel()
		// By the context's clock or by the client library's, which are close.
		if err == nil || lobwriter.KindOf(err) != lobwriter.Transient {
			t.Errorf("%v", err)
		}
	}
	if _, err := own.Deliver(t.Context(), f.Groups...); err != nil {
		t.Fatal(err)
	}
	lobtest.CheckDocument(t, d.reader, lobwriter.UTF16, "k", "<a/>")
}

// TestBusyLease: a lease row that another call holds is waited for.
func TestBusyLease(t *testing.T) {
	d := start(t)
	own := lobtest.NewOwner(t, d.store, 1)
	for i, try := range []func() error{
		func() error { _, err := d.store.Renew(t.Context(), own.Claim, time.Hour); return err },
		func() error { return d.store.Release(t.Context(), own.Claim) },
	} {
		release := d.schema.HoldLease(1)
		time.AfterFunc(50*time.Millisecond, release)
		if err := try(); err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	d.schema.HoldLease(1)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := d.store.Renew(ctx, own.Claim, time.Hour); lobwriter.KindOf(err) != lobwriter.Transient || err == nil {
		t.Errorf("%v", err)
	}
}

// TestTwoThousandCommits: four owners flush while every fifth call fails, before or
// after its commit, connections are cut, and the database freezes. Nothing is lost,
// nothing is there twice.
func TestTwoThousandCommits(t *testing.T) {
	d := start(t)
	const owners, flushes = 4, 500
	rng := rand.New(rand.NewPCG(1, 2))
	faults := make([]standin.Fault, 4096)
	codes := []int{28, 60, 1012, 1033, 1691, 3113, 3135, 4068, 12571, 25402, 30006, 31337}
	for i := range faults {
		switch after := rng.IntN(2) == 0; rng.IntN(15) {
		case 0:
			faults[i] = standin.Fault{Cut: true, After: after}
		case 1:
			faults[i] = standin.Fault{Code: codes[rng.IntN(len(codes))], After: after}
		case 2:
			faults[i] = standin.Fault{Null: []string{"p_status", "p_outcome", "p_row_bytes", "p_stored_flush"}[rng.IntN(4)]}
		}
	}
	var n, injected atomic.Int64
	d.SetFaults(func(r standin.Request) standin.Fault {
		if r.Procedure != "flush" {
			return standin.Fault{}
		}
		f := faults[int(n.Add(1))%len(faults)]
		if f != (standin.Fault{}) {
			injected.Add(1)
		}
		return f
	})
	var g errgroup.Group
	for p := range owners {
		own := lobtest.NewOwner(t, d.store, p)
		var ctx context.Context
		own.Store, ctx = retrying(t, d.store)
		g.Go(func() error {
			for seq := uint64(1); seq <= flushes; seq++ {
				a, b := fmt.Sprint("a", p), fmt.Sprint("b", p)
				r, err := own.Deliver(ctx, own.Append(a, lobtest.Text(seq, fmt.Sprint("<", seq, ">"))), own.Append(b, lobtest.Text(seq, "€")))
				if err != nil {
					return fmt.Errorf("partition %d, flush %d: %w", p, seq, err)
				}
				for _, a := range r.Answers {
					if a.Status != lobwriter.Appended && a.Status != lobwriter.AlreadyThere {
						return fmt.Errorf("partition %d, flush %d: %v", p, seq, a.Status)
					}
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	d.SetFaults(nil)
	var want strings.Builder
	for seq := range flushes {
		fmt.Fprint(&want, "<", seq+1, ">")
	}
	for p := range owners {
		lobtest.CheckDocument(t, d.reader, lobwriter.UTF16, fmt.Sprint("a", p), want.String())
		lobtest.CheckDocument(t, d.reader, lobwriter.UTF16, fmt.Sprint("b", p), strings.Repeat("€", flushes))
	}
	if injected.Load() < owners*flushes/10 {
		t.Errorf("only %d faults", injected.Load())
	}
	t.Logf("%d commits, %d faults", owners*flushes, injected.Load())
}

// TestRewound: the database goes back under an owner, as after a failover to a late
// standby. The owner finds out with its next flush, claims again, and what was lost
// is there again.
func TestRewound(t *testing.T) {
	d := start(t)
	d.schema.KeepHistory(20)
	for _, back := range []int{1, 2, 7, 19} {
		t.Run(fmt.Sprint(back, " flushes"), func(t *testing.T) {
			own := lobtest.NewOwner(t, d.store, 1)
			key := fmt.Sprint("k", back)
			var want strings.Builder
			piece := func(seq uint64) lobwriter.Group {
				return own.Append(key, lobtest.Text(seq, fmt.Sprint("<", seq, ">")))
			}
			last := uint64(20)
			for seq := uint64(1); seq <= last; seq++ {
				own.Flush(t, piece(seq))
				fmt.Fprint(&want, "<", seq, ">")
			}
			if !d.schema.Rewind(back) {
				t.Fatal("the history is too short")
			}
			_, err := d.store.Flush(t.Context(), own.NewFlush(piece(last+1)))
			var fenced *lobwriter.FencedError
			if !errors.As(err, &fenced) || fenced.Stored.Epoch != own.Claim.Fence.Epoch || fenced.Stored.Flush >= own.Number {
				t.Fatalf("%v, want fenced by the flush number", err)
			}
			// The claim says from where on the stream is read again.
			again := lobtest.NewOwner(t, d.store, 1)
			rows, err := d.store.Rows(t.Context(), 1, []string{key})
			if err != nil {
				t.Fatal(err)
			}
			own = again
			own.Rows[key] = rows[0]
			for seq := rows[0].Mark.Seq + 1; seq <= last+1; seq++ {
				own.Flush(t, piece(seq))
			}
			fmt.Fprint(&want, "<", last+1, ">")
			lobtest.CheckDocument(t, d.reader, lobwriter.UTF16, key, want.String())
		})
	}
}

// TestIsolation: a document whose block is damaged fails the whole flush. After
// some equal failures it alone is refused.
func TestIsolation(t *testing.T) {
	d := start(t)
	own := lobtest.NewOwner(t, d.store, 1)
	var ctx context.Context
	own.Store, ctx = retrying(t, d.store)
	own.Flush(t, own.Append("bad", lobtest.Text(1, "<a>")), own.Append("good", lobtest.Text(2, "<b>")))
	d.schema.Refuse("bad", 1578)
	d.Trips()
	groups := []lobwriter.Group{own.Append("bad", lobtest.Text(3, "</a>")), own.Append("good", lobtest.Text(4, "</b>"))}
	r, err := own.Deliver(ctx, groups...)
	if err != nil {
		t.Fatal(err)
	}
	if r.Answers[0].Status != lobwriter.Rejected || r.Answers[0].Code != "ORA-01578" || r.Answers[1].Status != lobwriter.Appended {
		t.Errorf("answers %+v", r.Answers)
	}
	if n := d.Trips()["flush"]; n != 6 {
		t.Errorf("%d tries", n)
	}
	lobtest.CheckDocument(t, d.reader, lobwriter.UTF16, "bad", "<a>")
	lobtest.CheckDocument(t, d.reader, lobwriter.UTF16, "good", "<b></b>")

	// What is known to be the database's fault is waited for, however long.
	d.schema.Refuse("bad", 1691)
	time.AfterFunc(300*time.Millisecond, func() { d.schema.Refuse("bad", 0) })
	if r, err := own.Deliver(ctx, groups[:1]...); err != nil || r.Answers[0].Status != lobwriter.Appended {
		t.Errorf("%+v, %v", r, err)
	}
}

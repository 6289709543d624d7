package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lobsink/lobsink/internal/pgtest"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
	"github.com/lobsink/lobsink/lobwriter/postgres"
)

// waiting is how many sessions of a database wait for a lock.
func waiting(t testing.TB, o postgres.Options) (n int) {
	t.Helper()
	if err := connection(t, o).QueryRow(t.Context(), `
		select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// eventually waits until something holds, for as long as a slow machine may need.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute, this does not hold: %s", what)
		}
	}
}

// Flushes of all partitions hang, on all the connections that flushes have: leases
// are renewed all the same.
func TestRenewalWhileEveryFlushHangs(t *testing.T) {
	o := database(t, shared)
	o.Lease = time.Hour // no lock is given up meanwhile
	o.FlushTimeout = time.Hour
	s := open(t, o)
	var flushes errgroup.Group
	owners := make([]*lobtest.Owner, stream.Partitions)
	var release []func()
	for p := range owners {
		owners[p] = claim(t, s, p)
		release = append(release, hold(t, o, p))
	}
	const each = 8
	for range each {
		for p, own := range owners {
			f := own.NewFlush(own.Append(fmt.Sprint("k", p), lobtest.Text(1, "<a/>")))
			flushes.Go(func() error {
				_, err := s.Flush(context.Background(), f)
				if lobwriter.KindOf(err) == lobwriter.Fenced {
					return nil // another one of them came first
				}
				return err
			})
		}
	}
	eventually(t, "as many flushes as may wait for a fence row", func() bool { return waiting(t, o) >= 4 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for p, own := range owners {
		if _, err := s.Renew(ctx, own.Claim, time.Hour); err != nil {
			t.Errorf("partition %d: %v", p, err)
		}
	}
	for _, r := range release {
		r()
	}
	if err := flushes.Wait(); err != nil {
		t.Error(err)
	}
	for p := range owners {
		lobtest.CheckDocument(t, openReader(t, o), lobwriter.Runes, fmt.Sprint("k", p), "<a/>")
	}
}

// A claim that waits for a flush of the owner before does not keep that owner from
// renewing: the claim then finds the lease held.
func TestRenewalWhileAClaimWaits(t *testing.T) {
	o := database(t, shared)
	o.Lease = time.Hour
	s, other := open(t, o), open(t, o)
	own := claim(t, s, 1)
	if _, err := s.Renew(t.Context(), own.Claim, time.Nanosecond); err != nil {
		t.Fatal(err)
	}
	release := hold(t, o, 1)
	claimed := make(chan error, 1)
	go func() {
		_, err := other.Claim(context.Background(), lobwriter.ClaimRequest{Partition: 1, MemberID: "bb", ClaimID: "dd", Lease: time.Hour})
		claimed <- err
	}()
	eventually(t, "the claim waits", func() bool { return waiting(t, o) > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := s.Renew(ctx, own.Claim, time.Hour); err != nil {
		t.Errorf("renew: %v", err)
	}
	release()
	if err := <-claimed; lobwriter.KindOf(err) != lobwriter.Held {
		t.Errorf("the claim: %v, want held", err)
	}
	if f, err := s.Fence(t.Context(), 1); err != nil || f != own.Claim.Fence {
		t.Errorf("the claim changed the fence row: %+v, %v", f, err)
	}
}

// A claim that the owner before renews in time is fenced when it is too late, and
// brings the claim that it lost to.
func TestRenewalAfterAClaim(t *testing.T) {
	o := database(t, shared)
	s := open(t, o)
	old := claim(t, s, 1)
	current := claim(t, open(t, o), 1)
	_, err := s.Renew(t.Context(), old.Claim, time.Hour)
	var fenced *lobwriter.FencedError
	if !errors.As(err, &fenced) || fenced.Stored != current.Claim.Fence {
		t.Errorf("renew: %v, want fenced by %+v", err, current.Claim.Fence)
	}
}

// The server may have been told not to make commits durable: sessions of lobsink
// do so. What is stronger than that stays.
func TestCommitsAreDurable(t *testing.T) {
	for setting, want := range map[string]string{"off": "on", "local": "local", "remote_apply": "remote_apply", "on": "on"} {
		t.Run(setting, func(t *testing.T) {
			o := database(t, shared)
			query(t, o, `do $$ begin execute format('alter database %I set synchronous_commit = `+setting+`', current_database()); end $$`)
			// A trigger keeps what the session of a flush has.
			query(t, o, `
				create table seen (commit text, isolation text);
				create function see() returns trigger language plpgsql as $$
				begin insert into seen values (current_setting('synchronous_commit'), current_setting('transaction_isolation')); return null; end $$;
				create trigger see after update on lobsink_fences execute function see()`)
			own := claim(t, open(t, o), 0)
			own.Flush(t, own.Append("k", lobtest.Text(1, "<a/>")))
			var got, isolation string
			if err := connection(t, o).QueryRow(t.Context(), `select distinct commit, isolation from seen`).Scan(&got, &isolation); err != nil {
				t.Fatal(err)
			}
			if got != want || isolation != "read committed" {
				t.Errorf("a flush had synchronous_commit %s, want %s, and isolation %s", got, want, isolation)
			}
		})
	}
}

// A cluster whose defaults are other ones: repeatable read would see documents as
// they were before the lock of the fence row was given.
func TestOtherDefaults(t *testing.T) {
	o := database(t, shared)
	query(t, o, `do $$ begin
		execute format('alter database %I set default_transaction_isolation = serializable', current_database());
		execute format('alter database %I set client_encoding = latin1', current_database());
		execute format('alter database %I set statement_timeout = 100', current_database());
	end $$`)
	s := open(t, o)
	first := claim(t, s, 1)
	first.Flush(t, first.Append("k", lobtest.Text(1, "€")))
	second := claim(t, open(t, o), 1)
	second.Rows["k"] = first.Rows["k"]
	second.Flush(t, second.Append("k", lobtest.Text(2, "𝄞")))
	lobtest.CheckDocument(t, openReader(t, o), lobwriter.Runes, "k", "€𝄞")
}

// The server becomes read-only, as one that is now a standby, and then takes
// writes again. The sessions on it are not kept.
func TestStandby(t *testing.T) {
	server := pgtest.Start(t, pgtest.NoSync())
	o := database(t, server)
	s := open(t, o)
	own := claim(t, s, 0)
	own.Flush(t, own.Append("k", lobtest.Text(1, "<a>")))
	readOnly := func(value string) {
		query(t, o, `alter system set default_transaction_read_only = `+value)
		query(t, o, `select pg_reload_conf()`)
	}
	readOnly("on")
	f := own.NewFlush(own.Append("k", lobtest.Text(2, "</a>")))
	eventually(t, "the server takes no writes", func() bool {
		r, err := s.Flush(t.Context(), f)
		if err == nil {
			own.Settle(f, r)
			f = own.NewFlush(own.Append("k", lobtest.Text(own.Rows["k"].Mark.Seq+1, "")))
			return false
		}
		return lobwriter.KindOf(err) == lobwriter.Transient && lobwriter.CodeOf(err) == "25006"
	})
	// Nothing of the old sessions is used: the next one finds no server that
	// takes writes.
	if _, err := s.Flush(t.Context(), f); err == nil || lobwriter.KindOf(err) != lobwriter.Transient || lobwriter.CodeOf(err) == "25006" {
		t.Errorf("on a read-only server: %v", err)
	}
	if d, err := openReader(t, o).Document(t.Context(), "k"); err != nil || d.Mark != own.Rows["k"].Mark {
		t.Errorf("a reader on a read-only server has %+v, %v", d, err)
	}
	c := connection(t, o)
	if _, err := c.Exec(t.Context(), `set default_transaction_read_only = off`); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{`alter system reset default_transaction_read_only`, `select pg_reload_conf()`} {
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	r, ctx := retrying(t, s)
	receipt, err := r.Flush(ctx, f)
	if err != nil {
		t.Fatal(err)
	}
	own.Settle(f, receipt)
	lobtest.CheckDocument(t, openReader(t, o), lobwriter.Runes, "k", "<a></a>")
}

// An operator cancels the wait of a commit for its standby. The server calls the
// commit a success; a flush does not.
func TestCommitWithoutItsStandby(t *testing.T) {
	server := pgtest.Start(t, pgtest.NoSync())
	o := database(t, server)
	s := open(t, o)
	own := claim(t, s, 0)
	own.Flush(t, own.Append("k", lobtest.Text(1, "<a>")))
	standby := func(names string) {
		c := connection(t, o)
		for _, sql := range []string{`set synchronous_commit = local`, `alter system set synchronous_standby_names = '` + names + `'`, `select pg_reload_conf()`} {
			if _, err := c.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	standby("nobody")
	eventually(t, "commits wait for a standby", func() bool {
		var names string
		err := connection(t, o).QueryRow(t.Context(), `show synchronous_standby_names`).Scan(&names)
		return err == nil && names == "nobody"
	})
	f := own.NewFlush(own.Append("k", lobtest.Text(2, "</a>")))
	done := make(chan error, 1)
	go func() {
		_, err := s.Flush(context.Background(), f)
		done <- err
	}()
	eventually(t, "the commit waits", func() bool {
		var n int
		err := connection(t, o).QueryRow(t.Context(), `
			select count(pg_cancel_backend(pid)) from pg_stat_activity where wait_event = 'SyncRep'`).Scan(&n)
		return err == nil && n > 0
	})
	if err := <-done; err == nil || lobwriter.KindOf(err) != lobwriter.Transient {
		t.Errorf("the flush: %v, want a transient error", err)
	}
	standby("")
	var err error
	own.Store, _ = retrying(t, s)
	if _, err = own.Deliver(t.Context(), f.Groups...); err != nil {
		t.Fatal(err)
	}
	lobtest.CheckDocument(t, openReader(t, o), lobwriter.Runes, "k", "<a></a>")
}

// A reader takes its time, longer than any flush may. Text enough for no buffer on
// the way to hold it.
func TestSlowReader(t *testing.T) {
	o := database(t, shared)
	own := claim(t, open(t, o), 0)
	piece := strings.Repeat("<a>text</a>", 1<<20/11)
	for n := range uint64(16) {
		own.Flush(t, own.Append("k", lobtest.Text(n+1, piece)))
	}
	o.FlushTimeout, o.Lease = time.Millisecond, 3*time.Millisecond
	var text strings.Builder
	pieces := 0
	_, err := openReader(t, o).Read(t.Context(), "k", func(p []byte) error {
		if pieces++; pieces == 10 {
			time.Sleep(2500 * time.Millisecond) // above FlushTimeout and a second
		}
		text.Write(p)
		return nil
	})
	if err != nil || text.String() != strings.Repeat(piece, 16) {
		t.Errorf("%d bytes, %v", text.Len(), err)
	}
}

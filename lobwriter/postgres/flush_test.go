package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lobsink/lobsink/internal/pgtest"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

// The database refuses the commit itself, after all statements went well and their
// results were sent: that is no receipt.
func TestRefusedCommit(t *testing.T) {
	o := database(t, shared)
	s := open(t, o)
	own := claim(t, s, 0)
	query(t, o, `
		create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no' using errcode = '40001'; end $$;
		create constraint trigger refuse after insert on lobsink_chunks deferrable initially deferred for each row execute function refuse()`)
	f := own.NewFlush(own.Append("k", lobtest.Text(1, "<a/>")))
	if r, err := s.Flush(t.Context(), f); err == nil || lobwriter.KindOf(err) != lobwriter.Transient {
		t.Fatalf("receipt %+v, error %v", r, err)
	}
	query(t, o, `drop trigger refuse on lobsink_chunks`)
	r, err := s.Flush(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	own.Settle(f, r)
	lobtest.CheckDocument(t, openReader(t, o), lobwriter.Runes, "k", "<a/>")
}

// Every reply of the server gets lost once on its way, the last one of a commit
// too: each fragment is stored once.
func TestLostReplies(t *testing.T) {
	t.Run("O19,O20", func(t *testing.T) {
		o := database(t, shared)
		w, tapped := tapped(t, o)
		own := claim(t, open(t, tapped), 0)
		var ctx context.Context
		own.Store, ctx = retrying(t, own.Store)
		want := ""
		for n := range uint64(12) {
			w.cut.Store(n%3 == 0) // before the next end of a round trip
			text := fmt.Sprintf("<f n='%d'/>", n)
			want += text
			if _, err := own.Deliver(ctx, own.Append("k", lobtest.Text(n+1, text))); err != nil {
				t.Fatal(err)
			}
			if w.cut.Load() {
				t.Fatal("no reply got lost")
			}
		}
		d := lobtest.CheckDocument(t, openReader(t, o), lobwriter.Runes, "k", want)
		if d.Fragments != 12 || d.Chunks != 12 {
			t.Errorf("%d fragments in %d chunks", d.Fragments, d.Chunks)
		}
	})
}

// trouble lets the chunks of a document fail the first n times, and for good if n
// is 0. A sequence counts: it is not rolled back.
const trouble = `
	create sequence troubles;
	create function trouble() returns trigger language plpgsql as $$
	declare key text := (select doc_key from lobsink_documents where id = new.document);
	begin
		if key is null then -- the row is made in the same statement
			key := split_part(new.body, '|', 1);
		end if;
		if key = 'bad' then raise exception 'never' using errcode = '23514'; end if;
		if key = 'once' and nextval('troubles') = 1 then raise exception 'once' using errcode = '40P01'; end if;
		return new;
	end $$;
	create trigger trouble before insert on lobsink_chunks for each row execute function trouble()`

// One document is refused for good, another one meets a deadlock once: both of
// them and their neighbours are stored once, or not at all.
func TestOneFailsForGoodAnotherOnce(t *testing.T) {
	t.Run("O26,O32", func(t *testing.T) {
		o := database(t, shared)
		own := claim(t, open(t, o), 0)
		query(t, o, trouble)
		var ctx context.Context
		own.Store, ctx = retrying(t, own.Store)
		r, err := own.Deliver(ctx,
			own.Append("good", lobtest.Text(1, "good|1")), own.Append("bad", lobtest.Text(2, "bad|2")), own.Append("once", lobtest.Text(3, "once|3")))
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []lobwriter.Status{lobwriter.Appended, lobwriter.Rejected, lobwriter.Appended} {
			if got := r.Answers[i].Status; got != want {
				t.Errorf("group %d: %v, want %v", i, got, want)
			}
		}
		reader := openReader(t, o)
		lobtest.CheckDocument(t, reader, lobwriter.Runes, "good", "good|1")
		lobtest.CheckDocument(t, reader, lobwriter.Runes, "once", "once|3")
		if _, err := reader.Document(t.Context(), "bad"); !errors.Is(err, lobwriter.ErrNotFound) {
			t.Errorf("something of the refused document is there: %v", err)
		}
	})
}

// Somebody makes the same document while a flush does, without the lock of the
// fence row. The flush is repeated and then answered as stale, not rejected.
func TestDocumentMadeWithoutTheLock(t *testing.T) {
	o := database(t, shared)
	s := open(t, o)
	own := claim(t, s, 0)
	tx, err := connection(t, o).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `
		insert into lobsink_documents (doc_key, partition, generation, state, life, seq, first_seq, fragments, holes, late, bytes, units, chunks, crc, reason, created_at, updated_at)
		values ('k', 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, '', 1, 1)`); err != nil {
		t.Fatal(err)
	}
	f := own.NewFlush(own.Append("k", lobtest.Text(2, "<a/>")), own.Append("l", lobtest.Text(3, "<b/>")))
	r, ctx := retrying(t, s)
	done := make(chan error, 1)
	var receipt lobwriter.Receipt
	go func() {
		var err error
		receipt, err = r.Flush(ctx, f)
		done <- err
	}()
	eventually(t, "the flush waits for the other transaction", func() bool { return waiting(t, o) > 0 })
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if a := receipt.Answers; a[0].Status != lobwriter.Stale || a[0].Row.Mark.Seq != 1 || a[1].Status != lobwriter.Appended {
		t.Errorf("answers %+v", a)
	}
}

// Chunks that are there although their document says otherwise are in the way of
// one group only.
func TestChunksInTheWay(t *testing.T) {
	o := database(t, shared)
	own := claim(t, open(t, o), 0)
	own.Flush(t, own.Append("k", lobtest.Text(1, "<a>")))
	query(t, o, `insert into lobsink_chunks (document, generation, n, body) select id, generation, 2, 'x' from lobsink_documents`)
	r := own.Flush(t, own.Append("k", lobtest.Text(2, "</a>")), own.Append("l", lobtest.Text(3, "<b/>")))
	if a := r.Answers; a[0].Status != lobwriter.Rejected || a[0].Code != "23505" || a[1].Status != lobwriter.Appended {
		t.Errorf("answers %+v", a)
	}
}

// A call that breaks the contract is refused as a whole, and nothing is written.
func TestKeysThatAreNone(t *testing.T) {
	o := database(t, shared)
	s := open(t, o)
	own := claim(t, s, 0)
	for _, keys := range [][]string{{""}, {"a\x00"}, {"\xff"}, {"k", "k"}} {
		var groups []lobwriter.Group
		for i, k := range keys {
			groups = append(groups, own.Append(k, lobtest.Text(uint64(i+1), "<a/>")))
		}
		if _, err := s.Flush(t.Context(), own.NewFlush(groups...)); lobwriter.KindOf(err) != lobwriter.Invalid {
			t.Errorf("keys %q: %v", keys, err)
		}
	}
	own.Flush(t, own.Append("k", lobtest.Text(1, "<a/>")))
}

// A reason may quote a fragment that is no text; it does not stand in the way of
// the document.
func TestReasonThatIsNoText(t *testing.T) {
	o := database(t, shared)
	own := claim(t, open(t, o), 0)
	g := own.Append("k", lobtest.Hole(1))
	g.After.Reason = "bad: \xff\x00 (sequence 1)"
	own.Flush(t, g)
	d, err := openReader(t, o).Document(t.Context(), "k")
	if err != nil || d.Reason != "bad: \ufffd\ufffd (sequence 1)" {
		t.Errorf("reason %q, %v", d.Reason, err)
	}
}

// Plans are made while the tables are empty and kept while they grow: no flush
// reads a table from end to end, and updates find room beside the old version.
func TestPlansOfGrowingTables(t *testing.T) {
	o := database(t, shared)
	query(t, o, `alter table lobsink_documents set (autovacuum_enabled = false)`)
	own := claim(t, open(t, o), 0)
	scans := func() (documents, chunks int64) {
		c := connection(t, o)
		if err := c.QueryRow(t.Context(), `
			select (select seq_scan from pg_stat_user_tables where relname = 'lobsink_documents'),
			       (select seq_scan from pg_stat_user_tables where relname = 'lobsink_chunks')`).Scan(&documents, &chunks); err != nil {
			t.Fatal(err)
		}
		return documents, chunks
	}
	beforeDocuments, beforeChunks := scans()
	seq := uint64(0)
	for round := range 12 {
		var groups []lobwriter.Group
		for i := range 200 {
			seq++
			groups = append(groups, own.Append(fmt.Sprint("k", (round*100+i)), lobtest.Text(seq, "<a/>"))) // half are known
		}
		for i, a := range own.Flush(t, groups...).Answers {
			if a.Status != lobwriter.Appended {
				t.Fatalf("round %d, group %d: %v", round, i, a.Status)
			}
		}
	}
	// The counters come some time after the commit, and at the end of a session.
	own.Store.Close()
	eventually(t, "the flushes are counted", func() bool {
		var made, moved int64
		err := connection(t, o).QueryRow(t.Context(), `
			select n_tup_ins, n_tup_upd from pg_stat_user_tables where relname = 'lobsink_documents'`).Scan(&made, &moved)
		return err == nil && made == 1300 && moved == 1100
	})
	if d, c := scans(); d != beforeDocuments || c != beforeChunks {
		t.Errorf("%d documents and %d chunks scans from end to end", d-beforeDocuments, c-beforeChunks)
	}
}

// A flush waits for the fence row no longer than a third of the lease.
func TestLockTimeout(t *testing.T) {
	o := database(t, shared)
	o.Lease = 300 * time.Millisecond
	s := open(t, o)
	own := claim(t, s, 0)
	release := hold(t, o, 0)
	f := own.NewFlush(own.Append("k", lobtest.Text(1, "<a/>")))
	if _, err := s.Flush(t.Context(), f); lobwriter.KindOf(err) != lobwriter.Transient || lobwriter.CodeOf(err) != "55P03" {
		t.Errorf("flush: %v", err)
	}
	_, err := s.Claim(t.Context(), lobwriter.ClaimRequest{Partition: 0, MemberID: own.Claim.MemberID, ClaimID: "dd", Lease: time.Hour})
	if lobwriter.KindOf(err) != lobwriter.Transient || lobwriter.CodeOf(err) != "55P03" {
		t.Errorf("claim: %v", err)
	}
	release()
	r, ctx := retrying(t, s)
	if _, err := r.Flush(ctx, f); err != nil {
		t.Fatal(err)
	}
	lobtest.CheckDocument(t, openReader(t, o), lobwriter.Runes, "k", "<a/>")
}

// BenchmarkFlush flushes known documents. The last case has one that is refused,
// so that each flush is done twice, the second time group by group.
func BenchmarkFlush(b *testing.B) {
	server := pgtest.Start(b)
	for _, c := range []struct{ documents, size, refused int }{
		{64, 32767, -1}, {1024, 300, -1}, {1024, 4096, -1}, {64, 65534, -1}, {128, 65534, -1}, {1024, 300, 500},
	} {
		b.Run(fmt.Sprintf("documents=%d/bytes=%d/refused=%t", c.documents, c.size, c.refused >= 0), func(b *testing.B) {
			o := database(b, server)
			own := claim(b, open(b, o), 0)
			text := strings.Repeat("<row n=\"1\">text and more text</row>\n", 2000)[:c.size]
			seq := uint64(0)
			b.SetBytes(int64(c.documents * c.size))
			for b.Loop() {
				groups := make([]lobwriter.Group, c.documents)
				for i := range groups {
					seq++
					content := text
					if i == c.refused {
						content = "\x00"
					}
					groups[i] = own.Append(fmt.Sprint("doc", i), lobtest.Text(seq, content))
				}
				own.Flush(b, groups...)
			}
		})
	}
}

package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
	"github.com/lobsink/lobsink/lobwriter/sqlite"
)

func checkDocument(t testing.TB, r lobwriter.Reader, key, want string) {
	t.Helper()
	lobtest.CheckDocument(t, r, lobwriter.Runes, key, want)
}

// Twenty owners in two processes flush at the same time. No flush is told that
// the database is busy: each waits for its turn.
func TestConcurrentFlushes(t *testing.T) {
	t.Run("O35", func(t *testing.T) {
		const owners, flushes = 20, 10
		o := newFile(t)
		stores := []*sqlite.Store{open(t, o), open(t, o)}
		if _, err := stores[0].Bind(t.Context(), lobwriter.Stream{Name: "FRAGMENTS", Created: 1, Partitions: owners}); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for p := range owners {
			wg.Go(func() {
				s := stores[p%2]
				c, err := s.Claim(t.Context(), lobwriter.ClaimRequest{
					Partition: p, MemberID: "00000000000000aa", ClaimID: "00000000000000cc", Lease: time.Hour,
				})
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				own := &lobtest.Owner{Store: s, Claim: c, Rows: map[string]lobwriter.Row{}}
				for n := range uint64(flushes) {
					f := own.NewFlush(own.Append(fmt.Sprint("k", p), lobtest.Text(n+1, fmt.Sprintf("<%d/>", n))))
					r, err := s.Flush(t.Context(), f)
					if err != nil || r.Answers[0].Status != lobwriter.Appended {
						t.Errorf("partition %d, flush %d: %v, %v", p, n, r.Answers, err)
						return
					}
					own.Settle(f, r)
				}
			})
		}
		wg.Wait()
		r := openReader(t, o)
		for p := range owners {
			checkDocument(t, r, fmt.Sprint("k", p), "<0/><1/><2/><3/><4/><5/><6/><7/><8/><9/>")
		}
	})
}

// A disk without room stops a flush, but not a renewal. When there is room, the
// identical flush goes through, and nothing is there twice.
func TestDiskFull(t *testing.T) {
	o := newFile(t)
	o.Exclusive = true
	s := open(t, o)
	r := openReader(t, o)
	own := lobtest.NewOwner(t, s, 1)
	own.Flush(t, own.Append("k", lobtest.Text(1, "<a>")))

	var pages int
	if err := s.Writer().QueryRowContext(t.Context(), "pragma page_count").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	mustExec(t, s.Writer(), fmt.Sprintf("pragma max_page_count = %d", pages+10))
	text := strings.Repeat("<b>é</b>", 100_000)
	f := own.NewFlush(own.Append("k", lobtest.Text(2, text)), own.Append("new", lobtest.Text(3, "x")))
	for range 3 {
		_, err := s.Flush(t.Context(), f)
		if lobwriter.KindOf(err) != lobwriter.Space || lobwriter.CodeOf(err) != "SQLITE_FULL" {
			t.Fatalf("error %v, want one of kind space", err)
		}
	}
	if _, err := s.Renew(t.Context(), own.Claim, time.Hour); err != nil {
		t.Errorf("renew while there is no room: %v", err)
	}
	checkDocument(t, r, "k", "<a>")

	mustExec(t, s.Writer(), "pragma max_page_count = 1000000")
	receipt, err := s.Flush(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	own.Settle(f, receipt)
	own.Flush(t, own.Append("k", lobtest.Text(4, "</a>")))
	checkDocument(t, r, "k", "<a>"+text+"</a>")
	checkDocument(t, r, "new", "x")
}

// Attempts whose deadlines fall anywhere in a flush are repeated until one is
// answered, as an owner does.
func TestDeadlineAnywhereInAFlush(t *testing.T) {
	o := newFile(t)
	s := open(t, o)
	own := lobtest.NewOwner(t, s, 1)
	var want strings.Builder
	late := 0
	for n := range uint64(20) {
		text := strings.Repeat(fmt.Sprintf("<%d/>", n), 100_000)
		want.WriteString(text)
		f := own.NewFlush(own.Append("k", lobtest.Text(n+1, text)))
		for wait := time.Duration(n) * time.Millisecond / 2; ; wait += 5 * time.Millisecond {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			r, err := s.Flush(ctx, f)
			cancel()
			var fenced *lobwriter.FencedError
			if errors.As(err, &fenced) && fenced.Stored.Flush == f.Number+1 {
				f.Number++ // the attempt before did commit
				continue
			}
			if err != nil {
				late++
				if lobwriter.KindOf(err) != lobwriter.Transient || !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("flush %d: %v", n, err)
				}
				continue
			}
			own.Settle(f, r)
			own.Rows["k"] = f.Groups[0].After
			break
		}
	}
	if late == 0 {
		t.Error("no attempt met its deadline")
	}
	checkDocument(t, openReader(t, o), "k", want.String())
}

// What the database itself refuses is rejected alone: another program left a
// chunk where this document's next one belongs.
func TestRejectedByTheDatabase(t *testing.T) {
	o := newFile(t)
	s := open(t, o)
	own := lobtest.NewOwner(t, s, 1)
	own.Flush(t, own.Append("b", lobtest.Text(1, "1")))
	big := strings.Repeat("x", 40_000) // two chunks, the second one collides
	mustExec(t, behind(t, o.Path), `
		insert into lobsink_chunks (document, generation, n, body)
		select id, 1, 3, 'not of lobsink' from lobsink_documents where doc_key = 'b'`)

	before := own.Rows["b"]
	r := own.Flush(t, own.Append("a", lobtest.Text(2, "2")), own.Append("b", lobtest.Text(3, big)), own.Append("c", lobtest.Text(4, "4")))
	for i, want := range []lobwriter.Status{lobwriter.Appended, lobwriter.Rejected, lobwriter.Appended} {
		if got := r.Answers[i].Status; got != want {
			t.Errorf("answer %d is %v, want %v", i, got, want)
		}
	}
	if a := r.Answers[1]; a.Row != before || a.Code != "SQLITE_CONSTRAINT" || a.Text == "" {
		t.Errorf("rejected with %+v, the row was %+v", a, before)
	}
	if r.Checkpoint.Seq != 1 {
		t.Errorf("the checkpoint moved to %d", r.Checkpoint.Seq)
	}
	var chunks int
	if err := behind(t, o.Path).QueryRowContext(t.Context(), "select count(*) from lobsink_chunks where n = 2").Scan(&chunks); err != nil || chunks != 0 {
		t.Errorf("%d chunks are left of the rejected group, %v", chunks, err)
	}
	reader := openReader(t, o)
	checkDocument(t, reader, "a", "2")
	checkDocument(t, reader, "c", "4")
}

// The lock of the file is the lease: who has it waits for no lease of a process
// that is gone.
func TestExclusiveFreesLeases(t *testing.T) {
	o := newFile(t)
	first := open(t, o)
	own := lobtest.NewOwner(t, first, 1)
	own.Flush(t, own.Append("k", lobtest.Text(1, "<a/>")))
	if _, err := first.Attend(t.Context(), lobwriter.Member{ID: "00000000000000aa"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	second := lobwriter.ClaimRequest{Partition: 1, MemberID: "00000000000000bb", ClaimID: "00000000000000dd", Lease: time.Hour}
	if _, err := first.Claim(t.Context(), second); lobwriter.KindOf(err) != lobwriter.Held {
		t.Fatalf("error %v, want one of kind held", err)
	}

	o.Exclusive = true
	s := open(t, o)
	c, err := s.Claim(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	if c.Fence.Epoch != own.Claim.Fence.Epoch+1 || c.Fence.Checkpoint != lobtest.At(1) {
		t.Errorf("claimed %+v", c.Fence)
	}
	live, err := s.Attend(t.Context(), lobwriter.Member{ID: second.MemberID}, time.Hour)
	if err != nil || len(live.Members) != 1 {
		t.Errorf("live are %v, %v", live, err)
	}
	_, err = first.Flush(t.Context(), own.NewFlush())
	if lobwriter.KindOf(err) != lobwriter.Fenced {
		t.Errorf("the process that was gone flushes: %v", err)
	}
}

// Any client of SQLite reads whole documents from the view.
func TestTexts(t *testing.T) {
	o := newFile(t)
	own := lobtest.NewOwner(t, open(t, o), 1)
	long := strings.Repeat("é€😊", 20_000)
	own.Flush(t, own.Append("long", lobtest.Final(1, long)), own.Append("empty", lobtest.Text(2, "")))
	own.Flush(t, own.Append("holed", lobtest.Text(3, "<a>"), lobtest.Hole(4), lobtest.Final(5, "</a>")))
	found, err := behind(t, o.Path).QueryContext(t.Context(), "select doc_key, state, bytes, text from lobsink_texts")
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	got := map[string]string{}
	for found.Next() {
		var key, state, text string
		var size int
		if err := found.Scan(&key, &state, &size, &text); err != nil {
			t.Fatal(err)
		}
		if size != len(text) {
			t.Errorf("%s has %d bytes, the row says %d", key, len(text), size)
		}
		got[key] = state + ": " + text
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"long": "complete: " + long, "empty": "open: ", "holed": "incomplete: <a></a>"}
	for key := range want {
		if got[key] != want[key] {
			t.Errorf("%s: %.60q, want %.60q", key, got[key], want[key])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d documents, want %d", len(got), len(want))
	}
}

// BenchmarkFlush: 64 documents grow by 32 KiB with each flush.
func BenchmarkFlush(b *testing.B) {
	for _, size := range []struct{ documents, bytes int }{{64, 32 << 10}, {128, 32 << 10}, {256, 32 << 10}, {1024, 4 << 10}, {1, 32 << 10}} {
		b.Run(fmt.Sprintf("%dx%dKiB", size.documents, size.bytes>>10), func(b *testing.B) {
			s := open(b, newFile(b))
			own := lobtest.NewOwner(b, s, 1)
			text := strings.Repeat("<line>some text of a document</line>\n", 1+size.bytes/37)[:size.bytes]
			b.SetBytes(int64(size.documents * size.bytes))
			seq := uint64(0)
			for b.Loop() {
				b.StopTimer()
				groups := make([]lobwriter.Group, size.documents)
				for i := range groups {
					seq++
					groups[i] = own.Append(fmt.Sprint("document-", i), lobtest.Text(seq, text))
				}
				b.StartTimer()
				own.Flush(b, groups...)
			}
		})
	}
}

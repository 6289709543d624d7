package lobtest

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/lobsink/lobsink/lobwriter"
)

// TestFailing/O19: each call of a run fails once, before it happens or after it
// was committed. The documents are exact every time.
func TestFailing(t *testing.T) {
	for name, fault := range map[string]Fault{
		"before the call":   {Err: errors.New("connection refused")},
		"lost reply/O19":    {Err: errors.New("unexpected EOF"), Committed: true},
		"no room":           {Err: &lobwriter.Error{Kind: lobwriter.Space, Op: "flush", Err: errors.New("disk full")}},
		"no room, they say": {Err: &lobwriter.Error{Kind: lobwriter.Space, Op: "flush", Err: errors.New("disk full")}, Committed: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 1
				for ; ; n++ {
					m := NewMemory(lobwriter.Limits{Documents: 8, Bytes: 1 << 20, ChunkBytes: 16})
					f := NewFailing(m, Nth(n, fault))
					life(t, m, lobwriter.Retry(f, lobwriter.RetryOptions{}))
					if f.Calls() < n {
						break
					}
				}
				if n < 10 {
					t.Errorf("a run has only %d calls", n-1)
				}
			})
		})
	}
}

// life is a short life of an owner that makes every call.
func life(t *testing.T, r lobwriter.Reader, s lobwriter.Store) {
	t.Helper()
	ctx := t.Context()
	if _, err := s.Attend(ctx, ada, Lease); err != nil {
		t.Fatal(err)
	}
	o := NewOwner(t, s, 1)
	rows, err := s.Rows(ctx, 1, []string{"k"})
	if err != nil {
		t.Fatal(err)
	}
	o.Rows["k"] = rows[0]
	want := ""
	for seq := uint64(1); seq <= 6; seq += 2 {
		piece := fmt.Sprintf("<piece n='%d'/>", seq)
		if _, err := o.Deliver(ctx, o.Append("k", Text(seq, piece), Text(seq+1, "é")), o.Append(fmt.Sprint("other ", seq), Text(seq, piece))); err != nil {
			t.Fatal(err)
		}
		want += piece + "é"
	}
	got, err := s.Renew(ctx, o.Claim, Lease)
	if err != nil || got.Flush != o.Number || got.Checkpoint != At(6) {
		t.Fatalf("renewed: %+v, %v", got, err)
	}
	if got, err := s.Fence(ctx, 1); err != nil || got.Flush != o.Number {
		t.Fatalf("fence: %+v, %v", got, err)
	}
	if err := s.Release(ctx, o.Claim); err != nil {
		t.Fatal(err)
	}
	if err := s.Leave(ctx, ada.ID); err != nil {
		t.Fatal(err)
	}
	CheckDocument(t, r, lobwriter.Runes, "k", want)
}

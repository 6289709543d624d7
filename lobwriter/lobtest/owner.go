package lobtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
)

// Lease is the lease of an Owner's claim: long enough never to run out in a
// test.
const Lease = time.Hour

// stream is what Bind binds a set of tables to.
var stream = lobwriter.Stream{Name: "FRAGMENTS", Created: 1_700_000_000_000_000_000, Partitions: 4}

// Bind binds the tables of a store to a stream named FRAGMENTS with 4
// partitions, and returns the binding.
func Bind(t testing.TB, s lobwriter.Store) lobwriter.Binding {
	t.Helper()
	b, err := s.Bind(t.Context(), stream)
	if err != nil {
		t.Fatalf("bind: %v", err)
	}
	return b
}

// Owner holds a claim and flushes under it, remembering what it believes to be
// stored. It is for one goroutine.
type Owner struct {
	Store lobwriter.Store
	Claim lobwriter.Claim
	// Number is the flush number that the next flush carries.
	Number int64
	// Rows is what the owner believes to be stored, by key.
	Rows map[string]lobwriter.Row
}

// NewOwner binds the tables, if they are not bound yet, and claims a partition
// for a member of its own.
func NewOwner(t testing.TB, s lobwriter.Store, partition int) *Owner {
	t.Helper()
	Bind(t, s)
	c, err := s.Claim(t.Context(), lobwriter.ClaimRequest{
		Partition: partition, MemberID: "00000000000000aa", ClaimID: "00000000000000cc", Lease: Lease,
	})
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	return &Owner{Store: s, Claim: c, Rows: map[string]lobwriter.Row{}}
}

// Append builds a group that appends fragments to the row that the owner
// believes in.
func (o *Owner) Append(key string, fragments ...batcher.Fragment) lobwriter.Group {
	return NewGroup(o.Store.Limits(), o.Claim.Fence.Life, key, o.Rows[key], fragments...)
}

// NewFlush builds the owner's next flush. Its checkpoint and highest are the
// highest sequence of the groups.
func (o *Owner) NewFlush(groups ...lobwriter.Group) *lobwriter.Flush {
	f := &lobwriter.Flush{
		Partition: o.Claim.Partition, Life: o.Claim.Fence.Life, Epoch: o.Claim.Fence.Epoch,
		ClaimID: o.Claim.Fence.ClaimID, Number: o.Number, Groups: groups,
	}
	for i := range groups {
		if p := At(groups[i].Last); p.Seq > f.Highest.Seq {
			f.Checkpoint, f.Highest = p, p
		}
	}
	return f
}

// Flush sends the owner's next flush, takes the answers over, and returns the
// receipt. An error ends the test.
func (o *Owner) Flush(t testing.TB, groups ...lobwriter.Group) lobwriter.Receipt {
	t.Helper()
	f := o.NewFlush(groups...)
	r, err := o.Store.Flush(t.Context(), f)
	if err != nil {
		t.Fatalf("flush: %v", err)
	}
	if len(r.Answers) != len(groups) {
		t.Fatalf("flush of %d groups has %d answers", len(groups), len(r.Answers))
	}
	o.Settle(f, r)
	return r
}

// Settle takes over what a receipt says of a flush.
func (o *Owner) Settle(f *lobwriter.Flush, r lobwriter.Receipt) {
	o.Number = r.Number
	for i, a := range r.Answers {
		row := a.Row
		if a.Status == lobwriter.Appended {
			row = f.Groups[i].After
		}
		o.Rows[f.Groups[i].Key] = row
	}
}

// NewGroup builds the group that appends fragments to a believed row.
func NewGroup(l lobwriter.Limits, life int64, key string, believed lobwriter.Row, fragments ...batcher.Fragment) lobwriter.Group {
	size := 0
	for i := range fragments {
		size += len(fragments[i].Text())
	}
	chunks := lobwriter.Cut(func(yield func([]byte) bool) {
		for i := range fragments {
			if !yield(fragments[i].Text()) {
				return
			}
		}
	}, size, l.ChunkBytes)
	return lobwriter.Group{
		Key: key, Believed: believed, After: believed.Append(life, l.Unit, fragments, chunks),
		First: fragments[0].Seq, Last: fragments[len(fragments)-1].Seq, Chunks: chunks,
	}
}

// Text is a fragment that keeps the rules.
func Text(seq uint64, text string) batcher.Fragment {
	return batcher.Fragment{Seq: seq, Time: At(seq).Time, Data: []byte(text)}
}

// Final is a fragment that completes its document.
func Final(seq uint64, text string) batcher.Fragment {
	f := Text(seq, text)
	f.Final = true
	return f
}

// Hole is a fragment that broke a rule.
func Hole(seq uint64) batcher.Fragment {
	f := Text(seq, "")
	f.Hole = &batcher.Reason{Code: "invalid-utf8", Text: fmt.Sprintf("byte %d", seq)}
	return f
}

// At is the position of a sequence in the stream of the tests: a message a
// second.
func At(seq uint64) lobwriter.Position {
	if seq == 0 {
		return lobwriter.Position{}
	}
	return lobwriter.Position{Seq: seq, Time: stream.Created + int64(seq)*int64(time.Second)}
}

// Deliver sends groups as the owner's next flush, as an owner does whose replies
// get lost: a flush that turns out to be committed already is sent again under
// the next number, so that its groups are answered.
func (o *Owner) Deliver(ctx context.Context, groups ...lobwriter.Group) (lobwriter.Receipt, error) {
	for {
		f := o.NewFlush(groups...)
		r, err := o.Store.Flush(ctx, f)
		var fenced *lobwriter.FencedError
		if errors.As(err, &fenced) && fenced.Stored.Epoch == f.Epoch && fenced.Stored.ClaimID == f.ClaimID && fenced.Stored.Flush == f.Number+1 {
			o.Number = fenced.Stored.Flush
			continue
		}
		if err == nil {
			o.Settle(f, r)
		}
		return r, err
	}
}

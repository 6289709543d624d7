package consumer

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
)

// driven is a Partition with a test in place of its shell.
type driven struct {
	t       *testing.T
	p       *Partition
	now     time.Time
	pending []Action // what the Partition wants and the test has not taken
	stream  StreamFacts
	fence   lobwriter.Fence
	seq     uint64 // consumer sequence
}

const driveLease = 10 * time.Second

func drive(t *testing.T, change ...func(*Options)) *driven {
	o := Options{
		Binding: lobwriter.Binding{Stream: lobwriter.Stream{Name: "FRAGMENTS", Created: 1000, Partitions: 2}, Life: 1},
		Batch:   batcher.Limits{ChunkBytes: 64},
		Flush:   lobwriter.Limits{Documents: 4, Bytes: 100, ChunkBytes: 64},
		// A message of the tests has a few bytes.
		MaxMessage: 1000, Rows: 1 << 20,
		Lease: driveLease, Renew: 3 * time.Second, Quiet: 5 * time.Second,
	}
	for _, c := range change {
		c(&o)
	}
	d := &driven{t: t, p: New(o), now: start, stream: StreamFacts{Created: 1000, First: 1}}
	d.fence = lobwriter.Fence{Life: 1, Epoch: 7, ClaimID: "00000000000000aa"}
	d.p.Allow(1 << 20)
	return d
}

// collect takes over what the Partition wants.
func (d *driven) collect() { d.pending = append(d.pending, d.p.Actions()...) }

// want takes the next action of a kind; the test ends when there is none.
func want[A Action](d *driven) A {
	d.t.Helper()
	d.collect()
	for i, a := range d.pending {
		if a, ok := a.(A); ok {
			d.pending = append(d.pending[:i:i], d.pending[i+1:]...)
			return a
		}
	}
	var none A
	d.t.Fatalf("no %T among %s", none, kinds(d.pending))
	return none
}

// none ends the test if there is an action of a kind.
func none[A Action](d *driven) {
	d.t.Helper()
	d.collect()
	for _, a := range d.pending {
		if a, ok := a.(A); ok {
			d.t.Fatalf("unwanted %T: %+v", a, a)
		}
	}
}

func kinds(actions []Action) string {
	var out []string
	for _, a := range actions {
		out = append(out, fmt.Sprintf("%T", a))
	}
	return "[" + strings.Join(out, " ") + "]"
}

func (d *driven) pass(t time.Duration) *driven {
	d.now = d.now.Add(t)
	return d
}

// claim brings the Partition up to an inspection.
func (d *driven) claim() *driven {
	d.t.Helper()
	d.p.Connected(d.now, true)
	a := want[DoClaim](d)
	d.p.Claimed(d.now, a.Turn, d.now, lobwriter.Claim{Fence: d.fence}, nil)
	return d
}

func (d *driven) inspect() Inspection {
	in := Inspection{StreamFacts: d.stream}
	if ck := d.fence.Checkpoint; ck.Seq >= d.stream.First {
		in.CheckpointTime = ck.Time
	}
	if h := d.fence.Highest; h.Seq >= d.stream.First {
		in.HighestTime = h.Time
	}
	return in
}

// own brings the Partition up to reading.
func (d *driven) own() *driven {
	d.t.Helper()
	d.claim()
	d.p.Inspected(d.now, want[DoInspect](d).Turn, d.inspect(), nil)
	d.p.Opened(d.now, want[DoOpen](d).Turn, nil)
	if d.collect(); len(d.pending) > 0 {
		if _, ok := d.pending[0].(DoInspect); ok {
			d.p.Inspected(d.now, want[DoInspect](d).Turn, d.inspect(), nil)
		}
	}
	d.p.Confirmed(d.now, want[DoConfirm](d).Turn, d.fence, nil)
	want[DoSweep](d)
	want[DoFetch](d)
	d.seq = 0
	return d
}

func at(seq uint64) lobwriter.Position { return lobwriter.Position{Seq: seq, Time: int64(seq) * 10} }

// fragment is message seq of a document.
func fragment(seq uint64, key, text string) Received {
	return Received{Fragment: batcher.Fragment{Key: key, Seq: seq, Time: at(seq).Time, Data: []byte(text)}, Deliveries: 1}
}

func finalFragment(seq uint64, key, text string) Received {
	r := fragment(seq, key, text)
	r.Fragment.Final = true
	return r
}

func orphan(seq uint64, text string) Received {
	r := fragment(seq, "", text)
	r.Orphan = true
	r.Fragment.Hole = &batcher.Reason{Code: CodeBadKey, Text: "not canonical"}
	return r
}

// receive brings messages, numbered by their consumer.
func (d *driven) receive(batch ...Received) *driven {
	for i := range batch {
		d.seq++
		batch[i].Consumer = d.seq
		d.stream.Last = at(max(d.stream.Last.Seq, batch[i].Fragment.Seq))
	}
	d.p.Received(d.now, d.p.Turn(), batch)
	return d
}

// commit answers the flush under way: every group appended, unless said
// otherwise.
func (d *driven) commit(other ...lobwriter.Answer) *lobwriter.Flush {
	d.t.Helper()
	f := want[DoFlush](d).Flush
	d.answer(f, other...)
	return f
}

func (d *driven) answer(f *lobwriter.Flush, other ...lobwriter.Answer) {
	r := lobwriter.Receipt{Number: f.Number + 1, Checkpoint: d.fence.Checkpoint}
	all := true
	for i := range f.Groups {
		a := lobwriter.Answer{Status: lobwriter.Appended}
		if i < len(other) {
			a = other[i]
		}
		all = all && (a.Status == lobwriter.Appended || a.Status == lobwriter.AlreadyThere)
		r.Answers = append(r.Answers, a)
	}
	if all && f.Checkpoint.Seq > r.Checkpoint.Seq {
		r.Checkpoint = f.Checkpoint
	}
	if f.Highest.Seq > d.fence.Highest.Seq {
		d.fence.Highest = f.Highest
	}
	d.fence.Flush, d.fence.Checkpoint = r.Number, r.Checkpoint
	d.p.Flushed(d.now, d.p.Turn(), r, nil)
}

// dropped ends the test unless the turn was dropped for a reason.
func (d *driven) dropped(why Doubt) {
	d.t.Helper()
	a := want[DoDrop](d)
	if a.Reason != why {
		d.t.Fatalf("dropped for %q (%s), want %q", a.Reason, a.Detail, why)
	}
	if d.p.Owning() || d.p.Bytes() != 0 {
		d.t.Fatalf("owning %t with %d bytes after a doubt", d.p.Owning(), d.p.Bytes())
	}
}

var errNobody = errors.New("nobody answers")

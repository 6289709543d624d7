package consumer

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/maphash"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

// The exhaustive search: a case so small that all its interleavings can be
// walked. Two members share one partition, of which a few messages are
// published; Partition, batcher and reference store are the shipped ones. The
// search goes breadth first, so the trace of a broken rule is a shortest one. In
// the end it looks whether from every state that it met a good end can be
// reached without a further fault.
//
//	explore_test.go          the cases, and what must hold in every state
//	explore_search_test.go   the search
//	explore_steps_test.go    what can happen in a state, faults among it
//	explore_owner_test.go    what happens to an owner's process and connection
//	explore_request_test.go  what an owner asks for, and what it is told
//	explore_state_test.go    a state: stream, consumers, owners, requests, database
//	explore_shape_test.go    copies states and tells them apart
//
// Time does not pass by itself: what waits for a time may happen at any moment.
// So all waits, clocks and speeds are covered, but none is measured.

var (
	explore      = flag.String("explore", "short", "which cases TestExplore searches: short, long, or the name of one")
	exploreTrace = flag.Bool("explore-trace", false, "tell how far TestExplore is")
	exploreLimit = flag.Int("explore-limit", 40_000_000, "the most states of one case")
)

// exCase is one case to search.
type exCase struct {
	name string
	long bool // not in the short form
	only bool // only when it is asked for by name
	// documents has the document of each message, "-" for one of another
	// partition.
	documents string
	published int // so many before the start
	faults    exBudget
	// slowDelivery: a message may have reached an owner that has not received it
	// yet.
	slowDelivery bool
	// toldLate: the server may tell a consumer of a message long after it was
	// stored.
	toldLate bool
	// slowSweep: a sweep may come at any later time.
	slowSweep bool
	// keepAll: also what the store should refuse for good is kept on its way.
	keepAll bool
	// perFlush is how many documents one flush takes.
	perFlush int
}

func (c *exCase) batch() batcher.Limits { return batcher.Limits{ChunkBytes: 1000} }

func (c *exCase) limits() lobwriter.Limits {
	return lobwriter.Limits{Documents: c.perFlush, Bytes: 1000, ChunkBytes: 1000}
}

func faultBudget(n map[int]int8) (b exBudget) {
	for f, times := range n {
		b[f] = times
	}
	return b
}

type faultsOf = map[int]int8

func exCases() []exCase {
	return []exCase{
		{name: "crash and publish", documents: "xyx", perFlush: 4, faults: faultBudget(faultsOf{faultCrash: 1})},
		{name: "told late", documents: "xyx", published: 1, perFlush: 1, toldLate: true, faults: faultBudget(faultsOf{faultCrash: 1})},
		{name: "crash and lose", documents: "xyx", published: 3, perFlush: 4, faults: faultBudget(faultsOf{faultCrash: 1, faultLose: 1})},
		{name: "freeze and lose", documents: "xyx", published: 3, perFlush: 4, faults: faultBudget(faultsOf{faultFreeze: 1, faultLose: 1})},
		{name: "crash and freeze", documents: "xyx", published: 3, perFlush: 1, faults: faultBudget(faultsOf{faultCrash: 1, faultFreeze: 1})},
		{name: "expire and lose", documents: "xyx", published: 3, perFlush: 4, faults: faultBudget(faultsOf{faultExpire: 1, faultLose: 1})},
		{name: "cut and delete", documents: "xyx", published: 3, perFlush: 4, faults: faultBudget(faultsOf{faultCut: 1, faultDelete: 1})},
		{name: "drop and crash", documents: "xyx", published: 3, perFlush: 4, faults: faultBudget(faultsOf{faultDrop: 1, faultCrash: 1})},
		{name: "redeliver and crash", documents: "xyx", published: 3, perFlush: 4, faults: faultBudget(faultsOf{faultRedeliver: 1, faultCrash: 1})},
		{name: "tail", documents: "x-y", published: 2, perFlush: 4, faults: faultBudget(faultsOf{faultTail: 1})},
		{name: "rewind", documents: "xyx", published: 3, perFlush: 4, faults: faultBudget(faultsOf{faultRewind: 1})},
		{name: "give up and stop", documents: "xyx", published: 2, perFlush: 1, faults: faultBudget(faultsOf{faultGiveUp: 1, faultStop: 1})},
		{name: "crash, freeze, lose", documents: "xyx", published: 3, perFlush: 4, faults: faultBudget(faultsOf{faultCrash: 1, faultFreeze: 1, faultLose: 1})},
		{name: "crash, expire, lose", long: true, documents: "xyx", published: 3, perFlush: 4, faults: faultBudget(faultsOf{faultCrash: 1, faultExpire: 1, faultLose: 1})},
		{name: "drop and crash, slowly", long: true, documents: "xyx", published: 3, perFlush: 4, slowDelivery: true, slowSweep: true, faults: faultBudget(faultsOf{faultDrop: 1, faultCrash: 1})},
		{name: "crash twice, lose", long: true, documents: "xyx", published: 3, perFlush: 4, faults: faultBudget(faultsOf{faultCrash: 2, faultLose: 1})},
		{name: "tail and crash", long: true, documents: "x-y", published: 2, perFlush: 4, faults: faultBudget(faultsOf{faultTail: 1, faultCrash: 1})},
		{name: "rewind and crash", long: true, documents: "xyx", published: 3, perFlush: 4, faults: faultBudget(faultsOf{faultRewind: 1, faultCrash: 1})},
		{name: "rewind and expire", long: true, documents: "xyx", published: 3, perFlush: 4, faults: faultBudget(faultsOf{faultRewind: 1, faultExpire: 1})},
		{name: "rewind and lose", long: true, documents: "xyx", published: 3, perFlush: 4, faults: faultBudget(faultsOf{faultRewind: 1, faultLose: 1})},
		{name: "give up and lose", long: true, documents: "xyx", published: 2, perFlush: 1, faults: faultBudget(faultsOf{faultGiveUp: 1, faultLose: 1})},
		{name: "sabotage: expire", only: true, documents: "xyx", published: 2, perFlush: 4, keepAll: true, faults: faultBudget(faultsOf{faultExpire: 1})},
		{name: "sabotage: rewind", only: true, documents: "xyx", published: 3, perFlush: 1, keepAll: true, faults: faultBudget(faultsOf{faultRewind: 1, faultExpire: 1})},
	}
}

func TestExplore(t *testing.T) {
	if raceDetector && *explore == "short" {
		// A search has one goroutine, and the race detector makes it ten times as slow.
		cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-run=^TestExplore$", "-v", ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if t.Logf("%s", out); err != nil {
			t.Fatal(err)
		}
		return
	}
	found := false
	for _, c := range exCases() {
		if c.name == *explore || !c.only && (*explore == "long" || *explore == "short" && !c.long) {
			found = true
			t.Run(c.name, func(t *testing.T) { newExplorer(c).run(t) })
		}
	}
	if !found {
		t.Fatalf("no case is called %q", *explore)
	}
}

// explorer searches one case.
type explorer struct {
	cfg     exCase
	binding lobwriter.Binding
	namer   *owner // which names the consumers of claims
	shared  bool   // consumers of different claims have one name
	memory  *lobtest.Memory
	empty   lobtest.Snapshot
	copier  copier
	encoder *encoder
	seed    maphash.Seed

	fate     claimFate // of the next claim
	loseLook bool      // the next look is not answered
	ids      int
	fresh    [2]bool // which owners of the state being made are its own

	tracing bool
	line    strings.Builder

	seen   map[uint64]uint32
	parent []uint32
	hashes []uint64
	goods  []bool
	edges  struct{ from, to []uint32 } // without a fault
}

func newExplorer(c exCase) *explorer {
	all := shapes{}
	x := &explorer{
		cfg: c, seed: maphash.MakeSeed(), seen: map[uint64]uint32{},
		memory: lobtest.NewMemory(c.limits()), encoder: newEncoder(all),
		copier: copier{shapes: all, copied: map[unsafe.Pointer]unsafe.Pointer{}},
	}
	var err error
	x.binding, err = x.memory.Bind(context.Background(), lobwriter.Stream{Name: "FRAGMENTS", Created: exCreated, Partitions: 1})
	if err != nil {
		panic(err)
	}
	x.empty = x.memory.Snapshot()
	x.namer = &owner{member: &member{binding: x.binding}}
	name := func(n int64) string {
		return x.namer.consumerName(lobwriter.Claim{Fence: lobwriter.Fence{Epoch: n, ClaimID: fmt.Sprintf("%08d%08d", n, n)}})
	}
	x.shared = name(1) == name(2)
	return x
}

// id draws an ID that was never drawn before.
func (x *explorer) id() string {
	x.ids++
	return fmt.Sprintf("%08x%08x", x.ids, x.ids)
}

// first is the state in which nothing has happened.
func (x *explorer) first() *exState {
	s := &exState{dbNow: exDatabaseNow, left: x.cfg.faults}
	x.memory.Restore(x.empty)
	x.stored(s)
	for i := range s.owners {
		s.owners[i] = &exOwner{}
	}
	for range x.cfg.published {
		x.publish(s)
	}
	x.fresh = [2]bool{true, true}
	for i := range s.owners {
		x.begin(s, s.owners[i])
		x.settle(s, i)
	}
	return s
}

// fork makes the state that follows, equal so far.
func (x *explorer) fork(s *exState) *exState {
	n := *s
	n.consumers = slices.Clone(s.consumers)
	x.fresh = [2]bool{}
	x.fate, x.loseLook = claimAnswered, false
	x.line.Reset()
	return &n
}

// own returns an owner of a state that is being made, for changing.
func (x *explorer) own(n *exState, i int) *exOwner {
	if !x.fresh[i] {
		x.fresh[i] = true
		n.owners[i] = deepCopy(&x.copier, n.owners[i])
	}
	return n.owners[i]
}

// store returns the reference store with the content of a state.
func (x *explorer) store(n *exState) *lobtest.Memory {
	x.memory.Restore(n.db)
	x.memory.Now = func() int64 { return n.dbNow }
	return x.memory
}

// stored takes over what the reference store holds now.
func (x *explorer) stored(n *exState) {
	var err error
	n.db = x.memory.Snapshot()
	if n.fence, err = x.memory.Fence(context.Background(), 0); err != nil {
		x.fail("fence: %v", err)
	}
}

func (x *explorer) fail(format string, a ...any) { panic(violation(fmt.Sprintf(format, a...))) }

func (x *explorer) guarded(step func()) (broken string) {
	defer func() {
		if r := recover(); r != nil {
			v, ok := r.(violation)
			if !ok {
				panic(r)
			}
			broken = string(v)
		}
	}()
	step()
	return ""
}

func (x *explorer) note(format string, a ...any) {
	if x.tracing {
		fmt.Fprintf(&x.line, format, a...)
		x.line.WriteByte(' ')
	}
}

// checkStored: every document is the concatenation of its fragments in stream
// order up to its mark, and everything up to the checkpoint is stored. After a
// lost tail that the database shows, everybody stops and an operator decides.
func (x *explorer) checkStored(n *exState) {
	f := n.fence
	if n.mismatched() {
		return
	}
	x.store(n)
	for key, want := range x.wanted(n) {
		row, text := x.document(key)
		expected := ""
		for _, m := range want {
			if m.Seq <= row.Mark.Seq {
				expected += string(m.Data)
			} else if m.Seq <= f.Checkpoint.Seq {
				x.fail("the checkpoint is %d, but message %d of %q is not stored", f.Checkpoint.Seq, m.Seq, key)
			}
		}
		if text != expected {
			x.fail("document %q (mark %d) is %q, should be %q", key, row.Mark.Seq, text, expected)
		}
	}
}

// wanted are the fragments of each document.
func (x *explorer) wanted(n *exState) map[string][]batcher.Fragment {
	out := map[string][]batcher.Fragment{}
	for _, f := range n.stream {
		if mine(&f) {
			out[f.Key] = append(out[f.Key], f)
		}
	}
	return out
}

func (x *explorer) document(key string) (lobwriter.Row, string) {
	var text []byte
	d, err := x.memory.Read(context.Background(), key, func(piece []byte) error {
		text = append(text, piece...)
		return nil
	})
	if err != nil && !errors.Is(err, lobwriter.ErrNotFound) {
		x.fail("read: %v", err)
	}
	return d.Row, string(text)
}

// good: everything published is stored, the checkpoint is at the stream's end,
// and the owner of the current claim has acknowledged all that it received. Or
// the stream is another one, and everybody stops.
func (x *explorer) good(n *exState) bool {
	if len(n.stream) < len(x.cfg.documents) {
		return false
	}
	if n.mismatched() {
		return true
	}
	o := n.holder()
	if n.fence.Checkpoint.Seq < n.last() || o == nil || !o.part.Owning() {
		return false
	}
	x.store(n)
	for key, want := range x.wanted(n) {
		if row, _ := x.document(key); row.Mark.Seq < want[len(want)-1].Seq {
			return false
		}
	}
	c := n.consumer(o.consumerName)
	return c != nil && c.floor == len(c.sent)
}

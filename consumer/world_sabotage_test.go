package consumer

import (
	"flag"
	"testing"

	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

var sabotageAll = flag.Bool("sabotage", false, "leave out every rule of the protocol once, not only two of them; takes minutes")

// edit replaces a piece of a source file, which must be there once.
type edit struct{ file, old, new string }

// memory is the reference store.
const memory = "../lobwriter/lobtest/memory.go"

// sabotages leave one rule out each. Where a second rule guards the same, both
// are left out: what is shown is that somebody would notice.
var sabotages = []struct {
	rule  string
	edits []edit
	// noticed matches what the seeded world, or the exhaustive search, must say.
	noticed string
	// search is the case of the exhaustive search that has to notice; "": the
	// seeded world has to.
	search string
}{
	{"acknowledge only what the committed checkpoint covers", []edit{
		{"receive.go", "ck := p.fence.Checkpoint.Seq\n\ti := sort", "ck := p.last.Seq\n\ti := sort"},
	}, `acknowledges message`, ""},
	{"the checkpoint stays below what is held", []edit{
		{"receive.go", "\tif !held {\n\t\tif p.idle", "\tif true {\n\t\tif p.idle"},
	}, `the checkpoint is \d+, but message`, ""},
	{"the checkpoint stands on a received message", []edit{
		{"receive.go", "\treturn p.received[i-1]\n", "\treturn lobwriter.Position{Seq: low - 1, Time: p.last.Time}\n"},
	}, `the checkpoint is \d+, but no such message`, ""},
	{"a message without a key holds the checkpoint", []edit{
		{"receive.go", "\tfor i := range p.orphans {\n\t\tlower(p.orphans[i].Seq)\n", "\tfor range p.orphans {\n"},
	}, `without a key is not in the dead letters`, ""},
	{"an unknown outcome is followed by the identical flush", []edit{
		{"receipt.go", "\tp.do(DoFlush{Turn: p.turn, Flush: p.flight.flush})\n", "\tfor _, w := range p.flight.works {\n\t\tw.stage = ready\n\t}\n\tp.flight = nil\n\tp.take(now)\n\tp.send()\n"},
	}, `another flush was sent`, ""},
	{"what is stored already is dropped on receipt, and a group begins above the mark", []edit{
		{"receive.go", "case known && !row.Mark.Before(p.mark(f.Seq)):", "case false && !row.Mark.Before(p.mark(f.Seq)), false && known:"},
		{"flush.go", "First: w.group.First(), Last", "First: w.group.Last(), Last"},
	}, `document`, ""},
	{"consumer sequences are contiguous", []edit{
		{"receive.go", "case r.Consumer != p.lastConsumer+1:", "case r.Consumer <= p.lastConsumer:"},
		{"receive.go", "case l.Delivered != p.lastConsumer:", "case l.Delivered < p.lastConsumer:"},
	}, `document|the checkpoint is \d+, but message`, ""},
	{"a quiet owner compares what was delivered", []edit{
		{"receive.go", "case l.Delivered != p.lastConsumer:", "case false:"},
	}, `the checkpoint is \d+, not \d+`, ""},
	{"a replicated stream vouches for its end one look later", []edit{
		{"receive.go", `case l.Leader == "" && !l.More:`, `case !l.More:`},
	}, `document|the checkpoint is`, ""},
	{"the end is where nothing of the partition follows", []edit{
		{"receive.go", `case l.Leader == "" && !l.More:`, `case l.Leader == "":`},
	}, `the checkpoint is \d+, but message`, "told late"},
	{"a turn reads over one connection", []edit{
		{"receive.go", "case r.Connection != p.connection:", "case false:"},
	}, `document|the checkpoint is`, ""},
	{"a redelivered message is doubt, and sequences rise", []edit{
		{"receive.go", "case f.Seq <= p.known():", "case false:"},
		{"receive.go", "case r.Deliveries != 1:", "case false:"},
		{"receive.go", `case l.Changed != "":`, `case l.Changed == "deleted":`},
	}, `document|panic|a flush that no owner may send|the edited consumer`, ""},
	{"a renewal reads the fence row", []edit{
		{"partition.go", "case expected >= 0 && p.flight == nil && p.fence.Flush == expected && f.Flush != expected:", "case expected < -1:"},
		{"partition.go", "\tcase !p.isCurrent(f):\n\t\tp.doubt(now, DoubtDatabase", "\tcase false:\n\t\tp.doubt(now, DoubtDatabase"},
	}, `not settled`, ""},
	{"the stored row comes back with already there and stale", []edit{
		{"receipt.go", "\tp.rows.put(w.group.Key, stored)\n\tthrough := uint64(0)\n", "\tstored = w.sent.After\n\tthrough := uint64(0)\n"},
	}, `document|the checkpoint is|not settled`, ""},
	{"the highest stored message is a witness", []edit{
		{"obstacle.go", `witness("the highest ever stored", f.Highest, in.HighestTime)`, `witness("the highest ever stored", lobwriter.Position{}, in.HighestTime)`},
		{"receive.go", " || l.Last.Seq < p.fence.Highest.Seq:", ":"},
		{"partition.go", "p.had = max(p.last.Seq, p.fence.Highest.Seq)", "p.had = p.last.Seq"},
	}, `document|not settled|the checkpoint is`, ""},
	{"the checkpoint's message is a witness, and so is the highest", []edit{
		{"obstacle.go", "func(what string, at lobwriter.Position, found int64) error {\n\t\tswitch {\n", "func(what string, at lobwriter.Position, found int64) error {\n\t\tif what != \"\" {\n\t\t\treturn nil\n\t\t}\n\t\tswitch {\n"},
	}, `document|not settled|the checkpoint is`, ""},
	{"holes are in the dead letters before the flush that records them", []edit{
		{"flush.go", "\t\tw.stage = ready\n\t\tif w.hasHole() {\n\t\t\tw.stage = unsaid\n\t\t}\n", "\t\tw.stage = ready\n"},
	}, `is a hole and not in the dead letters`, ""},
	{"refused groups are in the dead letters before the flush that records them", []edit{
		{"receipt.go", "w.refused, w.state, w.stage = &why, state, unsaid", "w.refused, w.state, w.stage = &why, state, ready"},
	}, `not in the dead letters|nor in the dead letters`, ""},
	{"an owner ends with its lease", []edit{
		{"partition.go", "\tif !p.claimed() || now.Before(p.leaseEnd) {\n", "\tif true || !p.claimed() || now.Before(p.leaseEnd) {\n"},
		{"partition.go", "\tsooner(p.leaseEnd)\n", ""},
	}, `after its lease may have run out`, ""},
	{"after the consumer was created, the stream is inspected again", []edit{
		{"claim.go", "\tp.phase = checking\n\tp.do(DoInspect{Turn: p.turn, Checkpoint: p.fence.Checkpoint, Highest: p.fence.Highest})\n", "\tp.phase = confirming\n\tp.do(DoConfirm{Turn: p.turn})\n"},
	}, `document|the checkpoint is|not settled`, ""},
	{"a claim has a consumer of its own", []edit{
		{"run.go", `return fmt.Sprintf("%s%d-%s", o.consumerPrefix(), c.Fence.Epoch, id[:min(len(id), 8)])`, `return fmt.Sprintf("%s%s", o.consumerPrefix(), id[:0])`},
	}, `document|the checkpoint is|not settled`, ""},
	{"the fence compares epoch and claim ID", []edit{
		{memory, ` || fence.Epoch != f.Epoch || fence.ClaimID != f.ClaimID`, ``},
	}, `commits, but claim`, ""},
	{"the fence compares epoch and claim ID: the search", []edit{
		{memory, ` || fence.Epoch != f.Epoch || fence.ClaimID != f.ClaimID`, ``},
	}, `commits, but claim`, "sabotage: expire"},
	{"the fence compares claim ID", []edit{
		{memory, ` || fence.ClaimID != f.ClaimID`, ``},
	}, `commits, but claim`, "sabotage: rewind"},
	{"the fence compares the flush number", []edit{
		{memory, ` || fence.Flush != f.Number {`, ` {`},
	}, `document|the checkpoint is|the fence row goes`, "sabotage: rewind"},
	{"the fence compares the flush number, and a flush its rows", []edit{
		{memory, ` || fence.Flush != f.Number {`, ` {`},
		{memory, `case !d.Row.Same(g.Believed), !d`, `case !d`},
	}, `document`, ""},
	{"the checkpoint moves only if every group is stored", []edit{
		{memory, `if stored && f.Checkpoint.Seq`, `if f.Checkpoint.Seq`},
	}, `the checkpoint is \d+, but message`, ""},
	{"the checkpoint moves only if every group is stored: the search", []edit{
		{memory, `if stored && f.Checkpoint.Seq`, `if f.Checkpoint.Seq`},
	}, `the checkpoint is \d+, but message`, "crash and lose"},
	{"the fence compares the flush number, and a row behind what was committed is doubt", []edit{
		{memory, ` || fence.Flush != f.Number {`, ` {`},
		{"receipt.go", `if stored.Mark.Before(believed.Mark) || stored.Mark == believed.Mark && stored.Generation == believed.Generation && !stored.Same(believed) {`, `if false {`},
	}, `document|the checkpoint is`, "sabotage: rewind"},
	{"the consumer's own error is doubt, and so is one that is gone", []edit{
		{"receive.go", "\tif err != nil {\n\t\tp.doubt(now, DoubtConsumer, err.Error())\n\t\treturn\n\t}\n", ""},
		{"receive.go", `case l.Changed != "":`, `case l.Changed == "ack_wait":`},
		{"receive.go", `case l.Delivered != p.lastConsumer:`, `case l.Delivered > p.lastConsumer:`},
	}, `not settled`, ""},
}

// TestSabotage shows that the seeded world and the exhaustive search notice when
// a rule is left out.
func TestSabotage(t *testing.T) {
	var list []lobtest.Sabotage
	for _, s := range sabotages {
		out := lobtest.Sabotage{Rule: s.rule, Noticed: s.noticed, Run: "^TestWorld$", Args: []string{"-seeds=20000"}}
		if s.search != "" {
			out.Run, out.Args = "^TestExplore$", []string{"-explore=" + s.search}
		}
		for _, e := range s.edits {
			out.Edits = append(out.Edits, lobtest.Edit{File: e.file, Old: e.old, New: e.new})
		}
		list = append(list, out)
	}
	lobtest.CheckSabotages(t, *sabotageAll, list,
		"an unknown outcome is followed by the identical flush", "the checkpoint moves only if every group is stored: the search")
}

package consumer

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var sabotage = flag.Bool("sabotage", false, "also show that the world notices when a rule of Partition is left out; takes minutes")

// edit replaces a piece of a source file, which must be there once.
type edit struct{ file, old, new string }

// sabotages leave one rule out each. Where a second rule guards the same, both
// are left out: what is shown is that the world would notice.
var sabotages = []struct {
	rule  string
	edits []edit
	// noticed matches what the world must say.
	noticed string
}{
	{"acknowledge only what the committed checkpoint covers", []edit{
		{"receive.go", "ck := p.fence.Checkpoint.Seq\n\ti := sort", "ck := p.last.Seq\n\ti := sort"},
	}, `acknowledges message`},
	{"the checkpoint stays below what is held", []edit{
		{"receive.go", "\tif !held {\n\t\tif p.idle", "\tif true {\n\t\tif p.idle"},
	}, `the checkpoint is \d+, but message`},
	{"the checkpoint stands on a received message", []edit{
		{"receive.go", "\treturn p.received[i-1]\n", "\treturn lobwriter.Position{Seq: low - 1, Time: p.last.Time}\n"},
	}, `the checkpoint is \d+, but no such message`},
	{"a message without a key holds the checkpoint", []edit{
		{"receive.go", "\tfor i := range p.orphans {\n\t\tlower(p.orphans[i].Seq)\n", "\tfor range p.orphans {\n"},
	}, `without a key is not in the dead letters`},
	{"an unknown outcome is followed by the identical flush", []edit{
		{"receipt.go", "\tp.do(DoFlush{Turn: p.turn, Flush: p.flight.flush})\n", "\tfor _, w := range p.flight.works {\n\t\tw.stage = ready\n\t}\n\tp.flight = nil\n\tp.take(now)\n\tp.send()\n"},
	}, `another flush was sent`},
	{"what is stored already is dropped on receipt, and a group begins above the mark", []edit{
		{"receive.go", "case known && !row.Mark.Before(p.mark(f.Seq)):", "case false && !row.Mark.Before(p.mark(f.Seq)), false && known:"},
		{"flush.go", "First: w.group.First(), Last", "First: w.group.Last(), Last"},
	}, `document`},
	{"consumer sequences are contiguous", []edit{
		{"receive.go", "case r.Consumer != p.lastConsumer+1:", "case r.Consumer <= p.lastConsumer:"},
		{"receive.go", "case l.Delivered != p.lastConsumer:", "case l.Delivered < p.lastConsumer:"},
	}, `document|the checkpoint is \d+, but message`},
	{"a quiet owner compares what was delivered", []edit{
		{"receive.go", "case l.Delivered != p.lastConsumer:", "case false:"},
	}, `the checkpoint is \d+, but message`},
	{"on a replicated stream only one unchanged leader vouches for its end", []edit{
		{"receive.go", `p.atEnd(l, l.Leader == "" || known && l.Leader == l.ConsumerLeader)`, `p.atEnd(l, known || true)`},
	}, `document|the checkpoint is`},
	{"a turn reads over one connection", []edit{
		{"receive.go", "case r.Connection != p.connection:", "case false:"},
	}, `document|the checkpoint is`},
	{"a redelivered message is doubt, and sequences rise", []edit{
		{"receive.go", "case f.Seq <= p.known():", "case false:"},
		{"receive.go", "case r.Deliveries != 1:", "case false:"},
		{"receive.go", `case l.Changed != "":`, `case l.Changed == "deleted":`},
	}, `document|panic|a flush that no owner may send|the edited consumer`},
	{"a renewal reads the fence row", []edit{
		{"partition.go", "case expected >= 0 && p.flight == nil && p.fence.Flush == expected && f.Flush != expected:", "case expected < -1:"},
		{"partition.go", "\tcase !p.isCurrent(f):\n\t\tp.doubt(now, DoubtDatabase", "\tcase false:\n\t\tp.doubt(now, DoubtDatabase"},
	}, `not settled`},
	{"the stored row comes back with already there and stale", []edit{
		{"receipt.go", "\tp.rows.put(w.group.Key, stored)\n\tthrough := uint64(0)\n", "\tstored = w.sent.After\n\tthrough := uint64(0)\n"},
	}, `document|the checkpoint is|not settled`},
	{"the highest stored message is a witness", []edit{
		{"claim.go", "witness(\"the highest ever stored\", p.fence.Highest, in.HighestTime)", "witness(\"the highest ever stored\", lobwriter.Position{}, in.HighestTime)"},
		{"receive.go", " || l.Last.Seq < p.fence.Highest.Seq:", ":"},
		{"partition.go", "p.had = max(p.last.Seq, p.fence.Highest.Seq)", "p.had = p.last.Seq"},
	}, `document|not settled|the checkpoint is`},
	{"the checkpoint's message is a witness, and so is the highest", []edit{
		{"claim.go", "func(what string, at lobwriter.Position, found int64) error {\n\t\tswitch {\n", "func(what string, at lobwriter.Position, found int64) error {\n\t\tif what != \"\" {\n\t\t\treturn nil\n\t\t}\n\t\tswitch {\n"},
	}, `document|not settled|the checkpoint is`},
	{"holes are in the dead letters before the flush that records them", []edit{
		{"flush.go", "\t\tw.stage = ready\n\t\tif w.hasHole() {\n\t\t\tw.stage = unsaid\n\t\t}\n", "\t\tw.stage = ready\n"},
	}, `is a hole and not in the dead letters`},
	{"refused groups are in the dead letters before the flush that records them", []edit{
		{"receipt.go", "w.refused, w.state, w.stage = &why, state, unsaid", "w.refused, w.state, w.stage = &why, state, ready"},
	}, `not in the dead letters|nor in the dead letters`},
	{"an owner ends with its lease", []edit{
		{"partition.go", "\tif !p.claimed() || now.Before(p.leaseEnd) {\n", "\tif true || !p.claimed() || now.Before(p.leaseEnd) {\n"},
		{"partition.go", "\tsooner(p.leaseEnd)\n", ""},
	}, `after its lease may have run out`},
	{"after the consumer was created, the stream is inspected again", []edit{
		{"claim.go", "\tp.phase = checking\n\tp.do(DoInspect{Turn: p.turn, Checkpoint: p.fence.Checkpoint, Highest: p.fence.Highest})\n", "\tp.phase = confirming\n\tp.do(DoConfirm{Turn: p.turn})\n"},
	}, `document|the checkpoint is|not settled`},
}

// TestSabotage plays the world with a Partition that lacks a rule.
func TestSabotage(t *testing.T) {
	if !*sabotage {
		t.Skip("needs -sabotage")
	}
	for _, s := range sabotages {
		t.Run(s.rule, func(t *testing.T) {
			out, err := playSabotaged(t, s.edits)
			switch {
			case err == nil:
				t.Fatal("the world did not notice")
			case !strings.Contains(out, "seed ") || !regexp.MustCompile(s.noticed).MatchString(out):
				t.Fatalf("the world failed for another reason:\n%s", out)
			}
			_, first, _ := strings.Cut(out, "seed ")
			first, _, _ = strings.Cut(first, "\n")
			t.Logf("seed %s", first)
		})
	}
}

// playSabotaged runs TestWorld with edited sources.
func playSabotaged(t *testing.T, edits []edit) (string, error) {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for _, e := range edits {
		path, err := filepath.Abs(e.file)
		if err != nil {
			t.Fatal(err)
		}
		from := path
		if copied, ok := replace[path]; ok {
			from = copied
		}
		source, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), e.old); n != 1 {
			t.Fatalf("%s has this %d times; the sabotage has to follow the code: %q", e.file, n, e.old)
		}
		replace[path] = filepath.Join(dir, e.file)
		if err := os.WriteFile(replace[path], []byte(strings.Replace(string(source), e.old, e.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-overlay="+file, "-run=^TestWorld$", "-seeds=4000", ".").CombinedOutput()
	return string(out), err
}

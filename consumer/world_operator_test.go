package consumer

import (
	"context"
	"flag"
	"testing"

	"github.com/lobsink/lobsink/lobwriter"
)

var operatorSeeds = flag.Int("operator-seeds", 1000, "how many seeds TestWorldOperator runs")

// TestWorldOperator: operators act in the seeded world, beside everything else that
// happens there. Documents get new generations and checkpoints go back under members
// that know nothing of it; all that must hold does.
func TestWorldOperator(t *testing.T) {
	var sum tally
	for seed := range uint64(*operatorSeeds) {
		play := func(tracing bool) (*world, error) {
			w := newWorld(seed + 1)
			w.tracing = tracing
			w.scheduleOperator()
			return w, w.run()
		}
		w, err := play(false)
		if err == nil {
			sum.add(w)
			continue
		}
		w, err = play(true)
		t.Fatalf("seed %d: %v\n%s", seed+1, err, w.tail(60))
	}
	t.Log(sum.String())
	for _, what := range []string{"operator: new generations", "operator: checkpoints set back", "operator: documents purged", "groups stale"} {
		if sum.counts[what] == 0 {
			t.Errorf("this never happened: %s", what)
		}
	}
}

// maxGenerations is more than scheduleOperator makes of a document.
const maxGenerations = 9

// scheduleOperator lets an operator act now and then, also after all faults.
func (w *world) scheduleOperator() {
	for range w.between(1, maxGenerations-1) {
		act := w.rebuildSomething
		switch {
		case w.chance(0.4):
			act = w.setCheckpointBack
		case !w.profile.backups && w.chance(0.4): // a backup would have it again
			act = w.purgeSomething
		}
		strike := func() {
			if !w.db.away {
				act()
			}
		}
		at := pick(w, "", "", "claim", "open", "confirm", "fetch", "renew", "read", "letters", "flush", "flush", "ack")
		w.after(w.upTo(w.profile.until), func() {
			if at == "" || w.ambush[at] != nil {
				strike()
			} else {
				w.ambush[at] = strike
			}
		})
	}
}

// rebuildSomething swaps a new generation of a document in, with the same text.
func (w *world) rebuildSomething() {
	ctx := context.Background()
	key := w.profile.keys[w.rng.IntN(len(w.profile.keys))]
	d, text := w.db.document(key)
	if d.Absent() {
		return
	}
	row := d.Row
	row.Generation++
	row.Bytes, row.Units, row.Chunks, row.CRC = 0, 0, 0, 0
	limits := w.profile.flush
	chunks := lobwriter.Cut(func(yield func([]byte) bool) { yield([]byte(text)) }, len(text), limits.ChunkBytes)
	row = row.Grow(limits.Unit, chunks)
	b, err := w.db.store.Build(ctx, 0, key, row.Generation)
	if err != nil {
		panic(err)
	}
	if err := b.Append(ctx, chunks); err != nil {
		panic(err)
	}
	if _, swapped, err := b.Swap(ctx, row, nil); err != nil || !swapped {
		w.fail("document %q, mark %d, cannot be swapped: %v", key, d.Mark.Seq, err)
	}
	w.db.changed++
	w.seen.count("operator: new generations")
	w.note("OPERATOR document %q gets generation %d", key, row.Generation)
	w.checkDocument(key)
}

// purgeSomething deletes a complete document.
func (w *world) purgeSomething() {
	key := w.profile.keys[w.rng.IntN(len(w.profile.keys))]
	d, _ := w.db.document(key)
	if w.mismatched() {
		return
	}
	done, err := w.db.store.Purge(context.Background(), lobwriter.Purge{Keys: []string{key}, State: lobwriter.Complete})
	if err != nil {
		panic(err)
	}
	if done.Documents == 0 {
		return
	}
	if w.purged == nil {
		w.purged = map[string]uint64{}
	}
	w.purged[key] = d.Mark.Seq
	w.db.changed++
	w.seen.count("operator: documents purged")
	w.note("OPERATOR document %q, mark %d, is purged", key, d.Mark.Seq)
}

// setCheckpointBack moves the checkpoint to an earlier message, or before all.
func (w *world) setCheckpointBack() {
	s, f := w.stream, w.db.fence()
	if f.Checkpoint.Seq == 0 || w.mismatched() || w.gap() {
		return
	}
	m := lobwriter.CheckpointMove{Life: f.Life, From: f.Checkpoint, ClaimID: "00000000000000ee"}
	if low := max(s.discarded, 1); low < f.Checkpoint.Seq && (s.discarded > 0 || w.chance(0.8)) {
		m.To.Seq = low + uint64(w.rng.IntN(int(f.Checkpoint.Seq-low)))
		m.To.Time = s.time(m.To.Seq)
	}
	if m.To.Time == 0 && s.discarded > 0 {
		return // it would not be on a message
	}
	switch _, err := w.db.store.MoveCheckpoint(context.Background(), m); {
	case lobwriter.KindOf(err) == lobwriter.Invalid && len(w.purged) > 0:
		w.seen.count("operator: refused to go behind what was purged")
		return
	case err != nil:
		panic(err)
	}
	w.db.owner = m.ClaimID
	w.db.changed++
	w.seen.count("operator: checkpoints set back")
	w.note("OPERATOR the checkpoint goes back from %d to %d", f.Checkpoint.Seq, m.To.Seq)
}

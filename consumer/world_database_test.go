package consumer

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

// simDatabase is the reference store behind a network that delays requests,
// loses them, loses their replies, and delivers them after their sender gave up.
type simDatabase struct {
	world   *world
	store   *lobtest.Memory
	binding lobwriter.Binding
	clock   time.Duration // how far its clock is ahead
	away    bool          // no request arrives
	// owner is the claim that is current, as the world counts it.
	owner string
	// committed is the highest checkpoint committed under each claim.
	committed map[string]uint64
	backups   []backup
	// changed counts commits that changed a document or the fence row.
	changed int
}

// backup is a state of the database that it can go back to.
type backup struct {
	content    lobtest.Snapshot
	owner      string
	committed  map[string]uint64
	checkpoint uint64
}

var errNoAnswer = errors.New("no answer in time")

func newSimDatabase(w *world) *simDatabase {
	db := &simDatabase{world: w, store: lobtest.NewMemory(w.profile.flush), committed: map[string]uint64{}}
	db.store.Now = func() int64 { return start.Add(w.now + db.clock).UnixNano() }
	b, err := db.store.Bind(context.Background(), lobwriter.Stream{Name: "FRAGMENTS", Created: w.stream.created, Partitions: 2})
	if err != nil {
		panic(err)
	}
	db.binding = b
	return db
}

// ask sends a request for a member and answers it once: with the reply, or with
// errNoAnswer after timeout. What the database does with the request does not
// depend on whether anybody still waits.
func ask[T any](m *simMember, turn Turn, op string, timeout time.Duration, execute func() (T, error), answer func(now time.Time, reply T, err error)) {
	w, life := m.world, m.life
	done := false
	finish := func(reply T, err error) {
		if done || life != m.life {
			return
		}
		done = true
		m.answered(turn, op)
		m.answer(turn, func(now time.Time) { answer(now, reply, err) })
	}
	w.after(timeout, func() {
		var none T
		finish(none, errNoAnswer)
	})
	trouble := w.profile.trouble
	if w.healed {
		trouble = 0
	}
	travel := w.hop()
	switch {
	case w.chance(trouble): // lost on its way there
		w.seen.count("requests lost")
		w.note("FAULT %s: its %s does not arrive", m.name, op)
		return
	case w.chance(trouble): // much later, when it may have been repeated
		w.seen.count("requests delayed")
		travel = w.upTo(timeout * 3 / 2)
	}
	lost := w.chance(trouble)
	w.after(travel, func() {
		if w.db.away {
			return
		}
		reply, err := execute()
		if lost {
			w.seen.count("replies lost")
			w.note("FAULT %s: the reply to its %s is lost", m.name, op)
			return
		}
		w.after(w.hop(), func() {
			if !w.db.away {
				finish(reply, err)
			}
		})
	})
}

func (db *simDatabase) fence() lobwriter.Fence {
	f, err := db.store.Fence(context.Background(), 0)
	if err != nil {
		panic(err)
	}
	return f
}

func (db *simDatabase) claim(m *simMember, r lobwriter.ClaimRequest) (lobwriter.Claim, error) {
	db.keep()
	c, err := db.store.Claim(context.Background(), r)
	if err == nil {
		db.owner = r.ClaimID
		db.committed[r.ClaimID] = c.Fence.Checkpoint.Seq
		db.world.seen.count("claims")
		db.world.note("database: claim %s of %s, epoch %d, checkpoint %d, highest %d", r.ClaimID, m.name, c.Fence.Epoch, c.Fence.Checkpoint.Seq, c.Fence.Highest.Seq)
	}
	return c, err
}

// flush commits a flush and checks that it was allowed to.
func (db *simDatabase) flush(m *simMember, f *lobwriter.Flush, print uint64) (lobwriter.Receipt, error) {
	w := db.world
	if fingerprint(f) != print {
		w.fail("%s: a flush was changed after it had been sent", m.name)
	}
	db.keep()
	before := db.fence()
	r, err := db.store.Flush(context.Background(), f)
	if err != nil {
		w.note("database: flush of %s: %v", m.name, err)
		if lobwriter.KindOf(err) == lobwriter.Invalid {
			w.fail("%s: a flush that no owner may send: %v", m.name, err)
		}
		return r, err
	}
	after := db.fence()
	w.note("database: flush %d of %s under %s commits: checkpoint %d, highest %d%s", f.Number, m.name, f.ClaimID, after.Checkpoint.Seq, after.Highest.Seq, answers(f, r))
	w.seen.count("flushes")
	switch {
	case f.ClaimID != db.owner:
		w.fail("claim %s of %s commits, but claim %s is current", f.ClaimID, m.name, db.owner)
	case after.Flush != before.Flush+1:
		w.fail("the flush number goes from %d to %d", before.Flush, after.Flush)
	case after.Checkpoint.Seq < before.Checkpoint.Seq:
		w.fail("the checkpoint goes back from %d to %d", before.Checkpoint.Seq, after.Checkpoint.Seq)
	}
	db.committed[f.ClaimID] = max(db.committed[f.ClaimID], after.Checkpoint.Seq)
	db.changed++
	for i := range f.Groups {
		w.seen.count("groups " + r.Answers[i].Status.String())
		w.checkDocument(f.Groups[i].Key)
	}
	w.checkCheckpoint(after)
	return r, nil
}

func answers(f *lobwriter.Flush, r lobwriter.Receipt) string {
	out := ""
	for i := range f.Groups {
		g := &f.Groups[i]
		out += fmt.Sprintf("; %q %d..%d %s", g.Key, g.First, g.Last, r.Answers[i].Status)
		if row := r.Answers[i].Row; r.Answers[i].Status != lobwriter.Appended {
			out += fmt.Sprintf(" (stored: %s, mark %d)", row.State, row.Mark.Seq)
		}
	}
	return out
}

// keep takes a backup now and then, before something changes.
func (db *simDatabase) keep() {
	w := db.world
	if w.profile.backups && len(db.backups) < 6 && w.chance(0.15) {
		committed := make(map[string]uint64, len(db.committed))
		for id, seq := range db.committed {
			committed[id] = seq
		}
		db.backups = append(db.backups, backup{content: db.store.Snapshot(), owner: db.owner, committed: committed, checkpoint: db.fence().Checkpoint.Seq})
		w.note("database: a backup is taken")
	}
}

// goBack restores a backup under whoever is running.
func (db *simDatabase) goBack() bool {
	if len(db.backups) == 0 {
		return false
	}
	b := db.backups[db.world.rng.IntN(len(db.backups))]
	db.store.Restore(b.content)
	db.owner = b.owner
	f := db.fence()
	if db.owner != "" {
		// What was committed after the backup is gone, but what was
		// acknowledged by then was committed once.
		db.committed[db.owner] = max(db.committed[db.owner], b.committed[db.owner])
	}
	db.changed++
	db.world.note("FAULT database goes back to epoch %d, flush %d, checkpoint %d", f.Epoch, f.Flush, f.Checkpoint.Seq)
	return true
}

// text returns a document as a reader gets it.
func (db *simDatabase) document(key string) (lobwriter.Document, string) {
	var text []byte
	d, err := db.store.Read(context.Background(), key, func(piece []byte) error {
		text = append(text, piece...)
		return nil
	})
	if err != nil && !errors.Is(err, lobwriter.ErrNotFound) {
		panic(err)
	}
	return d, string(text)
}

// fingerprint tells one flush from another.
func fingerprint(f *lobwriter.Flush) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, f.Partition, f.Life, f.Epoch, f.ClaimID, f.Number, f.Checkpoint, f.Highest)
	for i := range f.Groups {
		g := &f.Groups[i]
		fmt.Fprint(h, g.Key, g.Believed, g.After, g.First, g.Last)
		for _, c := range g.Chunks {
			h.Write(c)
			h.Write([]byte{0})
		}
	}
	return h.Sum64()
}

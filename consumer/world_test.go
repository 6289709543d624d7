package consumer

import (
	"bufio"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The seeded world: one, two or three members, each driving the shipped Partition, a
// stream with JetStream's rules, a network that delays and loses, and the
// reference store. A run has one goroutine, no real time, and no randomness but
// its seed. The parts are:
//
//	world_test.go           runs seeds, prints the trace of one that fails
//	world_member_test.go    carries out the actions of a Partition
//	world_process_test.go   what happens to its process and its connection
//	world_stream_test.go    the stream, its consumers and their pulls
//	world_database_test.go  the network to the reference store
//	world_faults_test.go    what goes wrong
//	world_truth_test.go     what must hold at every step, and in the end
//	world_sabotage_test.go  that all this notices a rule left out

var (
	seeds = flag.Int("seeds", 5000, "how many seeds TestWorld runs")
	first = flag.Uint64("first", 1, "the first seed that TestWorld runs")
)

func TestWorld(t *testing.T) {
	n := *seeds
	if testing.Short() {
		n = min(n, 500)
	}
	var sum tally
	t.Run("seeds that failed once", func(t *testing.T) {
		for _, seed := range failedOnce(t) {
			runSeed(t, seed, &sum)
		}
	})
	t.Run(fmt.Sprintf("seeds %d to %d", *first, *first+uint64(n)-1), func(t *testing.T) {
		var next atomic.Uint64
		next.Store(*first)
		var wg sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			wg.Go(func() {
				for !t.Failed() {
					seed := next.Add(1) - 1
					if seed >= *first+uint64(n) {
						return
					}
					runSeed(t, seed, &sum)
				}
			})
		}
		wg.Wait()
	})
	t.Log(sum.String())
	sum.check(t, n)
}

// failedOnce reads the seeds of testdata/seeds.txt: one a line, then what it
// once showed.
func failedOnce(t *testing.T) []uint64 {
	t.Helper()
	f, err := os.Open("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []uint64
	for s := bufio.NewScanner(f); s.Scan(); {
		word, _, _ := strings.Cut(s.Text(), " ")
		if word == "" || strings.HasPrefix(word, "#") {
			continue
		}
		seed, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, seed)
	}
	return out
}

func runSeed(t *testing.T, seed uint64, sum *tally) {
	t.Helper()
	w := newWorld(seed)
	if err := w.run(); err == nil {
		sum.add(w)
		return
	}
	// Once more, the same, with a trace.
	w = newWorld(seed)
	w.tracing = true
	err := w.run()
	t.Errorf("seed %d: %v\n%s", seed, err, w.tail(60))
}

// world is one run.
type world struct {
	seed    uint64
	rng     *rand.Rand
	profile profile

	now   time.Duration
	queue events
	steps int

	stream   *simStream
	db       *simDatabase
	letters  *simLetters
	members  []*simMember
	namer    *owner            // names the consumers of claims
	opened   map[string]bool   // the claims whose consumer was created
	ambush   map[string]func() // faults that wait for a request, by its kind
	purged   map[string]uint64 // the marks of documents that an operator deleted
	healed   bool              // faults have stopped
	healedAt time.Duration
	// The database has not changed since, where it must not.
	stoodWith  int
	stoodSince time.Duration

	tracing bool
	trace   []string
	seen    tally
}

// violation is what run panics with inside.
type violation string

// start is when every world begins.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newWorld(seed uint64) *world {
	w := &world{seed: seed, opened: map[string]bool{}, ambush: map[string]func(){}, rng: rand.New(rand.NewPCG(seed, 0x10b51))}
	w.profile = w.drawProfile()
	w.stream = newSimStream(w)
	w.letters = &simLetters{world: w, stored: map[letterID]string{}}
	w.db = newSimDatabase(w)
	w.namer = &owner{member: &member{binding: w.db.binding}}
	return w
}

// run plays the world until everything is settled. The error is the first
// broken invariant.
func (w *world) run() (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case violation:
			w.note("VIOLATION: %s", string(r))
			err = fmt.Errorf("%s", string(r))
		default:
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	w.schedulePublishing()
	for i := range w.profile.members {
		m := &simMember{world: w, name: string(rune('A' + i))}
		w.members = append(w.members, m)
		w.after(w.upTo(200*time.Millisecond), m.begin)
	}
	w.scheduleFaults()
	w.after(w.profile.until, w.heal)
	for {
		e := w.queue.pop()
		if e == nil {
			w.fail("nothing happens any more")
		}
		w.now = max(w.now, e.at)
		e.what()
		if w.steps++; w.steps > maxSteps {
			w.fail("not settled after %d steps: %s", w.steps, w.unsettled())
		}
		if w.healed && w.steps%8 == 0 {
			why := w.unsettled()
			if why == "" {
				w.checkEverything()
				return nil
			}
			if w.now > w.healedAt+patience {
				w.fail("not settled %s after the last fault: %s", patience, why)
			}
		}
	}
}

// Bounds of one run. A stopped partition looks again every minute, so a few
// minutes must do.
const (
	maxSteps = 60_000
	patience = 4 * time.Minute
)

func (w *world) fail(format string, a ...any) { panic(violation(fmt.Sprintf(format, a...))) }

// note adds a line to the trace.
func (w *world) note(format string, a ...any) {
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf("%10.4fs  ", w.now.Seconds())+fmt.Sprintf(format, a...))
	}
}

func (w *world) tail(n int) string {
	lines := w.trace
	if os.Getenv("LOBSINK_TRACE") == "" && len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}

// Randomness.

func (w *world) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }
func (w *world) between(low, high int) int {
	return low + w.rng.IntN(high-low+1)
}
func (w *world) upTo(d time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(d) + 1))
}
func (w *world) span(low, high time.Duration) time.Duration { return low + w.upTo(high-low) }
func pick[T any](w *world, from ...T) T                     { return from[w.rng.IntN(len(from))] }

// hop is the time that a message of the network takes: mostly short, sometimes
// long enough to be overtaken by anything.
func (w *world) hop() time.Duration {
	if w.chance(0.05) {
		return w.upTo(800 * time.Millisecond)
	}
	return w.span(50*time.Microsecond, 3*time.Millisecond)
}

func (w *world) after(d time.Duration, what func()) { w.queue.push(w.now+d, what) }

// events is a heap: the earliest first, of equal ones the first pushed.
type events struct {
	heap []*event
	n    uint64
}

type event struct {
	at   time.Duration
	n    uint64
	what func()
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.n < o.n }

func (q *events) push(at time.Duration, what func()) {
	q.n++
	h := append(q.heap, &event{at: at, n: q.n, what: what})
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
	q.heap = h
}

func (q *events) pop() *event {
	h := q.heap
	if len(h) == 0 {
		return nil
	}
	top := h[0]
	last := len(h) - 1
	h[0], h[last] = h[last], nil
	h = h[:last]
	for i := 0; ; {
		low := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < last && h[c].before(h[low]) {
				low = c
			}
		}
		if low == i {
			break
		}
		h[i], h[low] = h[low], h[i]
		i = low
	}
	q.heap = h
	return top
}

// tally counts what happened, to show that the world really does what it is
// for.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
	steps  int
	runs   int
}

func (s *tally) count(what string) {
	if s.counts == nil {
		s.counts = map[string]int{}
	}
	s.counts[what]++
}

func (s *tally) add(w *world) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	s.steps += w.steps
	for what, n := range w.seen.counts {
		if s.counts == nil {
			s.counts = map[string]int{}
		}
		s.counts[what] += n
	}
}

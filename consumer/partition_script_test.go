package consumer

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

var rewrite = flag.Bool("rewrite", false, "record what the scripts in testdata print now")

// TestScripts runs the scripts in testdata and compares the actions that the
// Partition wants with what is recorded below each event. See
// testdata/README.md.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if filepath.Base(file) == "seeds.txt" {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			recorded, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := playScript(t, string(recorded))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(recorded) {
				t.Errorf("%s: prints now\n%s\n(go test ./consumer -run TestScripts -rewrite records it)", file, got)
			}
		})
	}
}

// playScript returns the script with what follows from each event now.
func playScript(t *testing.T, text string) string {
	s := newScript(t)
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue // recorded before
		}
		fmt.Fprintln(&out, line)
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		s.printed = nil
		if err := s.event(words); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out.String())
		}
		s.collect()
		for _, p := range s.printed {
			fmt.Fprintln(&out, "  "+p)
		}
	}
	return out.String()
}

// script is a Partition between a stream of a few messages and the reference
// store. Nothing is answered before the script says so.
type script struct {
	t       *testing.T
	p       *Partition
	db      *lobtest.Memory
	now     time.Time
	waiting map[string]Action // the last action of each kind, not answered yet
	printed []string

	stream StreamFacts
	times  []int64    // of the messages
	own    []Received // the messages of the partition
	seq    uint64     // consumer sequence
	backup lobtest.Snapshot
}

func newScript(t *testing.T) *script {
	limits := lobwriter.Limits{Documents: 8, Bytes: 1000, ChunkBytes: 100}
	s := &script{t: t, db: lobtest.NewMemory(limits), now: start, waiting: map[string]Action{}}
	s.db.Now = func() int64 { return s.now.UnixNano() }
	b, err := s.db.Bind(t.Context(), lobwriter.Stream{Name: "FRAGMENTS", Created: 1, Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	s.stream = StreamFacts{Created: 1, First: 1}
	s.p = New(Options{
		Binding: b, Batch: batcher.Limits{MaxAge: time.Second, ChunkBytes: 100}, Flush: limits,
		MaxMessage: 1000, Rows: 1 << 20, Lease: 10 * time.Second, Renew: 3 * time.Second, Quiet: 5 * time.Second,
	})
	s.p.Allow(1 << 20)
	return s
}

// collect prints what the Partition wants, and remembers it.
func (s *script) collect() {
	for _, a := range s.p.Actions() {
		kind, words := describeAction(a)
		s.printed = append(s.printed, strings.TrimSpace(kind+" "+words))
		s.waiting[kind] = a
	}
}

func describeAction(a Action) (kind, words string) {
	switch a := a.(type) {
	case DoClaim:
		return "claim", ""
	case DoInspect:
		return "inspect", fmt.Sprintf("the stream: checkpoint %d, highest %d", a.Checkpoint.Seq, a.Highest.Seq)
	case DoOpen:
		return "open", fmt.Sprintf("a consumer at %d", a.Start)
	case DoConfirm:
		return "confirm", "the claim"
	case DoSweep:
		return "sweep", ""
	case DoFetch:
		return "fetch", ""
	case DoLook:
		return "look", fmt.Sprintf("at the stream: last received %d", a.Last.Seq)
	case DoRenew:
		return "renew", ""
	case DoRead:
		return "read", "rows of " + strings.Join(a.Keys, " ")
	case DoLetters:
		for _, l := range a.Letters {
			words += fmt.Sprintf(" %d (%s)", l.Fragment.Seq, l.Reason.Code)
		}
		return "letters", words[1:]
	case DoFlush:
		f := a.Flush
		words = fmt.Sprintf("%d:", f.Number)
		for _, g := range f.Groups {
			words += fmt.Sprintf(" %s %d..%d onto %d, %s;", g.Key, g.First, g.Last, g.Believed.Mark.Seq, g.After.State)
		}
		return "flush", words + fmt.Sprintf(" checkpoint %d", f.Checkpoint.Seq)
	case DoAck:
		return "ack", fmt.Sprint(a.Seq)
	case DoHalt:
		return "halt", "the fetch"
	case DoDrop:
		return "drop", fmt.Sprintf("the turn: %s: %s", a.Reason, a.Detail)
	case DoRelease:
		return "release", "the lease"
	case DoReport:
		return "report", a.Err.Error()
	}
	return "unknown", fmt.Sprintf("%T", a)
}

// asked returns the outstanding action of a kind.
func asked[A Action](s *script, kind string) (A, error) {
	a, ok := s.waiting[kind].(A)
	if !ok {
		return a, fmt.Errorf("nothing to %s was asked for", kind)
	}
	delete(s.waiting, kind)
	return a, nil
}

var errLost = errors.New("no answer in time")

// event applies one line: a word, and what goes with it.
func (s *script) event(words []string) error {
	ctx, turn := context.Background(), s.p.Turn()
	arg := ""
	if len(words) > 1 {
		arg = words[1]
	}
	switch words[0] {
	case "own": // everything up to reading, answered at once
		s.p.Connected(s.now, true)
		for _, step := range []string{"claim", "inspect", "open", "inspect", "confirm"} {
			s.collect()
			if err := s.event([]string{step}); err != nil {
				return err
			}
		}
	case "online":
		s.p.Connected(s.now, true)
	case "offline":
		s.p.Connected(s.now, false)
	case "reconnected":
		s.p.Reconnected(s.now, s.stream)
	case "checked":
		s.p.StreamChecked(s.now, s.stream)
	case "wait":
		d, err := time.ParseDuration(arg)
		if err != nil {
			return err
		}
		s.now = s.now.Add(d)
		s.p.Tick(s.now)
	case "stop":
		s.p.Stop(s.now)
	case "claim":
		a, err := asked[DoClaim](s, "claim")
		if err != nil {
			return err
		}
		c, err := s.db.Claim(ctx, lobwriter.ClaimRequest{MemberID: "00000000000000aa", ClaimID: fmt.Sprintf("%016x", a.Turn+1), Lease: 10 * time.Second})
		s.p.Claimed(s.now, a.Turn, s.now, c, err)
	case "inspect":
		a, err := asked[DoInspect](s, "inspect")
		if err != nil {
			return err
		}
		s.p.Inspected(s.now, a.Turn, Inspection{StreamFacts: s.stream, CheckpointTime: s.time(a.Checkpoint.Seq), HighestTime: s.time(a.Highest.Seq)}, nil)
	case "open":
		a, err := asked[DoOpen](s, "open")
		if err != nil {
			return err
		}
		s.seq = 0
		s.p.Opened(s.now, a.Turn, nil)
	case "confirm":
		f, err := s.db.Fence(ctx, 0)
		s.p.Confirmed(s.now, turn, f, err)
	case "receive", "miss", "again":
		return s.receive(words[0], words[1:])
	case "deliver":
		return s.deliver(arg)
	case "fetched":
		s.p.Fetched(s.now, turn, arg == "quiet", nil)
	case "look":
		return s.look(words[1:])
	case "flush":
		return s.flush(arg)
	case "ack":
		a, err := asked[DoAck](s, "ack")
		if err != nil {
			return err
		}
		s.p.Acked(s.now, a.Turn, a.Seq, lost(arg))
	case "letters":
		a, err := asked[DoLetters](s, "letters")
		if err != nil {
			return err
		}
		s.p.Lettered(s.now, a.Turn, a.Batch)
	case "read":
		a, err := asked[DoRead](s, "read")
		if err != nil {
			return err
		}
		rows, err := s.db.Rows(ctx, 0, a.Keys)
		s.p.RowsRead(s.now, a.Turn, rows, err)
	case "renew":
		a, err := asked[DoRenew](s, "renew")
		if err != nil {
			return err
		}
		f, err := s.db.Renew(ctx, a.Claim, 10*time.Second)
		if arg == "lost" {
			err = errLost
		}
		s.p.Renewed(s.now, a.Turn, s.now, f, err)
	case "release":
		a, err := asked[DoRelease](s, "release")
		if err != nil {
			return err
		}
		err = s.db.Release(ctx, a.Claim)
		s.p.Released(s.now, a.Turn)
		return err
	case "backup":
		s.backup = s.db.Snapshot()
	case "restore":
		s.db.Restore(s.backup)
	case "takeover": // by a member for which the lease has run out
		now := s.db.Now
		s.db.Now = func() int64 { return now() + int64(time.Hour) }
		_, err := s.db.Claim(ctx, lobwriter.ClaimRequest{MemberID: "00000000000000bb", ClaimID: "00000000000000bb", Lease: 10 * time.Second})
		s.db.Now = now
		return err
	case "stream":
		return s.change(words[1:])
	case "document":
		return s.document(arg)
	default:
		return errors.New("no such event")
	}
	return nil
}

func lost(arg string) error {
	if arg == "lost" {
		return errLost
	}
	return nil
}

func (s *script) time(seq uint64) int64 {
	if seq < s.stream.First || seq > uint64(len(s.times)) {
		return 0
	}
	return s.times[seq-1]
}

// receive publishes messages and delivers them; miss: they are delivered, but
// do not arrive; again: they are delivered for the second time. A message is
// key=text, ending in ! when it is final and in ? when it breaks a rule; no key
// is an orphan, and - a message of another partition.
func (s *script) receive(how string, words []string) error {
	var batch []Received
	for _, w := range words {
		if how != "again" {
			s.stream.Last = lobwriter.Position{Seq: s.stream.Last.Seq + 1, Time: s.now.UnixNano() + int64(s.stream.Last.Seq)}
			s.times = append(s.times, s.stream.Last.Time)
		}
		if w == "-" {
			continue
		}
		key, text, ok := strings.Cut(w, "=")
		if !ok {
			return fmt.Errorf("%q is no message", w)
		}
		s.seq++
		r := Received{Consumer: s.seq, Deliveries: 1, Orphan: key == ""}
		if how == "again" {
			r.Deliveries = 2
		}
		r.Fragment = batcher.Fragment{
			Key: key, Seq: s.stream.Last.Seq, Time: s.stream.Last.Time,
			Data: []byte(strings.TrimRight(text, "!?")), Final: strings.Contains(text, "!"),
		}
		switch {
		case r.Orphan:
			r.Fragment.Hole = &batcher.Reason{Code: CodeBadKey, Text: "not canonical"}
		case strings.Contains(text, "?"):
			r.Fragment.Hole = &batcher.Reason{Code: "invalid-utf8", Text: "byte 0"}
		case strings.Contains(text, "NUL"):
			r.Fragment.Data = []byte{0}
		}
		batch = append(batch, r)
		if how != "again" {
			s.own = append(s.own, r)
		}
	}
	if how != "miss" {
		s.p.Received(s.now, s.p.Turn(), batch)
	}
	return nil
}

// deliver delivers messages low..high of the stream, as to a new consumer.
func (s *script) deliver(what string) error {
	var low, high uint64
	if _, err := fmt.Sscanf(what, "%d..%d", &low, &high); err != nil {
		return err
	}
	var batch []Received
	for _, r := range s.own {
		if seq := r.Fragment.Seq; seq >= low && seq <= high {
			s.seq++
			r.Consumer = s.seq
			batch = append(batch, r)
		}
	}
	s.p.Received(s.now, s.p.Turn(), batch)
	return nil
}

// look answers a look; words change what is seen.
func (s *script) look(words []string) error {
	a, err := asked[DoLook](s, "look")
	if err != nil {
		return err
	}
	l := Look{StreamFacts: s.stream, LastTime: s.time(a.Last.Seq), Delivered: s.seq}
	for _, w := range words {
		switch name, value, _ := strings.Cut(w, "="); name {
		case "lost":
			err = errLost
		case "more":
			l.More = true
		case "changed":
			l.Changed = value
		case "leader":
			l.Leader, l.ConsumerLeader = value, value
		default:
			return fmt.Errorf("%q cannot be seen", w)
		}
	}
	s.p.Looked(s.now, a.Turn, l, err)
	return nil
}

// flush lets the flush under way arrive. lost: its reply does not come; away: it
// does not arrive either.
func (s *script) flush(how string) error {
	a, err := asked[DoFlush](s, "flush")
	if err != nil {
		return err
	}
	if how == "away" {
		s.p.Flushed(s.now, a.Turn, lobwriter.Receipt{}, errLost)
		return nil
	}
	r, err := s.db.Flush(s.t.Context(), a.Flush)
	for i, answer := range r.Answers {
		if answer.Status != lobwriter.Appended {
			s.printed = append(s.printed, fmt.Sprintf("(%s: %s, mark %d)", a.Flush.Groups[i].Key, answer.Status, answer.Row.Mark.Seq))
		}
	}
	if how == "lost" {
		r, err = lobwriter.Receipt{}, errLost
	}
	s.p.Flushed(s.now, a.Turn, r, err)
	return nil
}

// change changes the stream: first=N, created=N, last=N (a lost tail).
func (s *script) change(words []string) error {
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return err
		}
		switch name {
		case "first":
			s.stream.First = n
		case "created":
			s.stream.Created = int64(n)
		case "last":
			s.times = s.times[:n]
			s.own = slices.DeleteFunc(s.own, func(r Received) bool { return r.Fragment.Seq > n })
			s.stream.Last = lobwriter.Position{Seq: n}
			if n > 0 {
				s.stream.Last.Time = s.times[n-1]
			}
		default:
			return fmt.Errorf("a stream has no %s", name)
		}
	}
	return nil
}

// document prints what is stored.
func (s *script) document(key string) error {
	text := ""
	d, err := s.db.Read(s.t.Context(), key, func(piece []byte) error {
		text += string(piece)
		return nil
	})
	if err != nil {
		return err
	}
	s.printed = append(s.printed, fmt.Sprintf("%q, %s, mark %d, %d fragments, %d holes, %d late", text, d.State, d.Mark.Seq, d.Fragments, d.Holes, d.Late))
	return nil
}

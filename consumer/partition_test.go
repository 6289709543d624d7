package consumer

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// TestDoubts: each reason for which a turn is dropped.
func TestDoubts(t *testing.T) {
	stray := fragment(3, "c", "x")
	stray.Stray = errNobody
	twice := fragment(3, "c", "x")
	twice.Deliveries = 2
	look := func(d *driven, change func(*Look)) {
		d.p.Fetched(d.now, 0, true, nil)
		l := Look{StreamFacts: d.stream, LastTime: at(2).Time, Delivered: d.seq}
		change(&l)
		d.p.Looked(d.now, want[DoLook](d).Turn, l, nil)
	}
	renew := func(d *driven, change func(*lobwriter.Fence), err error) {
		d.pass(3 * time.Second).p.Tick(d.now)
		f := d.fence
		change(&f)
		d.p.Renewed(d.now, want[DoRenew](d).Turn, d.now, f, err)
	}
	for _, test := range []struct {
		name  string
		event func(d *driven)
		why   Doubt // "": none
	}{
		{"a consumer sequence is missing (trap 3)", func(d *driven) { d.seq++; d.receive(fragment(3, "c", "x")) }, DoubtOrder},
		{"a consumer sequence comes twice", func(d *driven) { d.seq--; d.receive(fragment(3, "c", "x")) }, DoubtOrder},
		{"stream sequences do not rise (trap 3)", func(d *driven) { d.receive(fragment(2, "c", "x")) }, DoubtOrder},
		{"a message was delivered before (trap 3)", func(d *driven) { d.receive(twice) }, DoubtOrder},
		{"a message of another partition (trap 10)", func(d *driven) { d.receive(stray) }, DoubtStray},
		{"other partitions' messages lie between", func(d *driven) { d.receive(fragment(9, "c", "x")) }, ""},

		{"the last message vanished (trap 2)", func(d *driven) { look(d, func(l *Look) { l.Delivered++ }) }, DoubtQuiet},
		{"the server forgot what it delivered", func(d *driven) { look(d, func(l *Look) { l.Delivered-- }) }, DoubtQuiet},
		{"the stream was created again (trap 8)", func(d *driven) { look(d, func(l *Look) { l.Created++ }) }, DoubtWentBack},
		{"the stream lost its tail (trap 8)", func(d *driven) { look(d, func(l *Look) { l.Last = at(1) }) }, DoubtWentBack},
		{"the last message is another one (trap 8)", func(d *driven) { look(d, func(l *Look) { l.LastTime++ }) }, DoubtWentBack},
		{"the last message was discarded", func(d *driven) { look(d, func(l *Look) { l.LastTime = 0 }) }, ""},
		{"the consumer was edited (trap 7)", func(d *driven) { look(d, func(l *Look) { l.Changed = "ack_wait" }) }, DoubtConsumer},
		{"a leader was seen for the first time", func(d *driven) { look(d, func(l *Look) { l.Leader, l.ConsumerLeader = "n1", "n1" }) }, ""},
		{"the leader changed", func(d *driven) {
			look(d, func(l *Look) { l.Leader, l.ConsumerLeader = "n1", "n1" })
			d.pass(5 * time.Second)
			look(d, func(l *Look) { l.Leader, l.ConsumerLeader = "n2", "n2" })
		}, DoubtLeader},
		{"the look was not answered", func(d *driven) {
			d.p.Fetched(d.now, 0, true, nil)
			d.p.Looked(d.now, want[DoLook](d).Turn, Look{}, errNobody)
		}, ""},

		{"the consumer was deleted", func(d *driven) { d.p.Fetched(d.now, 0, false, errNobody) }, DoubtConsumer},
		{"NATS does not answer", func(d *driven) { d.p.Connected(d.now, false) }, ""},
		{"the connection is back", func(d *driven) { d.p.Reconnected(d.now, d.stream) }, DoubtReconnect},
		{"the stream was created again, says the check", func(d *driven) {
			d.stream.Created++
			d.p.StreamChecked(d.now, d.stream)
		}, DoubtWentBack},
		{"the stream lost its tail, says the check", func(d *driven) {
			d.p.StreamChecked(d.now, d.stream)
			d.stream.Last = at(1)
			d.p.StreamChecked(d.now, d.stream)
		}, DoubtWentBack},
		{"retention passed what was read", func(d *driven) {
			d.stream.First = 4
			d.p.StreamChecked(d.now, d.stream)
		}, DoubtRetention},
		{"retention passed the checkpoint only", func(d *driven) {
			d.stream.First = 3
			d.p.StreamChecked(d.now, d.stream)
		}, ""},

		{"a renewal was not answered", func(d *driven) { renew(d, func(*lobwriter.Fence) {}, errNobody) }, ""},
		{"the lease is somebody else's", func(d *driven) {
			renew(d, func(*lobwriter.Fence) {}, &lobwriter.FencedError{Stored: lobwriter.Fence{Epoch: 8}})
		}, DoubtFenced},
		{"the database went back to another claim (trap 5)", func(d *driven) {
			renew(d, func(f *lobwriter.Fence) { f.ClaimID = "00000000000000bb" }, nil)
		}, DoubtDatabase},
		{"the database went back to another epoch (trap 5)", func(d *driven) {
			renew(d, func(f *lobwriter.Fence) { f.Epoch-- }, nil)
		}, DoubtDatabase},
		{"the database went back to another flush (trap 5)", func(d *driven) {
			renew(d, func(f *lobwriter.Fence) { f.Flush-- }, nil)
		}, DoubtDatabase},
		{"a renewal", func(d *driven) { renew(d, func(*lobwriter.Fence) {}, nil) }, ""},
		{"the lease may have run out", func(d *driven) { d.pass(driveLease).p.Tick(d.now) }, DoubtLease},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := drive(t).own()
			d.receive(fragment(1, "a", "1"), fragment(2, "b", "2"))
			d.commit()
			d.p.Acked(d.now, 0, want[DoAck](d).Seq, nil)
			test.event(d)
			if test.why == "" {
				none[DoDrop](d)
				if !d.p.Owning() {
					t.Error("no longer owning")
				}
				return
			}
			d.dropped(test.why)
		})
	}
}

// A renewal's answer that was overtaken by a flush says nothing about the flush
// number.
func TestRenewalAcrossAFlush(t *testing.T) {
	d := drive(t).own()
	d.pass(3 * time.Second).p.Tick(d.now)
	renewal, asRead := want[DoRenew](d), d.fence
	d.receive(fragment(1, "a", "1"))
	d.p.Renewed(d.now, renewal.Turn, d.now, d.fence, nil) // while it is in flight
	d.commit()
	d.pass(3 * time.Second).p.Tick(d.now)
	renewal = want[DoRenew](d)
	d.receive(fragment(2, "a", "2"))
	asRead.Flush = 1
	d.commit()
	d.p.Renewed(d.now, renewal.Turn, d.now, asRead, nil) // from before it
	none[DoDrop](d)
}

// TestCheckpoint: where the checkpoint may stand.
func TestCheckpoint(t *testing.T) {
	late := func(o *Options) { o.Batch.MaxAge = time.Second } // only what is final is due
	for _, test := range []struct {
		name    string
		receive []Received
		want    lobwriter.Position
	}{
		{"everything flushed: on the last received", []Received{finalFragment(3, "a", "x"), finalFragment(7, "b", "x")}, at(7)},
		{"something held: on the last received below it", []Received{finalFragment(3, "a", "x"), finalFragment(5, "b", "x"), fragment(8, "c", "x"), finalFragment(9, "d", "x")}, at(5)},
		{"the first is held: nowhere", []Received{fragment(3, "c", "x"), finalFragment(9, "d", "x")}, lobwriter.Position{}},
		{"an orphan waits for its letter", []Received{finalFragment(3, "a", "x"), orphan(4, "x"), finalFragment(5, "b", "x")}, at(3)},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := drive(t, late).own()
			d.receive(test.receive...)
			if got := want[DoFlush](d).Flush.Checkpoint; got != test.want {
				t.Errorf("checkpoint %v, want %v", got, test.want)
			}
		})
	}
}

// What does not fit into a flush holds the checkpoint.
func TestCheckpointOfASecondFlush(t *testing.T) {
	d := drive(t, func(o *Options) { o.Flush.Documents = 1 }).own()
	d.receive(fragment(1, "a", "x"), fragment(2, "b", "x"), fragment(3, "c", "x"))
	for i, key := range []string{"a", "b", "c"} {
		f := d.commit()
		if len(f.Groups) != 1 || f.Groups[0].Key != key || f.Checkpoint != at(uint64(i+1)) {
			t.Fatalf("flush %d: %+v", i, f)
		}
	}
}

// Groups that were not stored hold the checkpoint, however the flush went.
func TestStaleHoldsTheCheckpoint(t *testing.T) {
	d := drive(t).own()
	d.receive(fragment(1, "a", "x"), fragment(2, "b", "y"))
	stored := lobwriter.Row{Generation: 1, State: lobwriter.Open, Mark: lobwriter.Mark{Seq: 4}, Bytes: 3}
	d.commit(lobwriter.Answer{Status: lobwriter.Stale, Row: stored}, lobwriter.Answer{Status: lobwriter.Appended})
	none[DoAck](d)
	f := d.commit()
	if len(f.Groups) != 1 || f.Groups[0].Believed != stored || f.Checkpoint != at(2) {
		t.Errorf("then %+v", f)
	}
}

// TestLearn: the stored row replaces the believed one.
func TestLearn(t *testing.T) {
	row := func(seq uint64, bytes int64) lobwriter.Row {
		return lobwriter.Row{Generation: 1, State: lobwriter.Open, Mark: lobwriter.Mark{Life: 1, Seq: seq}, Bytes: bytes}
	}
	rebuilt := row(4, 9)
	rebuilt.Generation = 2
	older := row(9, 9)
	older.Mark.Life = 0
	for _, test := range []struct {
		name   string
		answer lobwriter.Answer // to a group of 5..6 onto row(4, 4)
		first  uint64           // of the group that follows; 0: none
		doubt  bool
	}{
		{"exactly there", lobwriter.Answer{Status: lobwriter.AlreadyThere, Row: row(6, 6)}, 0, false},
		{"beyond everything", lobwriter.Answer{Status: lobwriter.AlreadyThere, Row: row(60, 60)}, 0, false},
		{"in the middle", lobwriter.Answer{Status: lobwriter.Stale, Row: row(5, 5)}, 6, false},
		{"another generation", lobwriter.Answer{Status: lobwriter.Stale, Row: rebuilt}, 5, false},
		{"the database lost commits (trap 5)", lobwriter.Answer{Status: lobwriter.Stale, Row: row(1, 1)}, 0, true},
		{"the database lost the document (trap 5)", lobwriter.Answer{Status: lobwriter.Stale}, 0, true},
		{"an earlier life", lobwriter.Answer{Status: lobwriter.Stale, Row: older}, 0, true},
		{"another text at the same mark", lobwriter.Answer{Status: lobwriter.Stale, Row: row(4, 5)}, 0, true},
		{"no answer", lobwriter.Answer{}, 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := drive(t).own()
			d.receive(fragment(4, "a", "1234"))
			d.commit()
			d.receive(fragment(5, "a", "5"), fragment(6, "a", "6"))
			d.answer(want[DoFlush](d).Flush, test.answer)
			switch {
			case test.doubt:
				d.dropped(DoubtDatabase)
			case test.first == 0:
				none[DoFlush](d)
				none[DoDrop](d)
			default:
				next := want[DoFlush](d).Flush
				if next.Groups[0].Believed != test.answer.Row || next.Groups[0].First != test.first {
					t.Errorf("then %+v", next.Groups)
				}
			}
		})
	}
}

// TestUnknownOutcome: after no answer the identical flush and nothing else (trap 4).
func TestUnknownOutcome(t *testing.T) {
	unknown := func(t *testing.T) (*driven, *lobwriter.Flush) {
		d := drive(t).own()
		d.receive(fragment(1, "a", "1"))
		f := want[DoFlush](d).Flush
		d.p.Flushed(d.now, 0, lobwriter.Receipt{}, errNobody)
		d.receive(fragment(2, "a", "2"), finalFragment(3, "b", "3"))
		none[DoFlush](d)
		d.pass(time.Second).p.Tick(d.now)
		if again := want[DoFlush](d).Flush; again != f {
			t.Fatalf("sent %+v, then %+v", f, again)
		}
		return d, f
	}
	t.Run("it had committed: fenced with number + 1", func(t *testing.T) {
		d, f := unknown(t)
		stored := d.fence
		stored.Flush++
		d.p.Flushed(d.now, 0, lobwriter.Receipt{}, &lobwriter.FencedError{Stored: stored})
		again := want[DoFlush](d).Flush
		if again.Number != f.Number+1 || len(again.Groups) != 1 || again.Groups[0].Last != 1 {
			t.Fatalf("sent %+v", again)
		}
		d.answer(again, lobwriter.Answer{Status: lobwriter.AlreadyThere, Row: f.Groups[0].After})
		next := want[DoFlush](d).Flush
		if next.Number != f.Number+2 || len(next.Groups) != 2 {
			t.Errorf("then %+v", next)
		}
	})
	for name, change := range map[string]func(*lobwriter.Fence){
		"number + 2":    func(f *lobwriter.Fence) { f.Flush += 2 },
		"number - 1":    func(f *lobwriter.Fence) { f.Flush-- },
		"another claim": func(f *lobwriter.Fence) { f.Flush++; f.ClaimID = "00000000000000bb" },
		"another epoch": func(f *lobwriter.Fence) { f.Flush++; f.Epoch++ },
		"another life":  func(f *lobwriter.Fence) { f.Flush++; f.Life++ },
	} {
		t.Run("fenced with "+name, func(t *testing.T) {
			d, _ := unknown(t)
			stored := d.fence
			change(&stored)
			d.p.Flushed(d.now, 0, lobwriter.Receipt{}, &lobwriter.FencedError{Stored: stored})
			d.dropped(DoubtFenced)
		})
	}
}

// A flush that only an operator can help is reported and repeated more slowly.
func TestReportedFlush(t *testing.T) {
	d := drive(t).own()
	d.receive(fragment(1, "a", "1"))
	f := want[DoFlush](d).Flush
	d.p.Flushed(d.now, 0, lobwriter.Receipt{}, &lobwriter.Error{Kind: lobwriter.Credentials, Op: "flush", Err: errNobody})
	if err := want[DoReport](d).Err; !errors.Is(err, errNobody) {
		t.Error(err)
	}
	d.pass(2900 * time.Millisecond).p.Tick(d.now)
	none[DoFlush](d)
	d.pass(2200 * time.Millisecond).p.Tick(d.now)
	if want[DoFlush](d).Flush != f {
		t.Error("another flush")
	}
}

// TestRefusedTwice: where even an empty group is refused the partition stands
// still, says so, and looks again.
func TestRefusedTwice(t *testing.T) {
	d := drive(t).own()
	d.receive(finalFragment(1, "a", ""))
	rejected := lobwriter.Answer{Status: lobwriter.Rejected, Code: "23514", Text: "check"}
	d.commit(rejected)
	d.commit(rejected)
	want[DoReport](d)
	d.dropped(DoubtRefused)
}

// replicated is a look at a stream whose leader is n1.
func replicated(consumerLeader string) Look {
	return Look{StreamFacts: StreamFacts{Leader: "n1"}, ConsumerLeader: consumerLeader}
}

// TestIdle: when the checkpoint may move with the stream (trap 9).
func TestIdle(t *testing.T) {
	for _, test := range []struct {
		name    string
		looks   []Look // one after another
		want    uint64 // the checkpoint that is flushed; 0: none
		holding bool
	}{
		{"everything delivered arrived, and nothing follows", []Look{{}}, 9, false},
		{"something follows", []Look{{More: true}}, 0, false},
		{"something is held", []Look{{}}, 0, true},
		{"a replicated stream, at the first look", []Look{replicated("n1")}, 0, false},
		{"a replicated stream, at the second", []Look{replicated("n1"), replicated("n1")}, 9, false},
		{"the consumer's leader is another server", []Look{replicated("n2"), replicated("n2")}, 9, false},
		{"something followed at the first look", []Look{{StreamFacts: StreamFacts{Leader: "n1"}, More: true}, {StreamFacts: StreamFacts{Leader: "n1"}}}, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := drive(t, func(o *Options) { o.Batch.MaxAge = 8 * time.Second }).own()
			d.receive(finalFragment(1, "a", "x"))
			d.commit()
			if test.holding {
				d.receive(fragment(3, "b", "x"))
			}
			d.stream.Last = at(9)
			for _, l := range test.looks {
				d.p.Fetched(d.now, 0, true, nil)
				leader := l.Leader
				l.StreamFacts = d.stream
				l.Leader, l.Delivered = leader, d.seq
				d.p.Looked(d.now, want[DoLook](d).Turn, l, nil)
				d.pass(5 * time.Second)
			}
			if test.want == 0 {
				none[DoFlush](d)
				return
			}
			if f := want[DoFlush](d).Flush; f.Checkpoint != at(test.want) || len(f.Groups) != 0 {
				t.Errorf("flushed %+v", f)
			}
		})
	}
}

// TestAllowance: memory is for reading; a partition that holds nothing reads all
// the same.
func TestAllowance(t *testing.T) {
	d := drive(t, func(o *Options) { o.Batch.MaxAge = time.Minute }).own()
	d.p.Allow(2000)
	d.receive(fragment(1, "a", "x"), fragment(2, "b", "x"), fragment(3, "c", "x"), fragment(4, "d", "x"))
	d.p.Fetched(d.now, 0, false, nil)
	none[DoFetch](d) // less than the largest message is left
	if next := d.p.Deadline(); next.After(d.now) {
		t.Fatalf("memory is short, but nothing is due before %s", next)
	}
	d.p.Tick(d.now)
	d.commit()
	if a := want[DoFetch](d); a.Bytes < 1000 {
		t.Errorf("a fetch of %d bytes", a.Bytes)
	}

	d = drive(t).own()
	d.p.Allow(10)
	d.p.Fetched(d.now, 0, false, nil)
	if a := want[DoFetch](d); a.Bytes != 1000 {
		t.Errorf("a fetch of %d bytes, the largest message has 1000", a.Bytes)
	}
}

// TestUnknownRows: small groups are sent as absent, large ones are asked for
// first, and with them everything that is unknown.
func TestUnknownRows(t *testing.T) {
	d := drive(t, func(o *Options) { o.Flush.Bytes, o.Batch.ChunkBytes = 1<<20, 1<<20 }).own()
	d.receive(fragment(1, "guessed", "x"))
	if f := d.commit(); !f.Groups[0].Believed.Absent() {
		t.Errorf("believes %+v", f.Groups[0].Believed)
	}
	d.receive(fragment(2, "guessed", "x"), fragment(3, "small", "x"), fragment(4, "large", strings.Repeat("x", guessBelow)))
	a := want[DoRead](d)
	if strings.Join(a.Keys, " ") != "small large" {
		t.Fatalf("reads %q", a.Keys)
	}
	none[DoFlush](d)
	stored := lobwriter.Row{Generation: 3, State: lobwriter.Open}
	d.p.RowsRead(d.now, 0, []lobwriter.Row{{}, stored}, nil)
	if g := want[DoFlush](d).Flush.Groups; g[0].Believed.Absent() || !g[1].Believed.Absent() || g[2].Believed != stored {
		t.Errorf("flushes %+v", g)
	}
}

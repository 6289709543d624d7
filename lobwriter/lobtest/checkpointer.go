package lobtest

import (
	"errors"
	"testing"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// operatorClaim is the claim ID that the tests' operator draws.
const operatorClaim = "00000000000000ee"

// checkpointerRules are tested where Fixture.Operator is set.
var checkpointerRules = []rule{
	{"a moved checkpoint fences the owner", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		o.Flush(t, o.Append("k", Text(1, "<a>"), Text(7, "</a>")))
		before := fence(t, f.Store, 1)
		for _, to := range []lobwriter.Position{At(3), {}, At(12)} {
			got, err := op.MoveCheckpoint(t.Context(), lobwriter.CheckpointMove{Partition: 1, Life: 1, From: before.Checkpoint, To: to, ClaimID: operatorClaim})
			want := lobwriter.Fence{Life: 1, Epoch: before.Epoch + 1, ClaimID: operatorClaim, Checkpoint: to, Highest: before.Highest}
			if to.Seq > want.Highest.Seq {
				want.Highest = to
			}
			if err != nil || got != want || fence(t, f.Store, 1) != want {
				t.Fatalf("moved to %+v, %v, stored %+v; want %+v", got, err, fence(t, f.Store, 1), want)
			}
			before = got
		}
		_, err := f.Store.Flush(t.Context(), o.NewFlush(o.Append("k", Text(8, "x"))))
		kind(t, err, lobwriter.Fenced)
		if got, err := f.Store.Renew(t.Context(), o.Claim, Lease); err != nil || got != before {
			t.Errorf("renewed: %+v, %v", got, err) // the lease stays, and brings the fence row
		}
		f.document(t, "k", "<a></a>")
		again := NewOwner(t, f.Store, 1)
		if again.Claim.Fence.Checkpoint != At(12) || again.Claim.Fence.Epoch != before.Epoch+1 {
			t.Errorf("claimed again: %+v", again.Claim.Fence)
		}
	}},
	{"not when the checkpoint is another one", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		o.Flush(t, o.Append("k", Text(7, "x")))
		before := fence(t, f.Store, 1)
		for _, m := range []lobwriter.CheckpointMove{
			{Partition: 1, Life: 1, From: At(6), To: At(9), ClaimID: operatorClaim},
			{Partition: 1, Life: 2, From: At(7), To: At(9), ClaimID: operatorClaim},
			{Partition: 1, Life: 1, From: lobwriter.Position{Seq: 7, Time: 1}, To: At(9), ClaimID: operatorClaim},
		} {
			_, err := op.MoveCheckpoint(t.Context(), m)
			var fenced *lobwriter.FencedError
			if !errors.As(err, &fenced) || fenced.Stored != before || fence(t, f.Store, 1) != before {
				t.Errorf("%+v: %v", m, err)
			}
		}
	}},
	{"not below what was purged", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		o.Flush(t, o.Append("a", Final(3, "x")), o.Append("k", Text(4, "x")))
		o.Flush(t, o.Append("b", Final(6, "x")))
		move := lobwriter.CheckpointMove{Partition: 1, Life: 1, From: At(6), To: At(5), ClaimID: operatorClaim}
		if _, err := op.Purge(t.Context(), lobwriter.Purge{Partition: 1, Keys: []string{"a"}, State: lobwriter.Complete}); err != nil {
			t.Fatal(err)
		}
		_, err := op.MoveCheckpoint(t.Context(), move)
		kind(t, err, lobwriter.Invalid)
		r := rebinding(t, op, func(r *lobwriter.Rebinding) {
			r.To.Life, r.To.Partitions, r.To.Created, r.Checkpoint = 1, 2, r.From.Created, At(6)
			r.PartitionOf = func(string) int { return 0 }
		})
		if err := f.Store.Release(t.Context(), o.Claim); err != nil {
			t.Fatal(err)
		}
		rebind(t, op, r)
		move.Partition = 0
		_, err = op.MoveCheckpoint(t.Context(), move)
		kind(t, err, lobwriter.Invalid)
		move.To = At(6)
		if _, err := op.MoveCheckpoint(t.Context(), move); err != nil {
			t.Error(err)
		}
		rebind(t, op, rebinding(t, op, nil)) // a life of its own
		if _, err := op.MoveCheckpoint(t.Context(), lobwriter.CheckpointMove{Partition: 0, Life: 2, To: At(1), ClaimID: operatorClaim}); err != nil {
			t.Error(err)
		}
	}},
	{"a partition that was never claimed", func(t *testing.T, f Fixture) {
		Bind(t, f.Store)
		op := f.Operator(t)
		got, err := op.MoveCheckpoint(t.Context(), lobwriter.CheckpointMove{Partition: 2, Life: 1, To: At(5), ClaimID: operatorClaim})
		if err != nil || got.Checkpoint != At(5) {
			t.Fatalf("moved to %+v, %v", got, err)
		}
		if o := NewOwner(t, f.Store, 2); o.Claim.Fence.Checkpoint != At(5) {
			t.Errorf("claimed %+v", o.Claim.Fence)
		}
	}},
	{"open documents become incomplete, with the reason", func(t *testing.T, f Fixture) {
		op := f.Operator(t)
		other := NewOwner(t, f.Store, 2)
		other.Flush(t, other.Append("elsewhere", Text(1, "x")))
		o := NewOwner(t, f.Store, 1)
		o.Flush(t, o.Append("a", Text(1, "x")), o.Append("b", Text(2, "x")), o.Append("complete", Final(3, "x")), o.Append("holed", Hole(4), Final(5, "")))
		move := lobwriter.CheckpointMove{Partition: 1, Life: 1, From: At(5), To: At(9), ClaimID: operatorClaim, Reason: "gap: é", Keys: []string{"a", "complete", "nobody"}}
		if _, err := op.MoveCheckpoint(t.Context(), move); err != nil {
			t.Fatal(err)
		}
		states := func(want ...lobwriter.State) {
			t.Helper()
			for i, key := range []string{"a", "b", "complete", "elsewhere", "holed"} {
				d, err := f.Reader.Document(t.Context(), key)
				if err != nil || d.State != want[i] || (d.Reason == "gap: é") != (d.State == lobwriter.Incomplete && key != "holed") {
					t.Errorf("%s: %+v, %v", key, d.Row, err)
				}
			}
		}
		states(lobwriter.Incomplete, lobwriter.Open, lobwriter.Complete, lobwriter.Open, lobwriter.Incomplete)
		move.From, move.To, move.Keys = At(9), At(10), nil
		if _, err := op.MoveCheckpoint(t.Context(), move); err != nil {
			t.Fatal(err)
		}
		states(lobwriter.Incomplete, lobwriter.Incomplete, lobwriter.Complete, lobwriter.Open, lobwriter.Incomplete)
	}},
	{"a new life begins without a checkpoint, and documents go on", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		o.Flush(t, o.Append("open", Text(7, "<a>")), o.Append("complete", Final(8, "<c/>")))
		r := rebinding(t, op, nil)
		rebind(t, op, r)
		_, err := f.Store.Flush(t.Context(), o.NewFlush(o.Append("open", Text(9, "x"))))
		kind(t, err, lobwriter.Fenced)
		if b, err := op.Binding(t.Context()); err != nil || b != r.To {
			t.Errorf("bound to %+v, %v", b, err)
		}
		for p := range r.To.Partitions {
			if f := fence(t, f.Store, p); f.Life != 2 || f.Checkpoint.Seq != 0 || f.Highest.Seq != 0 || f.Epoch == 0 || f.ClaimID != operatorClaim {
				t.Errorf("partition %d: %+v", p, f)
			}
		}
		again := NewOwner(t, f.Store, 1)
		if again.Claim.Fence.Life != 2 {
			t.Fatalf("claimed %+v", again.Claim.Fence)
		}
		again.Rows = o.Rows
		statuses(t, again.Flush(t, again.Append("open", Final(1, "</a>"))), lobwriter.Appended)
		f.document(t, "open", "<a></a>")
		f.document(t, "complete", "<c/>")
	}},
	{"in a new life open documents may begin again", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 1), f.Operator(t)
		o.Flush(t, o.Append("open", Text(7, letters(2*op.Limits().ChunkBytes))), o.Append("complete", Final(8, "<c/>")), o.Append("incomplete", Hole(9), Final(10, "x")))
		rebind(t, op, rebinding(t, op, func(r *lobwriter.Rebinding) { r.Restart = true }))
		f.document(t, "complete", "<c/>")
		for _, key := range []string{"open", "incomplete"} {
			if d := f.document(t, key, ""); d.Row != o.Rows[key].Restarted(2) {
				t.Errorf("%s: %+v", key, d.Row)
			}
		}
		again := NewOwner(t, f.Store, 1)
		again.Rows["open"] = row(t, f.Store, 1, "open")
		statuses(t, again.Flush(t, again.Append("open", Text(1, "<a>"), Final(3, "</a>"))), lobwriter.Appended)
		if d := f.document(t, "open", "<a></a>"); d.Generation != 2 || d.First != 1 || d.Fragments != 2 || d.State != lobwriter.Complete {
			t.Errorf("document %+v", d)
		}
	}},
	{"another number of partitions", func(t *testing.T, f Fixture) {
		o, op := NewOwner(t, f.Store, 3), f.Operator(t)
		o.Flush(t, o.Append("k", Text(7, "<a>")), o.Append("l", Text(8, "x")))
		r := rebinding(t, op, func(r *lobwriter.Rebinding) {
			r.To.Life, r.To.Partitions, r.To.Created, r.Checkpoint = 1, 2, r.From.Created, At(8)
			r.PartitionOf = func(key string) int { return len(key) - 1 + int(key[0]-'k') }
		})
		kind(t, op.Rebind(t.Context(), r), lobwriter.Held)
		if d := f.document(t, "k", "<a>"); d.Partition != 3 {
			t.Errorf("document %+v", d)
		}
		if err := f.Store.Release(t.Context(), o.Claim); err != nil {
			t.Fatal(err)
		}
		rebind(t, op, r)
		for p, key := range []string{"k", "l"} {
			if d, err := op.Document(t.Context(), key); err != nil || d.Partition != p {
				t.Errorf("%s: %+v, %v", key, d, err)
			}
			if f := fence(t, f.Store, p); f.Checkpoint != At(8) || f.Highest != At(8) || f.Life != 1 {
				t.Errorf("partition %d: %+v", p, f)
			}
		}
		if _, err := f.Store.Claim(t.Context(), request(ada, id1)); err != nil { // partition 1
			t.Error(err)
		}
		_, err := f.Store.Claim(t.Context(), lobwriter.ClaimRequest{Partition: 2, MemberID: o.Claim.MemberID, ClaimID: operatorClaim, Lease: time.Hour})
		kind(t, err, lobwriter.Invalid)
	}},
	{"not when the binding is another one", func(t *testing.T, f Fixture) {
		NewOwner(t, f.Store, 1)
		op := f.Operator(t)
		r := rebinding(t, op, func(r *lobwriter.Rebinding) { r.From.Life = 3 })
		kind(t, op.Rebind(t.Context(), r), lobwriter.Fenced)
		if b, err := op.Binding(t.Context()); err != nil || b.Life != 1 {
			t.Errorf("bound to %+v, %v", b, err)
		}
	}},
}

// rebinding is one to the next life of the stream.
func rebinding(t *testing.T, op lobwriter.Operator, change func(*lobwriter.Rebinding)) lobwriter.Rebinding {
	t.Helper()
	b, err := op.Binding(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := lobwriter.Rebinding{From: b, To: b, ClaimID: operatorClaim}
	r.To.Life++
	r.To.Created++
	if change != nil {
		change(&r)
	}
	return r
}

func rebind(t *testing.T, op lobwriter.Operator, r lobwriter.Rebinding) {
	t.Helper()
	if err := op.Rebind(t.Context(), r); err != nil {
		t.Fatalf("rebind: %v", err)
	}
}

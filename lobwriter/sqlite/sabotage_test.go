package sqlite_test

import (
	"flag"
	"testing"

	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

var sabotageAll = flag.Bool("sabotage", false, "leave out every comparison of the store once, not only two of them; takes minutes")

// sabotages leave out the comparisons of the store, each once. What a second one
// guards too is left out with it.
var sabotages = []lobtest.Sabotage{
	fence("life", " || fence.Life != f.Life", "", `FAIL.*/life_(above|below)`),
	fence("epoch", " || fence.Epoch != f.Epoch", "", `FAIL.*/epoch_(above|below)`),
	fence("claim ID", " || fence.ClaimID != f.ClaimID", "", `FAIL.*/(no_)?claim_ID`),
	fence("flush number", " || fence.Flush != f.Number {", " {", `FAIL.*/flush_number_(above|below)`),
	fence("all of it", "if !claimed || fence.Life != f.Life || fence.Epoch != f.Epoch || fence.ClaimID != f.ClaimID || fence.Flush != f.Number {", "if claimed && false {", `FAIL.*/(a_partition_that_was_never_claimed|life_above)`),

	flush("the flush number rises", "Checkpoint", "\tfence.Flush++\n", "", `FAIL.*/Checkpoint/`),
	flush("the checkpoint moves only if every group is stored", "Checkpoint", "if stored && f.Checkpoint.Seq", "if f.Checkpoint.Seq", `FAIL.*/the_checkpoint_stays_if_a_group_is_stale`),
	flush("a group that is already there lets the checkpoint move", "Checkpoint", " || a.Status == lobwriter.AlreadyThere)", ")", `FAIL.*/the_checkpoint_moves_if_every_group`),
	flush("the checkpoint moves only forward", "Checkpoint", "if stored && f.Checkpoint.Seq > fence.Checkpoint.Seq {", "if stored && f.Checkpoint.Seq > 0 {", `FAIL.*/checkpoint_and_highest_move_only_forward`),
	flush("highest moves only forward", "Checkpoint", "if f.Highest.Seq > fence.Highest.Seq {", "if f.Highest.Seq > 0 {", `FAIL.*/checkpoint_and_highest_move_only_forward`),

	flush("already there", "Answers", "case !row.Mark.Before(last):", "case row.Mark.Before(last) && false:", `FAIL.*/last_is_the_mark`),
	flush("the row believed is the stored one", "Answers", "case !row.Same(g.Believed) || !row", "case !row", `FAIL.*/absent,_but_a_row_is_believed`),
	flush("a group begins above the mark", "Answers", "|| !row.Mark.Before(first):", "|| first.Life == 0:", `FAIL.*/first_is_the_mark`),
	flush("what is closed takes no text and no state", "Answers", "case row.State.Closed() && g.Carries():", "case false:", `FAIL.*/text_to_a_complete_document`),
	flush("what is no text is refused", "Rejected", "if code, text := refusal(g.Chunks); code", "if code, text := refusal(nil); code", `FAIL.*/U\+0000`),

	row("generation", "r.Generation == o.Generation && ", "", `FAIL.*/other_generation`),
	row("state", "r.State == o.State && ", "", `FAIL.*/other_state`),
	row("mark", "r.Mark == o.Mark && ", "", `FAIL.*/(higher|lower)_mark_believed`),
	row("length", "r.Bytes == o.Bytes && ", "", `FAIL.*/other_length`),
	row("checksum", " && r.CRC == o.CRC", "", `FAIL.*/other_checksum`),

	lease("a lease that somebody else holds is held", "Claim", "l.until > now && l.memberID != r.MemberID", "false", `FAIL.*/a_lease_that_somebody_else_holds`),
	lease("an own lease is taken", "Claim", "l.until > now && l.memberID != r.MemberID", "l.until > now", `FAIL.*/an_own_lease_is_taken`),
	lease("an expired lease is taken", "Claim", "l.until > now && l.memberID", "l.memberID != \"\" && l.memberID", `FAIL.*/an_expired_lease_is_taken`),
	lease("a claim raises the epoch", "Claim", "\t\tc.Fence.Epoch++\n", "\t\tc.Fence.Epoch = max(c.Fence.Epoch, 1)\n", `FAIL.*/an_own_lease_is_taken_again`),
	lease("a claim stores its ID", "Claim", "\t\tc.Fence.ClaimID = r.ClaimID\n", "", `FAIL.*/Claim/`),
	lease("a claim sets the flush number to 0", "Claim", "\t\tc.Fence.Flush = 0\n", "", `FAIL.*/a_claim_sets_the_flush_number`),
	lease("there are so many partitions", "Claim", " || r.Partition >= b.Partitions", "", `FAIL.*/a_partition_that_there_is_not`),
	lease("a renewal is of the current claim", "Renew", "if !l.of(c) {", "if l.epoch < 0 {", `FAIL.*/renew_of_a_claim_that_is_no_longer_current`),
	lease("a renewal is of the current claim, by epoch and claim ID", "Renew", " && l.epoch == c.Fence.Epoch && l.claimID == c.Fence.ClaimID", "", `FAIL.*/renew_of_a_claim_that_is_no_longer_current`),
	lease("a release is of the current claim", "Claim", "where partition = ? and member_id = ? and epoch = ? and claim_id = ?`,\n\t\t\tc.Partition, c.MemberID, c.Fence.Epoch, c.Fence.ClaimID)", "where partition = ?`, c.Partition)", `FAIL.*/release_of_a_claim_that_is_no_longer_current`),
}

func leaveOut(rule, topic, file, old, text, noticed string) lobtest.Sabotage {
	return lobtest.Sabotage{Rule: rule, Run: "^TestContract$/^shared$/^" + topic + "$", Noticed: noticed,
		Edits: []lobtest.Edit{{File: file, Old: old, New: text}}}
}

func fence(what, old, text, noticed string) lobtest.Sabotage {
	return leaveOut("the fence compares "+what, "Fence", "store.go", old, text, noticed)
}

func flush(rule, topic, old, text, noticed string) lobtest.Sabotage {
	return leaveOut(rule, topic, "store.go", old, text, noticed)
}

func row(what, old, text, noticed string) lobtest.Sabotage {
	return leaveOut("rows are compared by "+what, "Answers", "../store.go", old, text, noticed)
}

func lease(rule, topic, old, text, noticed string) lobtest.Sabotage {
	return leaveOut(rule, topic, "claim.go", old, text, noticed)
}

// TestSabotage shows that the contract's suite notices what is left out.
func TestSabotage(t *testing.T) {
	lobtest.CheckSabotages(t, *sabotageAll, sabotages,
		"the fence compares flush number", "the checkpoint moves only if every group is stored")
}

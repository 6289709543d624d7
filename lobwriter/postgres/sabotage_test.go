package postgres_test

import (
	"flag"
	"testing"

	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

var sabotageAll = flag.Bool("sabotage", false, "leave out every comparison of the store once, not only two of them; takes minutes")

// functions is where the comparisons of a flush and of a claim are.
const functions = "../../deploy/postgres/00002_functions.sql"

// The comparison of the fence row with a flush, and that of a document's row with
// the believed one.
const (
	fenceIs = `(fence.life, fence.epoch, fence.claim_id, fence.flush)
                    is distinct from (in_life, in_epoch, in_claim_id, in_flush)`
	rowIs = `(generation, state, life, seq, bytes, crc) is distinct from
                  (believed_generation, believed_state, believed_life, believed_seq, believed_bytes, believed_crc)`
)

// sabotages leave out the comparisons of the store, each once. What a second one
// guards too is left out with it.
var sabotages = []lobtest.Sabotage{
	inSQL("the fence compares life", "Fence", fenceIs, `(fence.epoch, fence.claim_id, fence.flush) is distinct from (in_epoch, in_claim_id, in_flush)`, `FAIL.*/life_(above|below)`),
	inSQL("the fence compares epoch", "Fence", fenceIs, `(fence.life, fence.claim_id, fence.flush) is distinct from (in_life, in_claim_id, in_flush)`, `FAIL.*/epoch_(above|below)`),
	inSQL("the fence compares claim ID", "Fence", fenceIs, `(fence.life, fence.epoch, fence.flush) is distinct from (in_life, in_epoch, in_flush)`, `FAIL.*/(no_)?claim_ID`),
	inSQL("the fence compares flush number", "Fence", fenceIs, `(fence.life, fence.epoch, fence.claim_id) is distinct from (in_life, in_epoch, in_claim_id)`, `FAIL.*/flush_number_(above|below)`),
	inSQL("the fence compares all of it", "Fence", "if not claimed or "+fenceIs, "if false", `FAIL.*/(a_partition_that_was_never_claimed|life_above)`),
	inSQL("a flush locks the fence row before it reads it", "(Claim|Races)", "partition = in_partition for update;\n  claimed := found;", "partition = in_partition;\n  claimed := found;", `FAIL.*/(Claim|Races)/`),

	inSQL("the flush number rises", "Checkpoint", "fence.flush := fence.flush + 1;", "", `FAIL.*/Checkpoint/`),
	inSQL("the checkpoint moves only if every group is stored", "Checkpoint", "     and cardinality(groups) = (select count(*) from unnest(answers) where status in (1, 4)) then", "     then", `FAIL.*/the_checkpoint_stays_if_a_group_is_stale`),
	inSQL("a group that is already there lets the checkpoint move", "Checkpoint", "where status in (1, 4)) then", "where status = 4) then", `FAIL.*/the_checkpoint_moves_if_every_group`),
	inSQL("the checkpoint moves only forward", "Checkpoint", "if in_checkpoint > fence.checkpoint\n", "if in_checkpoint > 0\n", `FAIL.*/checkpoint_and_highest_move_only_forward`),
	inSQL("highest moves only forward", "Checkpoint", "if in_highest > fence.highest then", "if in_highest > 0 then", `FAIL.*/checkpoint_and_highest_move_only_forward`),

	inSQL("already there", "Answers", "when (life, seq) >= (in_life, seq_to) then 1", "when false then 1", `FAIL.*/last_is_the_mark`),
	inSQL("the row believed is the stored one", "Answers", rowIs, "false", `FAIL.*/absent,_but_a_row_is_believed`),
	inSQL("rows are compared by generation", "Answers", rowIs, `(state, life, seq, bytes, crc) is distinct from (believed_state, believed_life, believed_seq, believed_bytes, believed_crc)`, `FAIL.*/other_generation`),
	inSQL("rows are compared by state", "Answers", rowIs, `(generation, life, seq, bytes, crc) is distinct from (believed_generation, believed_life, believed_seq, believed_bytes, believed_crc)`, `FAIL.*/other_state`),
	inSQL("rows are compared by life", "Answers", rowIs, `(generation, state, seq, bytes, crc) is distinct from (believed_generation, believed_state, believed_seq, believed_bytes, believed_crc)`, `FAIL.*/mark_of_another_life_believed`),
	inSQL("rows are compared by mark", "Answers", rowIs, `(generation, state, life, bytes, crc) is distinct from (believed_generation, believed_state, believed_life, believed_bytes, believed_crc)`, `FAIL.*/(higher|lower)_mark_believed`),
	inSQL("rows are compared by length", "Answers", rowIs, `(generation, state, life, seq, crc) is distinct from (believed_generation, believed_state, believed_life, believed_seq, believed_crc)`, `FAIL.*/other_length`),
	inSQL("rows are compared by checksum", "Answers", rowIs, `(generation, state, life, seq, bytes) is distinct from (believed_generation, believed_state, believed_life, believed_seq, believed_bytes)`, `FAIL.*/other_checksum`),
	{Rule: "a group begins above the mark", Run: contract("Answers"), Noticed: `FAIL.*/first_is_the_mark`, Edits: []lobtest.Edit{
		{File: functions, Old: "when (life, seq) >= (in_life, seq_from) then 2", New: "when false then 2"},
		{File: functions, Old: "when (life, seq) < (in_life, seq_from) then 4", New: "else 4"},
	}},
	inSQL("what is closed takes no text and no state", "Answers", "when state in (2, 4) and (texts > 0 or after_state <> believed_state) then 3", "when false then 3", `FAIL.*/text_to_a_complete_document`),
	inSQL("a complete document is closed", "Answers", "when state in (2, 4) and", "when state = 4 and", `FAIL.*/text_to_a_complete_document`),
	inSQL("a quarantined document is closed", "Answers", "when state in (2, 4) and", "when state = 2 and", `FAIL.*/text_to_a_quarantined_document`),
	inSQL("what is closed takes no text", "Answers", "(texts > 0 or after_state <> believed_state)", "(after_state <> believed_state)", `FAIL.*/text_to_a_complete_document`),
	inSQL("what is closed takes no state", "Answers", "(texts > 0 or after_state <> believed_state)", "(texts > 0)", `FAIL.*/a_state_to_a_complete_document`),
	inGo("one group that is refused does not undo the others", "Rejected", "store.go", "if isContent(err) {", "if false {", `FAIL.*/Rejected/`),

	{Rule: "a lease that somebody else holds is held", Run: contract("Claim"), Noticed: `FAIL.*/a_lease_that_somebody_else_holds`, Edits: []lobtest.Edit{
		{File: functions, Old: "where partition = in_partition and member_id <> in_member_id and lease_until > lobsink_now();", New: "where false;"},
		{File: functions, Old: "   where l.member_id = excluded.member_id or l.lease_until <= lobsink_now();", New: "  ;"},
	}},
	{Rule: "an own lease is taken", Run: contract("Claim"), Noticed: `FAIL.*/an_own_lease_is_taken`, Edits: []lobtest.Edit{
		{File: functions, Old: "   where l.member_id = excluded.member_id or l.lease_until <= lobsink_now();", New: "   where l.lease_until <= lobsink_now();"},
	}},
	{Rule: "an expired lease is taken", Run: contract("Claim"), Noticed: `FAIL.*/an_expired_lease_is_taken`, Edits: []lobtest.Edit{
		{File: functions, Old: "   where l.member_id = excluded.member_id or l.lease_until <= lobsink_now();", New: "   where l.member_id = excluded.member_id;"},
	}},
	inSQL("a claim raises the epoch", "Claim", "update lobsink_fences f set epoch = f.epoch + 1, claim_id", "update lobsink_fences f set epoch = 1, claim_id", `FAIL.*/an_own_lease_is_taken_again`),
	inSQL("a claim stores its ID", "Claim", "set epoch = f.epoch + 1, claim_id = in_claim_id, flush = 0", "set epoch = f.epoch + 1, flush = 0", `FAIL.*/Claim/`),
	inSQL("a claim sets the flush number to 0", "Claim", "claim_id = in_claim_id, flush = 0\n", "claim_id = in_claim_id\n", `FAIL.*/a_claim_sets_the_flush_number`),
	inSQL("there are so many partitions", "Claim", "where in_partition >= 0 and in_partition < partitions;", "where in_partition >= 0;", `FAIL.*/a_partition_that_there_is_not`),
	inGo("a renewal is of the current claim", "Renew", "claim.go", "where partition = $1 and member_id = $2 and epoch = $3 and claim_id = $4\n", "where partition = $1 and ($2, $3, $4) is distinct from (''::text, 0::bigint, ''::text)\n", `FAIL.*/renew_of_a_claim_that_is_no_longer_current`),
	inGo("a release is of the current claim", "Claim", "claim.go", "where partition = $1 and member_id = $2 and epoch = $3 and claim_id = $4`, s.o.Prefix),", "where partition = $1 and ($2, $3, $4) is distinct from (''::text, 0::bigint, ''::text)`, s.o.Prefix),", `FAIL.*/release_of_a_claim_that_is_no_longer_current`),
}

func contract(topic string) string { return "^TestContract$/^" + topic + "$" }

func inSQL(rule, topic, old, text, noticed string) lobtest.Sabotage {
	return inGo(rule, topic, functions, old, text, noticed)
}

func inGo(rule, topic, file, old, text, noticed string) lobtest.Sabotage {
	return lobtest.Sabotage{Rule: rule, Run: contract(topic), Noticed: noticed,
		Edits: []lobtest.Edit{{File: file, Old: old, New: text}}}
}

// TestSabotage shows that the contract's suite notices what is left out.
func TestSabotage(t *testing.T) {
	lobtest.CheckSabotages(t, *sabotageAll, sabotages,
		"the fence compares claim ID", "the checkpoint moves only if every group is stored")
}

package postgres_test

import (
	"strings"
	"testing"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

// operatorGrants are those of deploy/postgres/00003_repairs.sql.
const operatorGrants = `
	grant select, insert, delete on lobsink_repairs to clerk;
	grant select, insert, update, delete on lobsink_purged to clerk;
	grant delete on lobsink_documents, lobsink_chunks, lobsink_fences to clerk`

// A user with no more than these privileges, and those of lobsink run, repairs.
func TestOperatorPrivileges(t *testing.T) {
	o := database(t, shared)
	query(t, o, `create role clerk login`)
	query(t, o, strings.NewReplacer("to member", "to clerk").Replace(grants))
	o.URL = strings.Replace(o.URL, "postgres@", "clerk@", 1)
	own := claim(t, open(t, o), 1)
	own.Flush(t, own.Append("k", lobtest.Text(1, "<a>")), own.Append("done", lobtest.Final(2, "x")))
	admin := o
	admin.URL = strings.Replace(o.URL, "clerk@", "postgres@", 1)
	query(t, admin, operatorGrants)
	op := openOperator(t, o)
	b, err := op.Build(t.Context(), 1, "k", 2)
	if err != nil {
		t.Fatal(err)
	}
	chunks := [][]byte{[]byte("<A>")}
	row := own.Rows["k"]
	row.Generation, row.Bytes, row.Units, row.Chunks, row.CRC = 2, 0, 0, 0, 0
	row = row.Grow(lobwriter.Runes, chunks)
	if err := b.Append(t.Context(), chunks); err != nil {
		t.Fatal(err)
	}
	repairs := []lobwriter.Repair{{Mark: row.Mark, Text: []byte("<A>")}}
	if _, swapped, err := b.Swap(t.Context(), row, repairs); err != nil || !swapped {
		t.Fatal(swapped, err)
	}
	b.Close()
	lobtest.CheckDocument(t, op, lobwriter.Runes, "k", "<A>")
	if done, err := op.Purge(t.Context(), lobwriter.Purge{Partition: 1, Keys: []string{"done"}, State: lobwriter.Complete}); err != nil || done.Documents != 1 {
		t.Errorf("purge: %+v, %v", done, err)
	}
	f, err := op.Fence(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := op.MoveCheckpoint(t.Context(), lobwriter.CheckpointMove{Partition: 1, Life: 1, From: f.Checkpoint, To: lobtest.At(9), ClaimID: "00000000000000ee"}); err != nil {
		t.Errorf("move: %v", err)
	}
	if err := own.Store.Release(t.Context(), own.Claim); err != nil {
		t.Fatal(err)
	}
	bound, err := op.Binding(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := lobwriter.Rebinding{From: bound, To: bound, ClaimID: "00000000000000ee", Restart: true, PartitionOf: func(string) int { return 0 }}
	r.To.Partitions, r.To.Life = 2, 2
	if err := op.Rebind(t.Context(), r); err != nil {
		t.Errorf("rebind: %v", err)
	}
}

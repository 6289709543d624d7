package standin

import (
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// beginBuild is Rebuilder.Build.
func beginBuild(x *context, c *Call) error {
	partition, key, generation := c.number("p_partition"), c.text("p_key"), c.number("p_generation")
	if c.fault != nil {
		return c.fault
	}
	x.session.endBuild()
	b, err := x.schema.Memory.Build(background, int(partition), key, generation)
	x.session.build = b
	return err
}

// appendBuild is Build.Append.
func appendBuild(x *context, c *Call) error {
	_, _, _, data := c.number("p_partition"), c.text("p_key"), c.number("p_generation"), c.raws("p_data")
	switch {
	case c.fault != nil:
		return c.fault
	case x.session.build == nil:
		return failure(20810, "this session is not building that generation")
	}
	if err := x.session.build.Append(background, data); err != nil {
		return failure(errText, "%v", err)
	}
	return nil
}

// swapBuild is Build.Swap.
func swapBuild(x *context, c *Call) error {
	n := c.number
	partition, _ := n("p_partition"), c.text("p_key")
	row := lobwriter.Row{
		Generation: n("p_generation"), State: lobwriter.State(n("p_state")), Mark: lobwriter.Mark{Life: n("p_life"), Seq: uint64(n("p_seq"))},
		First: uint64(n("p_first_seq")), Fragments: n("p_fragments"), Holes: n("p_holes"), Late: n("p_late"), Bytes: n("p_bytes"), Units: n("p_units"),
		Chunks: n("p_chunks"), CRC: uint32(n("p_crc")), Reason: c.text("p_reason"),
	}
	decided := c.repairs()
	switch {
	case c.fault != nil:
		return c.fault
	case x.session.build == nil:
		return failure(20810, "this session is not building that generation")
	}
	unlock, err := x.lockFence(partition)
	if err != nil {
		return err
	}
	defer unlock()
	stored, swapped, err := x.session.build.Swap(background, row, decided)
	if err != nil {
		return failure(20810, "%v", err)
	}
	outcome := int64(refused)
	if swapped {
		outcome, stored = done, lobwriter.Row{}
	}
	c.setNumber("p_outcome", outcome)
	var one lobRows
	one.add(stored)
	for i, name := range rowColumns {
		c.setNumber("p_row_"+name, one[i][0])
	}
	c.setText("p_row_reason", stored.Reason)
	return nil
}

// repairs reads the repairs of a swap.
func (c *Call) repairs() (all []lobwriter.Repair) {
	life, seq, omit, pieces, data := c.numbers("p_repair_life"), c.numbers("p_repair_seq"), c.numbers("p_repair_omit"), c.numbers("p_repair_pieces"), c.raws("p_repair_data")
	if len(seq) != len(life) || len(omit) != len(life) || len(pieces) != len(life) {
		c.fail(failure(20810, "tables of different lengths"))
		return nil
	}
	for i := range life {
		one := lobwriter.Repair{Mark: lobwriter.Mark{Life: life[i], Seq: uint64(seq[i])}, Omit: omit[i] == 1}
		if !one.Omit {
			one.Text = []byte{}
		}
		for range pieces[i] {
			one.Text = append(one.Text, data[0]...)
			data = data[1:]
		}
		all = append(all, one)
	}
	return all
}

// repairs is RepairReader.Repairs.
func repairs(x *context, c *Call) error {
	key, after := c.text("p_key"), lobwriter.Mark{Life: c.number("p_after_life"), Seq: uint64(c.number("p_after_seq"))}
	if c.fault != nil {
		return c.fault
	}
	all, err := x.schema.Memory.Repairs(background, key)
	var life, seq, omit, bytes []int64
	for _, r := range all {
		if !after.Before(r.Mark) {
			continue
		}
		o := int64(0)
		if r.Omit {
			o = 1
		}
		life, seq, omit, bytes = append(life, r.Mark.Life), append(seq, int64(r.Mark.Seq)), append(omit, o), append(bytes, int64(len(r.Text)))
	}
	c.setNumbers("p_life", life)
	c.setNumbers("p_seq", seq)
	c.setNumbers("p_omit", omit)
	c.setNumbers("p_bytes", bytes)
	c.setNumber("p_more", 0)
	return err
}

// readRepair gives the text of a repair.
func readRepair(x *context, c *Call) error {
	key, mark, from := c.text("p_key"), lobwriter.Mark{Life: c.number("p_life"), Seq: uint64(c.number("p_seq"))}, c.number("p_from")
	if c.fault != nil {
		return c.fault
	}
	all, err := x.schema.Memory.Repairs(background, key)
	var pieces [][]byte
	for _, r := range all {
		for r.Mark == mark && from <= int64(len(r.Text)) && len(pieces) < bodyPieces {
			piece := r.Text[from-1 : min(int64(len(r.Text)), from-1+int64(limits.ChunkBytes))]
			pieces = append(pieces, piece)
			from += int64(len(piece))
		}
	}
	c.setRaws("p_data", pieces)
	c.setNumber("p_next", from)
	return err
}

// purge is Purger.Purge.
func purge(x *context, c *Call) error {
	p := lobwriter.Purge{
		Partition: int(c.number("p_partition")), Keys: c.texts("p_key"), State: lobwriter.State(c.number("p_state")),
		Older: time.Duration(c.number("p_older")), DryRun: c.number("p_dry_run") == 1,
	}
	if c.fault != nil {
		return c.fault
	}
	unlock, err := x.lockFence(int64(p.Partition))
	if err != nil {
		return err
	}
	defer unlock()
	r, err := x.schema.Memory.Purge(background, p)
	c.setNumber("p_documents", int64(r.Documents))
	c.setNumber("p_bytes", r.Bytes)
	c.setNumber("p_above", int64(r.Above))
	return err
}

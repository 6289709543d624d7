package standin

import (
	"cmp"
	gocontext "context"
	"errors"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// The procedures of package lobsink_v1, as deploy/oracle/00002_lobsink_v1.sql says
// what they do. Each reads its parameters, lets the reference store do it, and
// gives back what that says.

// procedures is the table of them.
var procedures = map[string]func(*context, *Call) error{
	"environment":   environment,
	"bind":          bindStream,
	"binding":       binding,
	"attend":        attend,
	"roster":        roster,
	"leave":         leave,
	"claim":         claim,
	"renew":         renew,
	"release_claim": releaseClaim,
	"fence":         fence,
	"flush":         flush,
	"stored_rows":   storedRows,
	"documents":     documents,
	"read_body":     readBody,
	"begin_build":   beginBuild,
	"append_build":  appendBuild,
	"swap_build":    swapBuild,
	"repairs":       repairs,
	"read_repair":   readRepair,
	"purge":         purge,
}

// builds are those that belong to one transaction, which the client ends.
var builds = map[string]bool{"begin_build": true, "append_build": true, "swap_build": true}

// background is the context of calls of the reference store, which does not wait.
var background = gocontext.Background()

// Outcomes of calls.
const (
	done    = 1
	refused = 2
	unknown = 3
	busy    = 4
)

// schemaVersion is the version that the tables say they have.
const schemaVersion = 3

func environment(x *context, c *Call) error {
	p := x.session.place
	c.setNumber("p_schema_version", schemaVersion)
	c.setText("p_role", p.Role)
	c.setText("p_character_set", p.CharacterSet)
	c.setText("p_database", p.Database)
	c.setText("p_container", p.Container)
	c.setText("p_instance", p.Instance)
	c.setText("p_service", x.session.service)
	return nil
}

func bindStream(x *context, c *Call) error {
	stream := lobwriter.Stream{Name: c.text("p_stream"), Created: c.number("p_created"), Partitions: int(c.number("p_partitions"))}
	if c.fault != nil {
		return c.fault
	}
	// That another stream is stored is for the client to find.
	if _, err := x.schema.Memory.Bind(background, stream); err != nil && lobwriter.KindOf(err) != lobwriter.Fatal {
		return err
	}
	return binding(x, c)
}

func binding(x *context, c *Call) error {
	b, err := x.schema.Memory.Binding(background)
	if errors.Is(err, lobwriter.ErrNotFound) {
		b, err = lobwriter.Binding{DatabaseID: "0badcafe"}, nil
	}
	c.setText("p_database_id", cmp.Or(x.schema.identity(), b.DatabaseID))
	c.setNumber("p_life", b.Life)
	c.setText("p_stored_stream", b.Name)
	c.setNumber("p_stored_created", b.Created)
	c.setNumber("p_stored_partitions", int64(b.Partitions))
	return err
}

func leave(x *context, c *Call) error { return x.schema.Memory.Leave(background, c.text("p_id")) }

func claim(x *context, c *Call) error {
	r := lobwriter.ClaimRequest{
		Partition: int(c.number("p_partition")), MemberID: c.text("p_member_id"), ClaimID: c.text("p_claim_id"), Lease: time.Duration(c.number("p_lease")),
	}
	if c.fault != nil {
		return c.fault
	}
	give := func(outcome int64, holder string, left time.Duration, f lobwriter.Fence) error {
		c.setNumber("p_outcome", outcome)
		c.setText("p_holder", holder)
		c.setNumber("p_held_for", int64(left))
		c.setFence(f)
		return nil
	}
	b, err := x.schema.Memory.Binding(background)
	if err != nil || r.Partition < 0 || r.Partition >= b.Partitions {
		return give(unknown, "", 0, lobwriter.Fence{})
	}
	unlock, err := x.lockFence(int64(r.Partition))
	if err != nil {
		return err
	}
	defer unlock()
	unlockLease, ok := x.lockLease(int64(r.Partition))
	if !ok {
		f, err := x.schema.Memory.Fence(background, r.Partition)
		return errors.Join(err, give(busy, "", 0, f))
	}
	defer unlockLease()
	got, err := x.schema.Memory.Claim(background, r)
	if lobwriter.KindOf(err) == lobwriter.Held {
		holder, left, err := x.holder(r.Partition)
		if err != nil {
			return err
		}
		f, err := x.schema.Memory.Fence(background, r.Partition)
		return errors.Join(err, give(refused, holder, left, f))
	}
	return errors.Join(err, give(done, "", 0, got.Fence))
}

// holder returns whose lease a partition has.
func (x *context) holder(partition int) (string, time.Duration, error) {
	r, err := x.schema.Memory.Roster(background)
	for _, l := range r.Leases {
		if l.Partition == partition {
			return l.MemberID, l.Left, err
		}
	}
	return "nobody", 0, err
}

// claimOf reads which claim a lease must be of.
func (c *Call) claimOf() lobwriter.Claim {
	return lobwriter.Claim{
		Partition: int(c.number("p_partition")), MemberID: c.text("p_member_id"),
		Fence: lobwriter.Fence{Epoch: c.number("p_epoch"), ClaimID: c.text("p_claim_id")},
	}
}

func renew(x *context, c *Call) error {
	of, lease := c.claimOf(), time.Duration(c.number("p_lease"))
	if c.fault != nil {
		return c.fault
	}
	outcome := int64(busy)
	if unlock, ok := x.lockLease(int64(of.Partition)); ok {
		defer unlock()
		outcome = done
		_, err := x.schema.Memory.Renew(background, of, lease)
		if lobwriter.KindOf(err) == lobwriter.Fenced {
			outcome, err = refused, nil
		}
		if err != nil {
			return err
		}
	}
	c.setNumber("p_outcome", outcome)
	f, err := x.schema.Memory.Fence(background, of.Partition)
	c.setFence(f)
	return err
}

func releaseClaim(x *context, c *Call) error {
	of := c.claimOf()
	if c.fault != nil {
		return c.fault
	}
	unlock, ok := x.lockLease(int64(of.Partition))
	if !ok {
		c.setNumber("p_outcome", busy)
		return nil
	}
	defer unlock()
	c.setNumber("p_outcome", done)
	return x.schema.Memory.Release(background, of)
}

func fence(x *context, c *Call) error {
	f, err := x.schema.Memory.Fence(background, int(c.number("p_partition")))
	c.setFence(f)
	return err
}

func (c *Call) setFence(f lobwriter.Fence) {
	c.setNumber("p_stored_life", f.Life)
	c.setNumber("p_stored_epoch", f.Epoch)
	c.setText("p_stored_claim_id", f.ClaimID)
	c.setNumber("p_stored_flush", f.Flush)
	c.setNumber("p_stored_checkpoint", int64(f.Checkpoint.Seq))
	c.setNumber("p_stored_checkpoint_time", f.Checkpoint.Time)
	c.setNumber("p_stored_highest", int64(f.Highest.Seq))
	c.setNumber("p_stored_highest_time", f.Highest.Time)
}

// attend is Store.Attend.
func attend(x *context, c *Call) error {
	m := lobwriter.Member{ID: c.text("p_id"), Name: c.text("p_name"), Version: c.text("p_version")}
	lease := time.Duration(c.number("p_lease"))
	if c.fault != nil {
		return c.fault
	}
	r, err := x.schema.Memory.Attend(background, m, lease)
	c.setRoster(r, "")
	return err
}

// roster is Reader.Roster.
func roster(x *context, c *Call) error {
	after := c.text("p_after")
	if c.fault != nil {
		return c.fault
	}
	r, err := x.schema.Memory.Roster(background)
	c.setRoster(r, after)
	return err
}

func (c *Call) setRoster(r lobwriter.Roster, after string) {
	var id, name, version, left, partition, leaseID, leaseLeft []int64
	var packed, leases packedText
	more := int64(0)
	for _, p := range r.Members {
		if p.ID <= after {
			continue
		}
		if !packed.has(p.ID, p.Name, p.Version) {
			more = 1
			break
		}
		id, name, version = append(id, packed.tryAdd(p.ID)), append(name, packed.tryAdd(p.Name)), append(version, packed.tryAdd(p.Version))
		left = append(left, int64(p.Left))
	}
	for _, l := range r.Leases {
		partition, leaseID, leaseLeft = append(partition, int64(l.Partition)), append(leaseID, leases.tryAdd(l.MemberID)), append(leaseLeft, int64(l.Left))
	}
	c.setNumbers("p_id_bytes", id)
	c.setNumbers("p_name_bytes", name)
	c.setNumbers("p_version_bytes", version)
	c.setNumbers("p_left", left)
	c.setText("p_texts", string(packed))
	c.setNumber("p_more", more)
	c.setNumbers("p_lease_partition", partition)
	c.setNumbers("p_lease_id_bytes", leaseID)
	c.setNumbers("p_lease_left", leaseLeft)
	c.setText("p_lease_texts", string(leases))
}

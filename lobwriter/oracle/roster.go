package oracle

import (
	"context"
	"database/sql"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

const (
	// maxMembers is how many members one call returns; the texts of more would
	// hardly have room.
	maxMembers = 512
	// maxLeases is how many leases one call returns, which is all of them: it is
	// above every number of partitions that makes sense.
	maxLeases = 4096
)

// rosterOut takes a roster.
type rosterOut struct {
	id, name, version, left []number
	texts                   string
	more                    number

	partition, leaseID, leaseLeft []number
	leaseTexts                    string
}

func newRosterOut() *rosterOut {
	return &rosterOut{
		id: room(maxMembers), name: room(maxMembers), version: room(maxMembers), left: room(maxMembers),
		partition: room(maxLeases), leaseID: room(maxLeases), leaseLeft: room(maxLeases),
	}
}

func (o *rosterOut) binds() []any {
	return []any{
		out("p_id_bytes", &o.id), out("p_name_bytes", &o.name), out("p_version_bytes", &o.version), out("p_left", &o.left),
		out("p_texts", &o.texts), out("p_more", &o.more),
		out("p_lease_partition", &o.partition), out("p_lease_id_bytes", &o.leaseID), out("p_lease_left", &o.leaseLeft), out("p_lease_texts", &o.leaseTexts),
	}
}

// roster returns the roster, and asks for the members that had no room.
func (o *rosterOut) roster(ctx context.Context, options Options, db *sql.DB) (r lobwriter.Roster, err error) {
	const op = "read the roster"
	if r.Leases, err = o.leases(); err != nil {
		return lobwriter.Roster{}, classify(op, err)
	}
	for {
		page, err := o.members()
		if err != nil {
			return lobwriter.Roster{}, classify(op, err)
		}
		r.Members = append(r.Members, page...)
		if o.more.Int64 == 0 || len(page) == 0 {
			return r, nil
		}
		o = newRosterOut()
		if _, err := call(ctx, options, db, op, rosterBlock, maxLeases, append([]any{in("p_after", page[len(page)-1].ID)}, o.binds()...)...); err != nil {
			return lobwriter.Roster{}, err
		}
	}
}

func (o *rosterOut) members() (page []lobwriter.Presence, err error) {
	n := len(o.id)
	if !whole(n, o.id, o.name, o.version, o.left) || !given(o.more) {
		return nil, errNoReply
	}
	packed := texts{o.texts}
	for i := range n {
		p := lobwriter.Presence{Left: time.Duration(o.left[i].Int64)}
		for _, f := range []struct {
			to     *string
			length number
		}{{&p.ID, o.id[i]}, {&p.Name, o.name[i]}, {&p.Version, o.version[i]}} {
			if *f.to, err = packed.next(f.length.Int64); err != nil {
				return nil, err
			}
		}
		page = append(page, p)
	}
	return page, packed.end()
}

func (o *rosterOut) leases() (all []lobwriter.Lease, err error) {
	n := len(o.partition)
	if !whole(n, o.partition, o.leaseID, o.leaseLeft) {
		return nil, errNoReply
	}
	packed := texts{o.leaseTexts}
	for i := range n {
		l := lobwriter.Lease{Partition: int(o.partition[i].Int64), Left: time.Duration(o.leaseLeft[i].Int64)}
		if l.MemberID, err = packed.next(o.leaseID[i].Int64); err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, packed.end()
}

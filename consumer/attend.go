package consumer

import (
	"context"
	"slices"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// share attends, as long as this member runs, and tells the owners which
// partitions are theirs. When stop is closed it says that this member is about to
// go, so that others take at once what the owners give back.
func (m *member) share(ctx context.Context, stop <-chan struct{}, owners []*owner) {
	s := NewShare(ShareOptions{Member: m.cfg.Member.ID, Partitions: len(owners), Lease: m.cfg.Lease, Renew: m.cfg.Renew})
	told := make([]bool, len(owners))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-stop:
			s.Stop()
			_ = m.attend(ctx, s) // if not, the member row runs out
			return
		case <-ctx.Done():
			return
		}
		s.Connected(time.Now(), m.cfg.NATS.IsConnected() && !m.silent.Load())
		if !m.attend(ctx, s) {
			timer.Reset(m.cfg.Renew / 4)
			continue
		}
		m.tell(ctx, s, owners, told)
		timer.Reset(time.Until(s.Next()))
	}
}

// attend attends once.
func (m *member) attend(ctx context.Context, s *Share) bool {
	// One that hangs leaves time for others before the member row runs out.
	call, cancel := context.WithTimeout(ctx, m.cfg.Lease/2)
	defer cancel()
	r, err := m.store.Attend(call, m.cfg.Member, s.Attendance(time.Now()))
	if ctx.Err() != nil && err != nil {
		return false // what the end has canceled says nothing
	}
	m.status.database(err)
	if err != nil {
		m.cfg.Log.Warn("members cannot be read, will try again", "kind", lobwriter.KindOf(err).String(), "err", err)
		return false
	}
	s.Attended(time.Now(), r)
	m.metrics.shared(s.Members())
	return true
}

// tell tells each owner what has changed for it.
func (m *member) tell(ctx context.Context, s *Share, owners []*owner, told []bool) {
	for i, o := range owners {
		own, ended := s.Own(i), s.Ended(i)
		if own == told[i] {
			continue
		}
		told[i] = own
		select {
		case o.events <- func(now time.Time) { o.assign(now, own, ended) }:
		case <-o.done:
		case <-ctx.Done():
		}
	}
	m.status.shares(slices.Clone(told))
}

// leave removes the member row, and frees what is still claimed.
func (m *member) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := m.store.Leave(ctx, m.cfg.Member.ID); err != nil {
		m.cfg.Log.Warn("leases not given back, they will run out", "err", err)
	}
}

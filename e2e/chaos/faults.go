package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// faults carries out a plan. Faults overlap; those of one member, of PostgreSQL
// and of the NATS cluster wait for each other.
type faults struct {
	cluster   *cluster
	db        *postgres
	members   *members
	takeovers *takeovers
	log       *slog.Logger

	natsBusy, dbBusy sync.Mutex

	mu   sync.Mutex
	done map[kind]int
}

// run carries out a plan and returns when everything is well again. It stops at
// the first fault that cannot be made or undone.
func (f *faults) run(ctx context.Context, plan []fault) error {
	f.done = map[kind]int{}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	began := time.Now()
	for _, one := range plan {
		wg.Go(func() {
			if !sleep(ctx, one.at-time.Since(began)) {
				return
			}
			if err := f.make(ctx, one); err != nil {
				cancel(fmt.Errorf("fault %s: %w", one.kind, err))
				return
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.done[one.kind]++
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return f.cluster.whole(ctx)
}

// counts returns how many faults of each kind there were.
func (f *faults) counts() map[kind]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done
}

func (f *faults) make(ctx context.Context, one fault) error {
	switch one.kind {
	case postgresStop:
		return f.stopPostgres(ctx, one)
	case leaderKill, leaderFreeze:
		return f.disturbLeader(ctx, one)
	case join:
		return f.with(ctx, one, empty, func(m *member) error { return f.members.start(m) })
	case leave:
		return f.with(ctx, one, running, func(m *member) error {
			if err := m.terminate(); err != nil {
				f.members.failed(err) // a finding; the run goes on
			}
			return nil
		})
	case kill:
		return f.killMember(ctx, one)
	case freeze:
		return f.with(ctx, one, running, func(m *member) error { return frozen(ctx, m.proc, one.last) })
	}
	return f.with(ctx, one, running, func(m *member) error {
		targets := m.nats
		switch one.kind {
		case cutPostgres, breakPostgres, silentPostgres, slowPostgres:
			targets = m.postgres
		}
		return disturb(ctx, one, targets)
	})
}

// disturb spoils links for a while.
func disturb(ctx context.Context, one fault, targets links) (err error) {
	switch one.kind {
	case cutNATS, cutPostgres:
		targets.cut()
	case breakNATS, breakPostgres:
		err = targets.spoil(broken(one.size)...)
	case silentNATS, silentPostgres:
		err = targets.spoil(silent()...)
	case slowNATS, slowPostgres:
		err = targets.spoil(slow(time.Duration(one.size) * time.Millisecond)...)
	default:
		return fmt.Errorf("not known")
	}
	if err != nil {
		return err
	}
	sleep(ctx, one.last)
	return targets.restore()
}

// with does something to a member that nobody else disturbs.
func (f *faults) with(ctx context.Context, one fault, suits func(*member) bool, do func(*member) error) error {
	m, err := f.members.acquire(ctx, suits, one.pick)
	if err != nil {
		return err
	}
	defer f.members.release(m)
	f.log.Info(string(one.kind), "member", m.name, "for", one.last.Round(time.Millisecond))
	return do(m)
}

func (f *faults) killMember(ctx context.Context, one fault) error {
	m, err := f.members.acquireOwner(ctx, f.takeovers.claims(), one.pick)
	if err != nil {
		return err
	}
	defer f.members.release(m)
	owned := m.claims.of(f.takeovers.claims())
	f.log.Info(string(one.kind), "member", m.name, "owns", len(owned), "for", one.last.Round(time.Millisecond))
	f.takeovers.lost(time.Now(), owned)
	m.kill()
	sleep(ctx, one.last)
	return f.members.start(m)
}

func (f *faults) stopPostgres(ctx context.Context, one fault) error {
	f.dbBusy.Lock()
	defer f.dbBusy.Unlock()
	f.log.Info(string(one.kind), "for", one.last.Round(time.Millisecond))
	if err := f.db.stop(); err != nil {
		return err
	}
	sleep(ctx, one.last)
	return f.db.start()
}

// disturbLeader lets the cluster become whole before the next one: it bears the
// loss of one server.
func (f *faults) disturbLeader(ctx context.Context, one fault) error {
	f.natsBusy.Lock()
	defer f.natsBusy.Unlock()
	s, err := f.cluster.leader(ctx)
	if err != nil {
		return err
	}
	f.log.Info(string(one.kind), "server", s.name, "for", one.last.Round(time.Millisecond))
	if one.kind == leaderFreeze {
		err = frozen(ctx, s.proc, one.last)
	} else {
		s.proc.kill()
		sleep(ctx, one.last)
		err = f.cluster.start(s)
	}
	if err != nil {
		return err
	}
	return f.cluster.whole(ctx)
}

// frozen stops a process where it stands for a while.
func frozen(ctx context.Context, p *process, last time.Duration) error {
	if err := p.freeze(); err != nil {
		return err
	}
	sleep(ctx, last)
	return p.thaw()
}

// sleep waits, and reports whether it has waited for that long.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

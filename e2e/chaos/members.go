package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// members are all places for lobsinks, some of them empty.
type members struct {
	binary string
	db     *postgres
	failed func(error) // is told what goes wrong with a process

	mu    sync.Mutex
	freed sync.Cond // something is not busy any more, or acquiring has ended
	all   []*member
}

// newMembers makes empty places.
func newMembers(n int, binary, dir string, c *cluster, db *postgres, free *ports, failed func(error)) (*members, error) {
	ms := &members{binary: binary, db: db, failed: failed}
	ms.freed.L = &ms.mu
	for i := range n {
		m := &member{name: fmt.Sprintf("member-%d", i+1)}
		ms.all = append(ms.all, m)
		var err error
		if m.nats, err = openLinks(m.name+"-nats", free, c.addresses()...); err != nil {
			return ms, err
		}
		if m.postgres, err = openLinks(m.name+"-postgres", free, db.host); err != nil {
			return ms, err
		}
		if m.log, err = os.Create(filepath.Join(dir, m.name+".log")); err != nil {
			return ms, err
		}
	}
	return ms, nil
}

func (ms *members) start(m *member) error { return m.start(ms.binary, ms.db, ms.failed) }

// running and empty are what may be asked of a member in acquire.
func running(m *member) bool { return m.proc != nil }

func empty(m *member) bool { return m.proc == nil }

// acquire waits for a member that nobody else has acquired and that suits, and
// picks one of several. The caller releases it.
func (ms *members) acquire(ctx context.Context, suits func(*member) bool, pick int) (*member, error) {
	defer context.AfterFunc(ctx, ms.wake)()
	ms.mu.Lock()
	defer ms.mu.Unlock()
	for ctx.Err() == nil {
		var found []*member
		for _, m := range ms.all {
			if !m.busy && suits(m) {
				found = append(found, m)
			}
		}
		if len(found) > 0 {
			m := found[pick%len(found)]
			m.busy = true
			return m, nil
		}
		ms.freed.Wait()
	}
	return nil, context.Cause(ctx)
}

// acquireOwner prefers one that owns partitions.
func (ms *members) acquireOwner(ctx context.Context, now []claim, pick int) (*member, error) {
	ms.mu.Lock()
	owners := false
	owns := func(m *member) bool { return m.proc != nil && len(m.claims.of(now)) > 0 }
	for _, m := range ms.all {
		owners = owners || !m.busy && owns(m)
	}
	ms.mu.Unlock()
	if !owners {
		owns = running
	}
	return ms.acquire(ctx, owns, pick)
}

func (ms *members) release(m *member) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m.busy = false
	ms.freed.Broadcast()
}

func (ms *members) wake() {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.freed.Broadcast()
}

// terminate ends all lobsinks in good order. Nobody may hold a member.
func (ms *members) terminate() error {
	errs := make([]error, len(ms.all))
	var wg sync.WaitGroup
	for i, m := range ms.all {
		if m.proc != nil {
			wg.Go(func() { errs[i] = m.terminate() })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// close ends everything at once.
func (ms *members) close() {
	for _, m := range ms.all {
		if m.proc != nil {
			m.kill()
		}
		m.nats.cut()
		m.postgres.cut()
		if m.log != nil {
			_ = m.log.Close() // a log of a process that has ended
		}
	}
}

package main

import (
	"errors"
	"sync"

	"github.com/nats-io/nats.go"
)

// refusal is what NATS does not let a command do. The server says it apart from
// the request, which is never answered.
type refusal struct {
	mu  sync.Mutex
	err error
}

// note is the error handler of a connection. A command that may not do what it
// has to ends at once: the connection is closed.
func (r *refusal) note(nc *nats.Conn, _ *nats.Subscription, err error) {
	if r == nil || !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	r.mu.Lock()
	r.err = err
	r.mu.Unlock()
	nc.Close()
}

// explain returns the error of a command, or what NATS did not let it do.
func (r *refusal) explain(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil || r.err == nil {
		return err
	}
	return misconfigured("NATS does not let this user do that: %w; give it the permissions of docs/security.md", r.err)
}

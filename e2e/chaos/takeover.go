package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// takeovers watches, in the database, whose the partitions are, and measures how
// long they are nobody's after the kill of an owner.
type takeovers struct {
	database string
	log      *slog.Logger

	mu      sync.Mutex
	epochs  map[int]int64 // of each partition
	held    []claim       // those with a lease row, whether it has run out or not
	pending []killed
	took    []time.Duration
}

// killed is a claim whose owner was killed.
type killed struct {
	claim
	at time.Time
}

// watchPause is how often the database is asked, and so how exactly takeovers
// are measured.
const watchPause = 25 * time.Millisecond

// watch asks until ctx ends, whether the database is there or not.
func (w *takeovers) watch(ctx context.Context) {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close(context.WithoutCancel(ctx)) // nothing depends on it any more
		}
	}()
	for ctx.Err() == nil {
		err := func() (err error) {
			call, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			if conn == nil {
				if conn, err = pgx.Connect(call, w.database); err != nil {
					return err
				}
			}
			return w.look(call, conn)
		}()
		if err != nil && conn != nil {
			_ = conn.Close(context.WithoutCancel(ctx)) // broken already
			conn = nil
		}
		select {
		case <-time.After(watchPause):
		case <-ctx.Done():
		}
	}
}

func (w *takeovers) look(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, `
		select f.partition, f.epoch, l.partition is not null
		  from lobsink_fences f left join lobsink_leases l on l.partition = f.partition and l.epoch = f.epoch`)
	if err != nil {
		return err
	}
	type state struct {
		claim
		held bool
	}
	states, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s state, err error) {
		err = row.Scan(&s.partition, &s.epoch, &s.held)
		return s, err
	})
	if err != nil {
		return err
	}
	epochs := map[int]int64{}
	var held []claim
	for _, s := range states {
		epochs[s.partition] = s.epoch
		if s.held {
			held = append(held, s.claim)
		}
	}
	w.saw(time.Now(), epochs, held)
	return nil
}

// saw takes in what the database said.
func (w *takeovers) saw(now time.Time, epochs map[int]int64, held []claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.epochs, w.held = epochs, held
	left := w.pending[:0]
	for _, k := range w.pending {
		if epochs[k.partition] > k.epoch {
			w.took = append(w.took, now.Sub(k.at))
			w.log.Info("taken over", "partition", k.partition, "after", now.Sub(k.at).Round(time.Millisecond))
		} else {
			left = append(left, k)
		}
	}
	w.pending = left
}

// claims returns the claims that have a lease row.
func (w *takeovers) claims() []claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held
}

// lost notes that the owner of these claims was killed.
func (w *takeovers) lost(at time.Time, owned []claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range owned {
		if w.epochs[c.partition] == c.epoch { // otherwise somebody else has it already
			w.pending = append(w.pending, killed{c, at})
		}
	}
}

// result returns all times so far, and how many partitions still wait.
func (w *takeovers) result() (took []time.Duration, waiting int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]time.Duration(nil), w.took...), len(w.pending)
}

package bench

import (
	"context"
	"database/sql"
	"strings"
	"time"
)

// Instruments tell what a database has done. A counter that it does not have is
// nil.
type Instruments interface {
	// Read returns the counters, which include everything that ended sessions
	// have done to the tables whose names begin with prefix.
	Read(ctx context.Context, prefix string) (Counters, error)
	// ReportsEvery is how long a session may keep what it has done to itself
	// between two transactions.
	ReportsEvery() time.Duration
	// Processes returns the database's own processes on this machine.
	Processes(ctx context.Context) ([]int, error)
}

// Counters only rise.
type Counters struct {
	// ConsistentGets and CurrentGets are buffer accesses, as Oracle names them.
	// PostgreSQL does not tell them apart: ConsistentGets are all.
	ConsistentGets, CurrentGets *int64
	// BytesWritten are those of the log, or of the whole process where the
	// database is part of it.
	BytesWritten *int64
}

// since returns how far the counters have risen.
func (c Counters) since(before Counters) Counters {
	return Counters{
		rise(before.ConsistentGets, c.ConsistentGets),
		rise(before.CurrentGets, c.CurrentGets),
		rise(before.BytesWritten, c.BytesWritten),
	}
}

// each returns the counters for one of n, rounded up.
func (c Counters) each(n int64) Counters {
	share := func(v *int64) *int64 {
		if v == nil {
			return nil
		}
		one := (*v + n - 1) / n
		return &one
	}
	return Counters{share(c.ConsistentGets), share(c.CurrentGets), share(c.BytesWritten)}
}

func rise(before, after *int64) *int64 {
	if before == nil || after == nil {
		return nil
	}
	n := *after - *before
	return &n
}

// InProcess are the instruments of a database that is part of this process.
type InProcess struct{}

// Read implements Instruments.
func (InProcess) Read(context.Context, string) (Counters, error) {
	n, ok := bytesWritten()
	if !ok {
		return Counters{}, nil
	}
	return Counters{BytesWritten: &n}, nil
}

// ReportsEvery implements Instruments.
func (InProcess) ReportsEvery() time.Duration { return 0 }

// Processes implements Instruments: there are none.
func (InProcess) Processes(context.Context) ([]int, error) { return nil, nil }

// Unknown are the instruments of a database that is not asked.
type Unknown struct{}

// Read implements Instruments.
func (Unknown) Read(context.Context, string) (Counters, error) { return Counters{}, nil }

// ReportsEvery implements Instruments.
func (Unknown) ReportsEvery() time.Duration { return 0 }

// Processes implements Instruments.
func (Unknown) Processes(context.Context) ([]int, error) { return nil, nil }

// PostgreSQL are the instruments of a PostgreSQL server.
type PostgreSQL struct{ DB *sql.DB }

// accesses sums hits and reads of heap, indexes and TOAST.
const accesses = `
	select coalesce(sum(coalesce(heap_blks_read, 0) + coalesce(heap_blks_hit, 0) + coalesce(idx_blks_read, 0) + coalesce(idx_blks_hit, 0)
	            + coalesce(toast_blks_read, 0) + coalesce(toast_blks_hit, 0) + coalesce(tidx_blks_read, 0) + coalesce(tidx_blks_hit, 0)), 0),
	       pg_current_wal_insert_lsn() - '0/0'::pg_lsn
	  from pg_statio_user_tables
	 where relname like $1`

// Read implements Instruments. A session that has just ended may not have
// reported yet, so it reads until nothing changes.
func (p PostgreSQL) Read(ctx context.Context, prefix string) (Counters, error) {
	pattern := strings.ReplaceAll(prefix, "_", `\_`) + "%"
	var gets, written, before int64
	for quiet := 0; quiet < 3; {
		if err := p.DB.QueryRowContext(ctx, accesses, pattern).Scan(&gets, &written); err != nil {
			return Counters{}, err
		}
		if quiet++; gets != before {
			before, quiet = gets, 0
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return Counters{}, ctx.Err()
		}
	}
	return Counters{ConsistentGets: &gets, BytesWritten: &written}, nil
}

// ReportsEvery implements Instruments: a second (PGSTAT_MIN_INTERVAL in
// src/backend/utils/activity/pgstat.c), and some more.
func (PostgreSQL) ReportsEvery() time.Duration { return 1200 * time.Millisecond }

// Processes implements Instruments.
func (p PostgreSQL) Processes(ctx context.Context) ([]int, error) {
	var pid int
	var local bool
	err := p.DB.QueryRowContext(ctx, `select pg_backend_pid(), coalesce(inet_server_addr() <<= '127.0.0.0/8' or inet_server_addr() = '::1', true)`).Scan(&pid, &local)
	if err != nil || !local || processName(pid) != "postgres" {
		return nil, err
	}
	return family(pid), nil
}

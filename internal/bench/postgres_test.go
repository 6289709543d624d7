package bench_test

import (
	"context"
	"database/sql"
	"log/slog"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"github.com/nats-io/nats.go"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/internal/bench"
	"github.com/lobsink/lobsink/internal/embednats"
	"github.com/lobsink/lobsink/internal/pgtest"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/postgres"
)

// pgTables are bench.Tables in PostgreSQL.
type pgTables struct{ o postgres.Options }

func (p pgTables) Setup(ctx context.Context) error {
	_, _, err := postgres.Setup(ctx, p.o)
	return err
}
func (p pgTables) Remove(ctx context.Context) error                  { return postgres.Remove(ctx, p.o) }
func (p pgTables) Open(ctx context.Context) (lobwriter.Store, error) { return postgres.Open(ctx, p.o) }
func (p pgTables) OpenReader(ctx context.Context) (lobwriter.Reader, error) {
	return postgres.OpenReader(ctx, p.o)
}
func (p pgTables) Prefix() string { return p.o.Prefix }

// database is a database of its own on a server that waits for its disk.
type database struct {
	tables pgTables
	db     *sql.DB
	open   func(context.Context) (*sql.DB, error)
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	url := pgtest.Start(t).CreateDatabase(t)
	open := func(context.Context) (*sql.DB, error) { return sql.Open("pgx", url) }
	db, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &database{pgTables{postgres.Options{URL: url, Prefix: "lobsink_bench_"}}, db, open}
}

// newConfig returns the configuration of a consumer, with a NATS server.
func newConfig(t *testing.T) consumer.Config {
	t.Helper()
	srv, err := embednats.Start(t.Context(), embednats.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Shutdown)
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return consumer.Config{
		NATS: nc, Stream: "LOBSINK_BENCH", Root: "lobsink-bench",
		MaxAge: 100 * time.Millisecond, ChunkBytes: 1000, MaxFragment: 8 << 20, Memory: 256 << 20,
		Lease: 10 * time.Second, Renew: 3 * time.Second, FlushTimeout: 8 * time.Second, DrainTimeout: 30 * time.Second,
		Log: slog.New(slog.DiscardHandler),
	}
}

// relations returns how many tables there are.
func (d *database) relations(t *testing.T) (n int) {
	t.Helper()
	if err := d.db.QueryRow("select count(*) from pg_class where relname like 'lobsink%'").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSeedPostgreSQL: the flush path needs fewer than 500 buffer accesses for
// 10,000 appends, where the others need more by orders of magnitude; all of it is
// gone afterwards, also what a killed run has left.
func TestSeedPostgreSQL(t *testing.T) {
	d := newDatabase(t)
	for range 2 { // the first one as if it was killed
		if _, err := d.db.Exec("create table if not exists lobsink_bench_seed_write (x int)"); err != nil {
			t.Fatal(err)
		}
	}
	s := bench.Seed{
		Appends: []int{10_000}, Limit: time.Second, Driver: "postgres", Tables: d.tables,
		Statements:  bench.PostgreSQLStatements("lobsink_bench_", d.open),
		Instruments: bench.PostgreSQL{DB: d.db},
	}
	r, err := s.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := d.relations(t); n != 0 {
		t.Errorf("%d relations are left", n)
	}
	if len(r.Variants) != 3 {
		t.Fatalf("%+v", r.Variants)
	}
	lobsink, write := r.Variants[2], r.Variants[1]
	if lobsink.ConsistentGets == nil || *lobsink.ConsistentGets >= 500 || *lobsink.ConsistentGets < 11 {
		t.Errorf("buffer accesses of the flush path: %v, want 11 to 499", lobsink.ConsistentGets)
	}
	if lobsink.BytesWritten == nil || *lobsink.BytesWritten < 10_000 {
		t.Errorf("bytes written by the flush path: %v", lobsink.BytesWritten)
	}
	if !write.Extrapolated && (write.ConsistentGets == nil || *write.ConsistentGets < 20_000) {
		t.Errorf("buffer accesses of single writes: %v", write.ConsistentGets)
	}
	for _, v := range r.Variants {
		if v.Ratio != v.Seconds/lobsink.Seconds || v.Extrapolated != (v.Model != nil) {
			t.Errorf("%+v", v)
		}
	}
}

// TestPipelinePostgreSQL: what is measured is exact, all of it is known, and gone
// afterwards.
func TestPipelinePostgreSQL(t *testing.T) {
	d := newDatabase(t)
	p := bench.Pipeline{
		Workload: bench.Workload{Fragments: 3000, Documents: 40, Size: 150, Prefix: "d-"},
		Rate:     2000, RateFor: 300 * time.Millisecond,
		Partitions: 3, Tables: d.tables, Instruments: bench.PostgreSQL{DB: d.db}, Driver: "postgres",
		Config: newConfig(t),
	}
	for range 2 {
		r, err := p.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !r.Exact {
			t.Error("not exact")
		}
		for name, v := range map[string]*float64{
			"achieved": r.FragmentsPerSecond, "read": r.ReadOnlyPerSecond, "write": r.WriteOnlyPerSecond, "nats": r.NATSOnlyPerSecond,
			"efficiency": r.Efficiency, "written": r.BytesWrittenPerPayloadByte, "p50": r.P50, "p99": r.P99,
		} {
			if v == nil || *v <= 0 {
				t.Errorf("%s: %v", name, v)
			}
		}
		if r.LOBWrites < 3000*150/1000 {
			t.Errorf("%d LOB writes", r.LOBWrites)
		}
	}
	if n := d.relations(t); n != 0 {
		t.Errorf("%d relations are left", n)
	}
}

// TestPipelineNotExact: a store that loses a byte is found out.
func TestPipelineNotExact(t *testing.T) {
	d := newDatabase(t)
	p := bench.Pipeline{
		Workload:   bench.Workload{Fragments: 300, Documents: 4, Size: 150, Prefix: "d-"},
		Partitions: 1, Tables: meddler{d.tables, d.db}, Instruments: bench.PostgreSQL{DB: d.db}, Driver: "postgres", NoLimits: true,
		Config: newConfig(t),
	}
	r, err := p.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.Exact {
		t.Error("exact, although a letter was changed")
	}
}

// meddler changes a letter before anybody reads.
type meddler struct {
	pgTables
	db *sql.DB
}

func (m meddler) OpenReader(ctx context.Context) (lobwriter.Reader, error) {
	if _, err := m.db.ExecContext(ctx, "update lobsink_bench_chunks set body = overlay(body placing '.' from 1) where document = 2 and n = 1"); err != nil {
		return nil, err
	}
	return m.pgTables.OpenReader(ctx)
}

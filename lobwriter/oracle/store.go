package oracle

import (
	"context"
	"errors"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
)

// Store is a lobwriter.Store in Oracle. Any number of members share the tables.
type Store struct {
	o        Options
	services []*pool
	metrics  *metrics
	failures failures
}

var _ lobwriter.Store = (*Store)(nil)

// Open connects to a database that has the tables and the package. What is
// missing is a Fatal error that says what to do; a database that does not answer
// is a Transient one. Of several services one has to answer; that all lead to the
// same tables is seen as they do.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	s := &Store{o: o, metrics: m}
	h := &home{}
	for _, service := range o.Services {
		s.services = append(s.services, newPool(o, service, m, h))
	}
	ctx, cancel := deadline(ctx, o.FlushTimeout)
	defer cancel()
	if err := s.anywhere(ctx, "connect", func(p *pool) error {
		conn, err := p.leases.Conn(ctx)
		if err != nil {
			return err
		}
		return conn.Close()
	}); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close implements lobwriter.Store.
func (s *Store) Close() error {
	var errs []error
	for _, p := range s.services {
		errs = append(errs, p.close())
	}
	s.metrics.unregister()
	return errors.Join(errs...)
}

// Limits implements lobwriter.Store.
func (s *Store) Limits() lobwriter.Limits {
	return lobwriter.Limits{Documents: maxDocuments, Bytes: maxBytes, ChunkBytes: s.o.ChunkBytes, Unit: lobwriter.UTF16}
}

// of returns the service of a partition.
func (s *Store) of(partition int) *pool { return s.services[max(0, partition)%len(s.services)] }

// Flush implements lobwriter.Store. It is one call, and one round trip.
func (s *Store) Flush(ctx context.Context, f *lobwriter.Flush) (lobwriter.Receipt, error) {
	c, err := newFlushCall(f)
	if err != nil {
		return lobwriter.Receipt{}, err
	}
	ctx, cancel := deadline(ctx, s.o.FlushTimeout)
	defer cancel()
	service := s.of(f.Partition)
	start := time.Now()
	if err := service.writers.Acquire(ctx, 1); err != nil {
		return lobwriter.Receipt{}, classify("flush", err)
	}
	defer service.writers.Release(1)
	waited := time.Since(start)

	start = time.Now()
	instance, err := call(ctx, s.o, service.documents, "flush", flushBlock, c.longest(), c.binds(s.failures.isolate(f))...)
	s.metrics.waited(instance, waited)
	s.failures.ended(f, err)
	if err != nil {
		return lobwriter.Receipt{}, err
	}
	receipt, err := c.receipt()
	if err != nil {
		return lobwriter.Receipt{}, classify("flush", err)
	}
	s.metrics.flushed(instance, c.out.writes.Int64, c.appended(receipt), time.Since(start))
	if err := s.reasons(ctx, f, c, receipt); err != nil {
		return lobwriter.Receipt{}, err
	}
	return receipt, nil
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/lobwriter"
)

// The reader of download: the fastest form of nats.go that was measured, with one
// acknowledgement for many messages.
const (
	readBatch = 5000
	readAck   = 1000
)

// download reads the whole stream with nats.go alone and does nothing with it.
// It returns the time until the last message has come.
func (s *stream) download(ctx context.Context, messages int) (time.Duration, error) {
	var left atomic.Int64
	left.Store(int64(messages))
	done := make(chan struct{})
	began := time.Now()
	for partition := range s.layout.Partitions {
		c, err := s.js.CreateConsumer(ctx, s.name, jetstream.ConsumerConfig{
			AckPolicy: jetstream.AckAllPolicy, MaxAckPending: -1, MemoryStorage: true, FilterSubject: s.layout.Filter(partition),
		})
		if err != nil {
			return 0, err
		}
		received := 0
		reading, err := c.Consume(func(m jetstream.Msg) {
			if received++; received%readAck == 0 {
				_ = m.Ack() // of no consequence
			}
			if left.Add(-1) == 0 {
				close(done)
			}
		}, jetstream.PullMaxMessages(readBatch))
		if err != nil {
			return 0, err
		}
		defer func() {
			reading.Stop()
			<-reading.Closed()
		}()
	}
	for before := int64(messages); ; {
		select {
		case <-done:
			return time.Since(began), nil
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(maxStall):
		}
		now := left.Load()
		if now == before {
			return 0, fmt.Errorf("reading the stream: %d messages do not come", now)
		}
		before = now
	}
}

// readOnly runs the consumer on the same stream with a store that stores nothing.
// It returns the time from the start to the last flush.
func (p *Pipeline) readOnly(ctx context.Context, l lobwriter.Limits) (time.Duration, error) {
	d := newDiscard(l, p.Workload.Fragments)
	began := time.Now()
	run := p.start(ctx, d)
	select {
	case <-d.reached:
		took := time.Since(began)
		return took, run.end()
	case <-run.ended:
		return 0, errors.Join(errEnded, run.end())
	case <-ctx.Done():
		return 0, errors.Join(ctx.Err(), run.end())
	case <-time.After(maxStall + time.Duration(p.Workload.Fragments)*time.Millisecond):
		return 0, errors.Join(errors.New("reading the stream: not all messages come"), run.end())
	}
}

// payload returns how many bytes of text a flush has stored.
func payload(f *lobwriter.Flush) (n int64) {
	for i := range f.Groups {
		n += f.Groups[i].After.Bytes - f.Groups[i].Believed.Bytes
	}
	return n
}

// roundBytes is how much text is prepared at a time. It bounds the memory.
const roundBytes = 256 << 20

// writeOnly flushes the same groups once more, into new tables. It returns how
// long that took, without the time in which text was made.
func (p *Pipeline) writeOnly(ctx context.Context, flushes []lobwriter.Flush) (took time.Duration, err error) {
	if err := errors.Join(p.Tables.Remove(ctx), p.Tables.Setup(ctx)); err != nil {
		return 0, err
	}
	store, err := p.Tables.Open(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	claims, err := p.claim(ctx, store)
	if err != nil {
		return 0, err
	}
	for len(flushes) > 0 {
		n, size := 0, int64(0)
		for n < len(flushes) && size < roundBytes {
			size += payload(&flushes[n])
			n++
		}
		d, err := p.round(ctx, store, claims, flushes[:n])
		if err != nil {
			return 0, err
		}
		took += d
		flushes = flushes[n:]
	}
	return took, nil
}

// claim claims all partitions of tables that are bound to the stream.
func (p *Pipeline) claim(ctx context.Context, store lobwriter.Store) ([]lobwriter.Claim, error) {
	s := lobwriter.Stream{Name: p.Config.Stream, Created: 1, Partitions: p.Partitions}
	if _, err := store.Bind(ctx, s); err != nil {
		return nil, err
	}
	claims := make([]lobwriter.Claim, p.Partitions)
	for i := range claims {
		var err error
		claims[i], err = store.Claim(ctx, lobwriter.ClaimRequest{
			Partition: i, MemberID: consumer.NewID(), ClaimID: consumer.NewID(), Lease: time.Hour,
		})
		if err != nil {
			return nil, err
		}
	}
	return claims, nil
}

// round flushes some flushes, as many at the same time as there are partitions.
func (p *Pipeline) round(ctx context.Context, store lobwriter.Store, claims []lobwriter.Claim, flushes []lobwriter.Flush) (time.Duration, error) {
	queues := make([][]*lobwriter.Flush, len(claims))
	for i := range flushes {
		f, err := p.withText(&flushes[i], store.Limits().ChunkBytes)
		if err != nil {
			return 0, err
		}
		queues[f.Partition] = append(queues[f.Partition], f)
	}
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for i, queue := range queues {
		group.Go(func() error { return flushAll(ctx, store, &claims[i].Fence, queue) })
	}
	err := group.Wait()
	return time.Since(began), err
}

func flushAll(ctx context.Context, store lobwriter.Store, fence *lobwriter.Fence, queue []*lobwriter.Flush) error {
	for _, f := range queue {
		f.Life, f.Epoch, f.ClaimID, f.Number = fence.Life, fence.Epoch, fence.ClaimID, fence.Flush
		r, err := store.Flush(ctx, f)
		if err != nil {
			return err
		}
		for _, a := range r.Answers {
			if a.Status != lobwriter.Appended {
				return fmt.Errorf("a group was not appended but %s", a.Status)
			}
		}
		fence.Flush = r.Number
	}
	return nil
}

// withText returns a flush whose groups have their chunks again.
func (p *Pipeline) withText(f *lobwriter.Flush, chunkBytes int) (*lobwriter.Flush, error) {
	out := withoutText(f)
	var piece []byte
	for i := range out.Groups {
		g := &out.Groups[i]
		d, err := p.Workload.document(g.Key)
		if err != nil {
			return nil, err
		}
		g.Chunks = lobwriter.Cut(func(yield func([]byte) bool) {
			for n := g.Believed.Fragments; n < g.After.Fragments; n++ {
				if piece = p.Workload.Append(piece[:0], d, int(n)); !yield(piece) {
					return
				}
			}
		}, int(g.After.Bytes-g.Believed.Bytes), min(chunkBytes, p.Config.ChunkBytes))
	}
	return &out, nil
}

// compare reads every document of a workload back and compares its bytes.
func (p *Pipeline) compare(ctx context.Context, w *Workload) (exact bool, err error) {
	reader, err := p.Tables.OpenReader(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	for d := range w.Documents {
		same, err := w.same(ctx, reader, d)
		if err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

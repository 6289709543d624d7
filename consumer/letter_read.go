package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Filter selects dead letters.
type Filter struct {
	// Key selects one document; nil: all.
	Key *string
	// Code selects one reason; "": all.
	Code string
	// Reason selects by a text in the reason; "": all.
	Reason string
	// Seq selects the letters of one message of the stream; 0: all.
	Seq uint64
	// Since selects by the time of the message; zero: all.
	Since time.Time
	// Limit is the most records; 0: no limit.
	Limit int
}

func (f *Filter) selects(r *Record) bool {
	switch {
	case f.Key != nil && (r.Key == nil || *r.Key != *f.Key):
		return false
	case f.Code != "" && r.Code != f.Code:
		return false
	case !strings.Contains(r.Reason, f.Reason):
		return false
	case f.Seq != 0 && r.Sequence != f.Seq:
		return false
	case !f.Since.IsZero() && r.Time.Before(f.Since):
		return false
	}
	return true
}

// listAtOnce is how many records one fetch asks for.
const listAtOnce = 256

// clockMargin is how far the clocks of servers may be apart: a letter is
// published after its message was, but by another server's clock.
const clockMargin = time.Hour

// List calls each for the letters that the filter selects, in the order in
// which they were published, up to the last one that was there when List was
// called. An error of each ends the reading and is returned.
func (d *DeadLetters) List(ctx context.Context, f Filter, each func(Record) error) error {
	s, err := d.open(ctx)
	if err != nil {
		return err
	}
	c, err := d.reader(ctx, s, f)
	if err != nil {
		return d.failed(err)
	}
	// The server removes the consumer by itself after a while; being tidy may
	// fail.
	defer func() {
		_ = s.DeleteConsumer(context.WithoutCancel(ctx), c.CachedInfo().Name)
	}()
	info := c.CachedInfo()
	budget := int(maxPayload(d.js.Conn(), s.CachedInfo())) + messageOverhead
	read, listed := uint64(0), 0
	for read < info.NumPending {
		// No more than there are: a fetch waits for what it asks for.
		ask := int(min(listAtOnce, info.NumPending-read))
		batch, err := c.Fetch(ask, jetstream.FetchMaxBytes(4*budget), jetstream.FetchMaxWait(requestTimeout))
		if err != nil {
			return d.failed(err)
		}
		before := read
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return d.failed(err)
			}
			if read++; meta.Sequence.Consumer != read {
				return d.failed(errors.New("the connection broke while the letters were read; try again"))
			}
			var r Record
			if err := json.Unmarshal(m.Data(), &r); err != nil {
				return fmt.Errorf("dead letter on %s: %w", m.Subject(), err)
			}
			if !f.selects(&r) {
				continue
			}
			if err := each(r); err != nil {
				return err
			}
			if listed++; listed == f.Limit {
				return nil
			}
		}
		if read == before {
			done, err := nothingLeft(ctx, c, batch.Error())
			if err != nil || done {
				return err
			}
		}
	}
	return ctx.Err()
}

// reader creates a consumer of the records that f may select. It disappears by
// itself.
func (d *DeadLetters) reader(ctx context.Context, s jetstream.Stream, f Filter) (c jetstream.Consumer, err error) {
	seq := "*"
	if f.Seq != 0 {
		seq = fmt.Sprint(f.Seq)
	}
	cfg := jetstream.ConsumerConfig{
		FilterSubject:     fmt.Sprintf("%s.*.*.%s.*.0", deadRoot(d.stream), seq),
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		InactiveThreshold: time.Minute,
	}
	if !f.Since.IsZero() {
		since := f.Since.Add(-clockMargin)
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &since
	}
	err = request(ctx, func(ctx context.Context) (err error) {
		c, err = s.CreateConsumer(ctx, cfg)
		return err
	})
	return c, err
}

// nothingLeft finds out why a fetch brought nothing: the rest was deleted while
// it was read, or NATS is away.
func nothingLeft(ctx context.Context, c jetstream.Consumer, fetched error) (bool, error) {
	if fetched != nil {
		return false, fetched
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	var info *jetstream.ConsumerInfo
	err := request(ctx, func(ctx context.Context) (err error) {
		info, err = c.Info(ctx)
		return err
	})
	if err != nil {
		return false, err
	}
	return info.NumPending == 0, nil
}

// Payload reads the payload of a letter and checks its length and checksum.
func (d *DeadLetters) Payload(ctx context.Context, r Record) ([]byte, error) {
	s, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	l := Letter{Stream: r.Stream, DatabaseID: r.DatabaseID, Life: r.Life, Seq: r.Sequence, Generation: r.Generation}
	var data []byte
	for part := 1; part <= r.Parts; part++ {
		m, err := lastOf(ctx, s, l.subject(part))
		if err != nil {
			return nil, fmt.Errorf("dead letter of message %d, part %d of %d: %w", r.Sequence, part, r.Parts, err)
		}
		data = append(data, m.Data...)
	}
	if len(data) != r.Bytes || checksum(data) != r.CRC32C {
		return nil, fmt.Errorf("dead letter of message %d: its parts have %d bytes with CRC-32C %s, its record says %d and %s", r.Sequence, len(data), checksum(data), r.Bytes, r.CRC32C)
	}
	return data, nil
}

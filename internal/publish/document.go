package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/consumer"
)

// document is a key as the stream has it.
type document struct {
	token string
	// stored is the subject that the stream keeps the key under.
	stored string
	// last is the sequence of the last fragment that is stored; 0: none.
	last uint64
	// number counts the fragments of this run.
	number uint64
	// there is how many of them an earlier run with the same name has stored,
	// and ending the data of the last one.
	there  uint64
	ending []byte
	// before is the index of the last fragment before this run, if fragments
	// are numbered at all.
	before   uint64
	numbered bool
	underWay int
	final    bool
}

// forget frees what a complete document no longer needs.
func (d *document) forget() { d.ending = nil }

// document returns what is known of a key. The first time it asks the stream.
func (p *Publisher) document(ctx context.Context, key string) (*document, error) {
	if d := p.documents[key]; d != nil {
		return d, nil
	}
	token, err := consumer.Token(key)
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", key, err)
	}
	d := &document{
		token:    token,
		stored:   p.layout.Stored(consumer.PartitionOf(token, p.layout.Partitions), token),
		numbered: true,
	}
	err = p.patiently(ctx, "reading the last fragment of "+strconv.Quote(key), func(ctx context.Context) error {
		last, err := p.stream.GetLastMsgForSubject(ctx, d.stored)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err == nil {
			p.goOn(d, last)
		}
		return err
	})
	if err != nil {
		return nil, p.fail(err)
	}
	p.documents[key] = d
	return d, nil
}

// goOn makes a document go on behind the last fragment that the stream has.
func (p *Publisher) goOn(d *document, last *jetstream.RawStreamMsg) {
	d.last = last.Sequence
	meta, reason := consumer.ParseHeader(last.Header)
	d.before, d.numbered = meta.Index, meta.Index > 0 && reason == nil
	if ours, ok := strings.CutPrefix(last.Header.Get(jetstream.MsgIDHeader), p.o.Run+":"+d.token+":"); ok {
		if n, err := strconv.ParseUint(ours, 10, 64); err == nil && n <= d.before {
			d.there, d.ending, d.before = n, last.Data, d.before-n
			return // its Final is one that is about to be published again
		}
	}
	d.final = meta.Final
}

// skip takes a fragment that an earlier run of the same name has stored. Only of
// the last one it is known what it was.
func (p *Publisher) skip(d *document, f Fragment) error {
	if d.number == d.there && !bytes.Equal(f.Data, d.ending) || d.number < d.there && f.Final {
		return p.fail(fmt.Errorf("fragment %d of %q under the name %s: %w", d.number, f.Key, p.o.Run, ErrChanged))
	}
	return nil
}

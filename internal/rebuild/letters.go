package rebuild

import (
	"context"
	"time"

	"github.com/lobsink/lobsink/consumer"
)

// letters are the dead letters of the stream's present life, by key. They are all
// read at once, when one is needed: a dead letter cannot be found by its key.
type letters struct {
	dead  *consumer.DeadLetters
	life  int64
	byKey map[string][]consumer.Record
	read  time.Time
}

// of returns the letters of a document.
func (l *letters) of(ctx context.Context, key string) ([]consumer.Record, error) {
	if l.byKey == nil {
		byKey, now := map[string][]consumer.Record{}, time.Now()
		err := l.dead.List(ctx, consumer.Filter{}, func(r consumer.Record) error {
			if r.Key != nil && r.Life == l.life {
				byKey[*r.Key] = append(byKey[*r.Key], r)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		l.byKey, l.read = byKey, now
	}
	return l.byKey[key], nil
}

// forget has the letters read again: their owners add to them.
func (l *letters) forget() { l.byKey = nil }

// settled is for how long letters that were read are taken for all, where there
// should be more of a document. (There may be fewer of it for good: an empty
// fragment has none.)
const settled = 10 * time.Second

// expect has the letters read again if there are fewer of a document than of its
// fragments were refused.
func (l *letters) expect(key string, refused int64) {
	if l.byKey != nil && int64(len(l.byKey[key])) < refused && time.Since(l.read) > settled {
		l.forget()
	}
}

// has reports whether there is a dead letter of a fragment, of any generation.
func (l *letters) has(ctx context.Context, key string, seq uint64) (bool, error) {
	all, err := l.of(ctx, key)
	for _, r := range all {
		if r.Sequence == seq {
			return true, err
		}
	}
	return false, err
}

func (l *letters) publish(ctx context.Context, letter consumer.Letter) error {
	return l.dead.Publish(ctx, letter)
}

// resolve removes the letters of fragments that are in the document now. Those of
// fragments that were left out or replaced stay: nothing else has what they hold.
func (l *letters) resolve(ctx context.Context, key string, through uint64, d *draft) (removed int, err error) {
	if d.row.Fragments == 0 {
		return 0, nil
	}
	all, err := l.of(ctx, key)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	keep := map[uint64]bool{}
	for _, r := range d.refused {
		keep[r.Fragment.Seq] = true
	}
	for mark := range d.repairs {
		keep[mark.Seq] = true
	}
	var left []consumer.Record
	for _, r := range all {
		if keep[r.Sequence] || r.Sequence > through {
			left = append(left, r)
			continue
		}
		if err := l.dead.Remove(ctx, r); err != nil {
			return removed, err
		}
		removed++
	}
	l.byKey[key] = left
	return removed, nil
}

// HasLetters reports whether there are dead letters of a document, in the present
// life of the stream.
func (r *Rebuilder) HasLetters(ctx context.Context, key string) (bool, error) {
	all, err := r.letters.of(ctx, key)
	return len(all) > 0, err
}

// Life returns the present life of the stream.
func (r *Rebuilder) Life() int64 { return r.binding.Life }

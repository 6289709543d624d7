package lobwriter_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

var (
	errDown  = &lobwriter.Error{Kind: lobwriter.Transient, Op: "flush", Code: "57P03", Err: errors.New("the database system is starting up")}
	errSpace = &lobwriter.Error{Kind: lobwriter.Space, Op: "flush", Code: "53100", Err: errors.New("no space left on device")}
)

var limits = lobwriter.Limits{Documents: 1024, Bytes: 4 << 20, ChunkBytes: 32767}

// outage fails every call from one moment on until another, counted from now.
func outage(from, to time.Duration, err error) func(int, string) lobtest.Fault {
	start := time.Now()
	return func(int, string) lobtest.Fault {
		if t := time.Since(start); t >= from && t < to {
			return lobtest.Fault{Err: err}
		}
		return lobtest.Fault{}
	}
}

// deliver sends one more fragment of document k.
func deliver(ctx context.Context, o *lobtest.Owner, seq uint64) error {
	r, err := o.Deliver(ctx, o.Append("k", lobtest.Text(seq, fmt.Sprintf("<f n='%d'/>", seq))))
	if err == nil && r.Answers[0].Status != lobwriter.Appended && r.Answers[0].Status != lobwriter.AlreadyThere {
		return fmt.Errorf("sequence %d: %v", seq, r.Answers[0].Status)
	}
	return err
}

// whole is document k after n fragments.
func whole(n uint64) string {
	var s strings.Builder
	for seq := uint64(1); seq <= n; seq++ {
		fmt.Fprintf(&s, "<f n='%d'/>", seq)
	}
	return s.String()
}

// TestRetryOutage/O30: the first failure comes when the store has been in use
// for longer than the usual limits of retrying, and lasts longer than them.
// TestRetryOutage/O24 and O29 are shorter ones, and other errors.
func TestRetryOutage(t *testing.T) {
	for _, tt := range []struct {
		name     string
		from, to time.Duration
		err      error
	}{
		{"O30", 16 * time.Minute, 56 * time.Minute, errDown},
		{"O24", 90 * time.Second, 150 * time.Second, driver.ErrBadConn},
		{"O29", time.Minute, 62 * time.Second, errors.New("an error that nobody knows")},
		{"no room for an hour", time.Minute, 61 * time.Minute, errSpace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				m := lobtest.NewMemory(limits)
				var longest time.Duration
				retried := 0
				o := lobtest.NewOwner(t, lobwriter.Retry(lobtest.NewFailing(m, outage(tt.from, tt.to, tt.err)), lobwriter.RetryOptions{
					OnRetry: func(op string, attempt int, err error, wait time.Duration) {
						if op != "flush" || !errors.Is(err, tt.err) {
							t.Errorf("%s: %v", op, err)
						}
						retried++
						longest = max(longest, wait)
					},
				}), 1)
				const n = 70
				for seq := uint64(1); seq <= n; seq++ {
					if err := deliver(t.Context(), o, seq); err != nil {
						t.Fatal(err)
					}
					if now := time.Since(start); now >= tt.from && now < tt.to {
						t.Fatalf("confirmed after %v, within the outage", now)
					}
					time.Sleep(time.Minute)
				}
				lobtest.CheckDocument(t, m, limits.Unit, "k", whole(n))
				most := 7500 * time.Millisecond
				if tt.err == errSpace {
					most += 10 * time.Second
				}
				if retried == 0 || longest > most {
					t.Errorf("%d retries, the longest wait was %v", retried, longest)
				}
			})
		})
	}
}

// TestRetryLostReply/O19 and O20: every third reply is lost, and the driver
// claims that nothing happened.
func TestRetryLostReply(t *testing.T) {
	for name, err := range map[string]error{"O19": errors.New("unexpected EOF"), "O20": driver.ErrBadConn} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := lobtest.NewMemory(limits)
				o := lobtest.NewOwner(t, lobwriter.Retry(lobtest.NewFailing(m, func(n int, op string) lobtest.Fault {
					if op == "flush" && n%3 == 0 {
						return lobtest.Fault{Err: err, Committed: true}
					}
					return lobtest.Fault{}
				}), lobwriter.RetryOptions{}), 1)
				for seq := uint64(1); seq <= 10; seq++ {
					if err := deliver(t.Context(), o, seq); err != nil {
						t.Fatal(err)
					}
				}
				lobtest.CheckDocument(t, m, limits.Unit, "k", whole(10))
			})
		})
	}
}

// TestRetryContext/O30: the end of the context ends the waiting at once.
func TestRetryContext(t *testing.T) {
	t.Run("O30", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := lobtest.NewMemory(limits)
			o := lobtest.NewOwner(t, lobwriter.Retry(lobtest.NewFailing(m, outage(time.Second, 1000*time.Hour, errDown)), lobwriter.RetryOptions{}), 1)
			time.Sleep(time.Minute)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(40*time.Minute, cancel)
			start := time.Now()
			err := deliver(ctx, o, 1)
			if !errors.Is(err, context.Canceled) || !errors.Is(err, errDown) || lobwriter.CodeOf(err) != errDown.Code {
				t.Errorf("error %v", err)
			}
			if took := time.Since(start); took != 40*time.Minute {
				t.Errorf("ended after %v", took)
			}
		})
	})
	t.Run("a context that has ended begins nothing", func(t *testing.T) {
		f := lobtest.NewFailing(lobtest.NewMemory(limits), func(int, string) lobtest.Fault { return lobtest.Fault{} })
		s := lobwriter.Retry(f, lobwriter.RetryOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Fence(ctx, 1); !errors.Is(err, context.Canceled) || f.Calls() != 0 {
			t.Errorf("%d calls, %v", f.Calls(), err)
		}
	})
}

// slow is a store that takes a while, unless its context ends before.
type slow struct {
	lobwriter.Store
	takes time.Duration
	began int
}

func (s *slow) wait(ctx context.Context) error {
	s.began++
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.takes):
		return nil
	}
}

func (s *slow) Flush(ctx context.Context, _ *lobwriter.Flush) (lobwriter.Receipt, error) {
	return lobwriter.Receipt{Number: 1}, s.wait(ctx)
}

func (s *slow) Renew(ctx context.Context, _ lobwriter.Claim, _ time.Duration) (lobwriter.Fence, error) {
	return lobwriter.Fence{}, s.wait(ctx)
}

func TestRetryAttempt(t *testing.T) {
	t.Run("the end of the context does not cancel an attempt under way", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r, err := lobwriter.Retry(&slow{takes: 3 * time.Second}, lobwriter.RetryOptions{}).Flush(ctx, &lobwriter.Flush{})
			if err != nil || r.Number != 1 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	})
	t.Run("each attempt has a deadline of its own", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s := &slow{takes: time.Hour}
			start := time.Now()
			_, err := lobwriter.Retry(s, lobwriter.RetryOptions{AttemptTimeout: 2 * time.Second}).Flush(ctx, &lobwriter.Flush{})
			if !errors.Is(err, context.DeadlineExceeded) || s.began < 5 {
				t.Errorf("%d attempts, %v", s.began, err)
			}
			if took := time.Since(start); took > time.Minute+2*time.Second {
				t.Errorf("ended after %v", took)
			}
		})
	})
	t.Run("a renewal ends with its context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			_, err := lobwriter.Retry(&slow{takes: 3 * time.Second}, lobwriter.RetryOptions{}).Renew(ctx, lobwriter.Claim{}, time.Minute)
			if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
				t.Errorf("%v after %v", err, took)
			}
		})
	})
	t.Run("the flush is the identical one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &remembering{}
			want := &lobwriter.Flush{Number: 7}
			if _, err := lobwriter.Retry(s, lobwriter.RetryOptions{}).Flush(t.Context(), want); err != nil {
				t.Fatal(err)
			}
			if len(s.flushes) != 3 || s.flushes[0] != want || s.flushes[1] != want || s.flushes[2] != want {
				t.Errorf("flushes %v", s.flushes)
			}
		})
	})
}

// remembering is a store that fails twice.
type remembering struct {
	lobwriter.Store
	flushes []*lobwriter.Flush
}

func (s *remembering) Flush(_ context.Context, f *lobwriter.Flush) (lobwriter.Receipt, error) {
	if s.flushes = append(s.flushes, f); len(s.flushes) < 3 {
		return lobwriter.Receipt{}, errDown
	}
	return lobwriter.Receipt{}, nil
}

// What an identical call cannot help is returned at once, as it is.
func TestRetryStops(t *testing.T) {
	for _, err := range []error{
		&lobwriter.FencedError{},
		&lobwriter.Error{Kind: lobwriter.Fenced, Err: errors.New("x")},
		&lobwriter.Error{Kind: lobwriter.Held, Err: errors.New("x")},
		&lobwriter.Error{Kind: lobwriter.Invalid, Err: errors.New("x")},
		&lobwriter.Error{Kind: lobwriter.Fatal, Err: errors.New("x")},
		&lobwriter.Error{Kind: lobwriter.Credentials, Err: errors.New("x")},
	} {
		f := lobtest.NewFailing(lobtest.NewMemory(limits), func(int, string) lobtest.Fault { return lobtest.Fault{Err: err} })
		s := lobwriter.Retry(f, lobwriter.RetryOptions{OnRetry: func(op string, _ int, err error, _ time.Duration) {
			t.Errorf("%s is repeated after %v", op, err)
		}})
		for i, call := range calls(t.Context(), s) {
			if got := call(); got != err {
				t.Errorf("call %d: %v, want %v", i, got, err)
			}
		}
		if want := len(calls(t.Context(), s)); f.Calls() != want {
			t.Errorf("%v: %d calls, want %d", err, f.Calls(), want)
		}
	}
}

// Every call is repeated, not only flushes.
func TestRetryRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range calls(t.Context(), nil) {
			f := lobtest.NewFailing(lobtest.NewMemory(limits), lobtest.Nth(1, lobtest.Fault{Err: errDown}))
			calls(t.Context(), lobwriter.Retry(f, lobwriter.RetryOptions{}))[i]()
			if f.Calls() != 2 {
				t.Errorf("call %d was made %d times", i, f.Calls())
			}
		}
	})
}

// calls is every call of a store that can fail.
func calls(ctx context.Context, s lobwriter.Store) []func() error {
	return []func() error{
		func() error { _, err := s.Bind(ctx, lobwriter.Stream{Name: "S", Partitions: 1}); return err },
		func() error { _, err := s.Attend(ctx, lobwriter.Member{ID: "m"}, time.Minute); return err },
		func() error { return s.Leave(ctx, "m") },
		func() error { _, err := s.Claim(ctx, lobwriter.ClaimRequest{MemberID: "m"}); return err },
		func() error { _, err := s.Renew(ctx, lobwriter.Claim{}, time.Minute); return err },
		func() error { return s.Release(ctx, lobwriter.Claim{}) },
		func() error { _, err := s.Fence(ctx, 0); return err },
		func() error { _, err := s.Rows(ctx, 0, nil); return err },
		func() error { _, err := s.Flush(ctx, &lobwriter.Flush{}); return err },
	}
}

package lobwriter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lobsink/lobsink/lobwriter"
)

// What a store does not know is transient, so that no error is ever taken for an
// answer.
func TestKindOf(t *testing.T) {
	space := &lobwriter.Error{Kind: lobwriter.Space, Op: "flush", Code: "53100", Err: errors.New("disk full")}
	for _, tt := range []struct {
		name string
		err  error
		kind lobwriter.Kind
		code string
	}{
		{"an unknown error", errors.New("x"), lobwriter.Transient, ""},
		{"no answer in time", context.DeadlineExceeded, lobwriter.Transient, ""},
		{"an error with a kind", space, lobwriter.Space, "53100"},
		{"wrapped", fmt.Errorf("partition 3: %w", space), lobwriter.Space, "53100"},
		{"joined with the context's", fmt.Errorf("%w, the last: %w", context.Canceled, space), lobwriter.Space, "53100"},
		{"fenced", fmt.Errorf("flush: %w", &lobwriter.FencedError{}), lobwriter.Fenced, ""},
		{"fenced within an error", &lobwriter.Error{Op: "renew", Err: &lobwriter.FencedError{}}, lobwriter.Fenced, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if kind, code := lobwriter.KindOf(tt.err), lobwriter.CodeOf(tt.err); kind != tt.kind || code != tt.code {
				t.Errorf("kind %v, code %q", kind, code)
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	cause := errors.New("disk full")
	for want, err := range map[string]error{
		"flush: disk full":                         &lobwriter.Error{Op: "flush", Err: cause},
		"flush: disk full (make room on /var/lib)": &lobwriter.Error{Op: "flush", Hint: "make room on /var/lib", Err: cause},
	} {
		if err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("%q, want %q", err, want)
		}
	}
	stored := lobwriter.Fence{Life: 1, Epoch: 5, ClaimID: "00c0ffee00c0ffee", Flush: 3}
	text := (&lobwriter.FencedError{Stored: stored}).Error()
	for _, part := range []string{"life 1", "epoch 5", "00c0ffee00c0ffee", "flush 3"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not say %q", text, part)
		}
	}
}

// Every kind, state and status has a name of its own, which logs and metrics
// show.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for k := lobwriter.Transient; k <= lobwriter.Space; k++ {
		seen["kind "+k.String()] = true
	}
	for s := lobwriter.State(0); s <= lobwriter.Quarantined; s++ {
		seen["state "+s.String()] = true
	}
	for s := lobwriter.Status(0); s <= lobwriter.Rejected; s++ {
		seen["status "+s.String()] = true
	}
	if want := 7 + 5 + 6; len(seen) != want {
		t.Errorf("%d names, want %d: %v", len(seen), want, seen)
	}
}

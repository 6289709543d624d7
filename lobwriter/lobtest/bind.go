package lobtest

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/lobsink/lobsink/lobwriter"
)

var bindRules = []rule{
	{"the first call stores the stream", func(t *testing.T, f Fixture) {
		if b, err := f.Reader.Binding(t.Context()); !errors.Is(err, lobwriter.ErrNotFound) {
			t.Fatalf("before the first call: %+v, %v", b, err)
		}
		got := Bind(t, f.Store)
		if got.Stream != stream || got.Life != 1 || !regexp.MustCompile(`^[0-9a-f]{8}$`).MatchString(got.DatabaseID) {
			t.Errorf("binding %+v", got)
		}
		if b, err := f.Reader.Binding(t.Context()); err != nil || b != got {
			t.Errorf("the reader has %+v, %v", b, err)
		}
	}},
	{"a later call compares", func(t *testing.T, f Fixture) {
		if first, again := Bind(t, f.Store), Bind(t, f.Store); first != again {
			t.Errorf("first %+v, then %+v", first, again)
		}
	}},
	{"another name is fatal and names both", func(t *testing.T, f Fixture) {
		refusesStream(t, f, lobwriter.Stream{Name: "ORDERS", Created: stream.Created, Partitions: stream.Partitions}, "FRAGMENTS", "ORDERS")
	}},
	{"another partition count is fatal and names both", func(t *testing.T, f Fixture) {
		refusesStream(t, f, lobwriter.Stream{Name: stream.Name, Created: stream.Created, Partitions: 64}, "4", "64")
	}},
	{"another creation time returns the stored one", func(t *testing.T, f Fixture) {
		want := Bind(t, f.Store)
		other := stream
		other.Created++
		if got, err := f.Store.Bind(t.Context(), other); err != nil || got != want {
			t.Errorf("binding %+v, %v, want %+v", got, err, want)
		}
		if got := Bind(t, f.Store); got != want {
			t.Errorf("afterwards %+v, want %+v", got, want)
		}
	}},
	{"processes that bind at once get one binding", func(t *testing.T, f Fixture) {
		stores := f.others(t)
		got := make([]lobwriter.Binding, 8)
		var g errgroup.Group
		for i := range got {
			g.Go(func() (err error) {
				got[i], err = stores[i%2].Bind(t.Context(), stream)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		for _, b := range got {
			if b != got[0] {
				t.Errorf("bindings differ: %+v and %+v", got[0], b)
			}
		}
	}},
}

func refusesStream(t *testing.T, f Fixture, other lobwriter.Stream, names ...string) {
	t.Helper()
	want := Bind(t, f.Store)
	_, err := f.Store.Bind(t.Context(), other)
	kind(t, err, lobwriter.Fatal)
	for _, n := range names {
		if !strings.Contains(err.Error(), n) {
			t.Errorf("the error does not name %s: %v", n, err)
		}
	}
	if got := Bind(t, f.Store); got != want {
		t.Errorf("the binding became %+v", got)
	}
}

// ada and bea are two members; cyd is a third.
var (
	ada = lobwriter.Member{ID: "00000000000000aa", Name: "ada", Version: "v1.0.0"}
	bea = lobwriter.Member{ID: "00000000000000bb", Name: "bea", Version: "v1.0.0"}
	cyd = lobwriter.Member{ID: "00000000000000cd", Name: "cyd", Version: "v1.1.0"}
)

var memberRules = []rule{
	{"attending returns the live members in order of ID", func(t *testing.T, f Fixture) {
		stores := f.others(t)
		attends(t, stores[0], bea, Lease, bea)
		attends(t, stores[1], ada, Lease, ada, bea)
		attends(t, stores[0], cyd, Lease, ada, bea, cyd)
	}},
	{"attending again is one member and takes the new name and version", func(t *testing.T, f Fixture) {
		attends(t, f.Store, ada, Lease, ada)
		renamed := lobwriter.Member{ID: ada.ID, Name: "ada2", Version: "v2.0.0"}
		attends(t, f.Store, renamed, Lease, renamed)
	}},
	{"a member is live until its lease ends", func(t *testing.T, f Fixture) {
		attends(t, f.Store, ada, time.Millisecond) // it may have ended by now
		eventually(t, "the member ends", func() bool {
			live, err := f.Store.Attend(t.Context(), bea, Lease)
			return err == nil && cmp.Equal(members(live), []lobwriter.Member{bea})
		})
	}},
	{"attending again extends the lease", func(t *testing.T, f Fixture) {
		attends(t, f.Store, ada, 100*time.Millisecond)
		attends(t, f.Store, ada, Lease, ada)
		time.Sleep(200 * time.Millisecond)
		attends(t, f.Store, bea, Lease, ada, bea)
	}},
	{"attending with a lease of 0 ends being live", func(t *testing.T, f Fixture) {
		attends(t, f.Store, bea, Lease, bea)
		attends(t, f.Store, ada, Lease, ada, bea)
		attends(t, f.Store, ada, 0, bea)
		attends(t, f.Store, bea, Lease, bea)
	}},
	{"leaving removes the member", func(t *testing.T, f Fixture) {
		attends(t, f.Store, ada, Lease, ada)
		if err := f.Store.Leave(t.Context(), ada.ID); err != nil {
			t.Fatal(err)
		}
		attends(t, f.Store, bea, Lease, bea)
	}},
	{"leaving without having attended is no error", func(t *testing.T, f Fixture) {
		if err := f.Store.Leave(t.Context(), ada.ID); err != nil {
			t.Error(err)
		}
	}},
	{"leaving frees the member's leases and nobody else's", func(t *testing.T, f Fixture) {
		Bind(t, f.Store)
		stores := f.others(t)
		old := claim(t, stores[0], request(ada, id1))
		theirs := request(bea, id2)
		theirs.Partition = 2
		kept := claim(t, stores[1], theirs)
		if err := stores[0].Leave(t.Context(), ada.ID); err != nil {
			t.Fatal(err)
		}
		claim(t, stores[1], request(bea, id3))
		renew(t, stores[1], kept, Lease)
		_, err := stores[0].Renew(t.Context(), old, Lease)
		kind(t, err, lobwriter.Fenced)
	}},
	{"the roster says how long members and leases have left", func(t *testing.T, f Fixture) {
		Bind(t, f.Store)
		stores := f.others(t)
		claim(t, stores[0], request(ada, id1))
		r := request(bea, id2)
		r.Partition, r.Lease = 3, 2*Lease
		c := claim(t, stores[1], r)
		attends(t, stores[1], bea, 2*Lease)
		got := attends(t, stores[0], ada, Lease, ada, bea)
		if left := got.Members[0].Left; left <= Lease-time.Minute || left > Lease {
			t.Errorf("ada has %v left", left)
		}
		if left := got.Members[1].Left; left <= 2*Lease-time.Minute || left > 2*Lease {
			t.Errorf("bea has %v left", left)
		}
		holds(t, got, hold{1, ada, Lease}, hold{3, bea, 2 * Lease})
		renew(t, stores[1], c, 3*Lease)
		holds(t, attends(t, f.Store, ada, Lease), hold{1, ada, Lease}, hold{3, bea, 3 * Lease})
		if err := stores[1].Release(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		holds(t, attends(t, stores[1], bea, Lease), hold{1, ada, Lease})
	}},
	{"a lease that has ended stays in the roster, and says how long ago", func(t *testing.T, f Fixture) {
		Bind(t, f.Store)
		claim(t, f.Store, briefly(ada, id1))
		eventually(t, "the lease ends", func() bool {
			r := attends(t, f.Store, bea, Lease)
			return len(r.Leases) == 1 && r.Leases[0].MemberID == ada.ID && r.Leases[0].Left < -10*time.Millisecond
		})
	}},
	{"the reader's roster is the same, and reading it changes nothing", func(t *testing.T, f Fixture) {
		Bind(t, f.Store)
		claim(t, f.Store, request(ada, id1))
		attends(t, f.Store, bea, Lease)
		attends(t, f.Store, ada, Lease)
		for range 2 {
			got, err := f.Reader.Roster(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff([]lobwriter.Member{ada, bea}, members(got)); d != "" {
				t.Errorf("live members: %s", d)
			}
			holds(t, got, hold{1, ada, Lease})
		}
	}},
}

// hold is a lease that a roster must have.
type hold struct {
	partition int
	by        lobwriter.Member
	lease     time.Duration // of which no more than a minute has passed
}

func holds(t *testing.T, r lobwriter.Roster, want ...hold) {
	t.Helper()
	if len(r.Leases) != len(want) {
		t.Fatalf("leases %+v, want those of %+v", r.Leases, want)
	}
	for i, w := range want {
		if l := r.Leases[i]; l.Partition != w.partition || l.MemberID != w.by.ID || l.Left > w.lease || l.Left <= w.lease-time.Minute {
			t.Errorf("lease %+v, want that of %+v", l, w)
		}
	}
}

// attends lets a member attend; the answer must be want, if that is given.
func attends(t *testing.T, s lobwriter.Store, m lobwriter.Member, lease time.Duration, want ...lobwriter.Member) lobwriter.Roster {
	t.Helper()
	got, err := s.Attend(t.Context(), m, lease)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, members(got)); d != "" && want != nil {
		t.Errorf("live members: %s", d)
	}
	return got
}

// members are those of a roster, without the time they have left.
func members(r lobwriter.Roster) (all []lobwriter.Member) {
	for _, p := range r.Members {
		all = append(all, p.Member)
	}
	return all
}

// eventually waits until something holds, for as long as a slow machine may
// need.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute, this does not hold: %s", what)
		}
	}
}

package consumer

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/postgres"
)

// TestFrozenSweep: an owner that is frozen while it is about to delete old
// consumers, and taken over, does not delete its successor's.
func TestFrozenSweep(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.patient()
	create := func(name string) {
		if _, err := r.js.CreateConsumer(t.Context(), r.spec.Name, jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckAllPolicy}); err != nil {
			t.Fatal(err)
		}
	}
	create("lobsink-0badcafe-0-0-old")
	g := r.gate()
	frozen, thaw := make(chan struct{}), make(chan struct{})
	var fences atomic.Int32
	g.set(func(_ context.Context, op string, _ int) error {
		// The first one confirms the claim.
		if op == "fence" && fences.Add(1) == 2 {
			close(frozen)
			<-thaw
		}
		return nil
	}, nil)
	r.start()
	<-frozen
	if err := r.store.Leave(t.Context(), r.cfg.Member.ID); err != nil { // as if its lease had run out
		t.Fatal(err)
	}
	if _, err := r.store.Claim(t.Context(), lobwriter.ClaimRequest{MemberID: "next", ClaimID: "next", Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	create("lobsink-0badcafe-0-2-next")
	close(thaw)
	r.halt()
	var names []string
	for _, c := range r.consumers() {
		names = append(names, c.Name)
	}
	if all := strings.Join(names, " "); !strings.Contains(all, "-old") || !strings.Contains(all, "-next") {
		t.Errorf("consumers %s: an owner that was taken over has deleted some", all)
	}
}

// TestTwoDeployments: two databases are fed from one stream, each by members of
// its own, which leave the others' consumers alone; also when one of them claims
// again and again.
func TestTwoDeployments(t *testing.T) {
	t.Parallel()
	c := newCrew(t, 2)
	twin := &crew{rig: &rig{}, database: c.database}
	*twin.rig = *c.rig
	twin.database.URL = c.server.CreateDatabase(t)
	if _, _, err := postgres.Setup(t.Context(), twin.database); err != nil {
		t.Fatal(err)
	}
	reader, err := postgres.OpenReader(t.Context(), twin.database)
	if err != nil {
		t.Fatal(err)
	}
	twin.reader = reader
	t.Cleanup(func() { reader.Close() })

	a, b := c.hire("a"), twin.hire("b")
	c.owns(2)
	twin.owns(2)
	before := c.epochs()
	for i := range 4 {
		twin.load(uint64(i), 200, 10)
		b.leaves()
		b = twin.hire("b")
		twin.owns(2)
	}
	if n := c.epochs(); n != before {
		t.Errorf("%d claims in one deployment while another one claimed", n-before)
	}
	// Those of earlier claims are deleted behind the claim.
	c.eventually("2 consumers for each deployment", func() bool { return len(c.consumers()) == 4 })
	c.exact()
	twin.exact()
	a.leaves()
	b.leaves()
	c.acked()
}

// TestDatabaseLost: a member that has lost its database and not NATS stops
// reading by its own clock; another one goes on where it stood.
func TestDatabaseLost(t *testing.T) {
	t.Parallel()
	c := newCrew(t, 2)
	a := c.hire("a", func(cfg *Config) { cfg.MaxAge = time.Hour })
	c.owns(2)
	c.load(1, 200, 10)
	c.eventually("messages", func() bool { return a.metric("messages_received_total") >= 200 })
	a.gate.set(away, away)
	lost := time.Now()
	c.eventually("a to stop", func() bool { return a.metric("partition_owned") == 0 })
	t.Logf("it stopped after %v, with a lease of %v", time.Since(lost), a.cfg.Lease)
	read := a.metric("messages_received_total")
	b := c.hire("b")
	c.load(2, 200, 10)
	c.exact()
	if n := a.metric("messages_received_total"); n != read {
		t.Errorf("it has read %v messages without a lease", n-read)
	}
	a.gate.set(nil, nil)
	c.owns(1, 1)
	c.load(3, 200, 10)
	a.leaves() // it flushes what it holds
	c.exact()
	b.leaves()
	c.acked()
}

package e2e

import (
	"os/exec"
	"testing"
	"time"
)

// TestProducerExample: the producer of the documentation publishes a document.
func TestProducerExample(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	db := sqliteDatabase(t)
	must(t, "setup", "--nats", b.url(), "--store", db.url, "--partitions", "2")
	s := startSink(t, "--nats", b.url(), "--store", db.url, "--max-age", "20ms")
	s.ready()
	if out, err := exec.Command("go", "run", "../docs/examples/producer", b.url()).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	db.stored(t, readTruth(t, b.connect(), streamName), time.Minute)
	if got, want := must(t, "doc", "cat", "order/1", "--store", db.url), "<order id='1'><line>ä</line></order>"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

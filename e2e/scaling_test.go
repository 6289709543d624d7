package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/internal/pgtest"
)

var (
	scaling          = flag.Bool("scaling", false, "measure how fast 1, 2 and 3 members are")
	scalingFragments = flag.Int("fragments", 400_000, "how many fragments TestScaling stores each time")
)

// The load of TestScaling.
const (
	scalingDocuments  = 2000
	scalingSize       = 300 // bytes of a fragment
	scalingPartitions = 8
	scalingRounds     = 3
)

// TestScaling measures, and asserts nothing but that everything is stored. Each
// table is of one stream that is full from the beginning, and a new PostgreSQL
// database for each line. The clock runs from when the shares have settled to the
// last commit.
func TestScaling(t *testing.T) {
	if !*scaling {
		t.Skip("measures for minutes: make scaling")
	}
	t.Setenv("LOBSINK_MAX_FRAGMENT_BYTES", "64KiB") // many partitions of larger ones need much memory
	server := pgtest.Start(t)
	const head = "%10s %12s %8s   CPU s per million: lobsink, PostgreSQL, NATS\n"
	const line = "%10d %12.0f %8.1f %12.1f %8.1f %8.1f\n"

	fmt.Printf("\nby members, with %d partitions and %d documents\n"+head, scalingPartitions, scalingDocuments, "members", "fragments/s", "MB/s")
	l := newLoad(t, server, scalingPartitions, scalingDocuments)
	for range scalingRounds {
		for members := 1; members <= 3; members++ {
			m := l.measure(members)
			fmt.Printf(line, members, m.rate, m.rate*scalingSize/1e6, m.lobsink, m.postgres, m.nats)
		}
	}
	fmt.Printf("\nby partitions, with 1 member\n"+head, "partitions", "fragments/s", "MB/s")
	for _, n := range []int{1, 8, 32, 128} {
		m := newLoad(t, server, n, scalingDocuments).measure(1)
		fmt.Printf(line, n, m.rate, m.rate*scalingSize/1e6, m.lobsink, m.postgres, m.nats)
	}
	fmt.Printf("\nby documents, with 1 member\n"+head, "documents", "fragments/s", "MB/s")
	for _, n := range []int{200, 2000, 20_000, 200_000} {
		m := newLoad(t, server, scalingPartitions, n).measure(1)
		fmt.Printf(line, n, m.rate, m.rate*scalingSize/1e6, m.lobsink, m.postgres, m.nats)
	}
	fmt.Printf("\nkill -9 of one of three members, with a lease of 2s: until the others own everything\n")
	for range 5 {
		fmt.Printf("%10.2f s\n", l.takeover().Seconds())
	}
	fmt.Printf("\nreading alone, %d partitions\n%10s %12s   CPU s per million, NATS and reader\n", scalingPartitions, "", "messages/s")
	for name, streams := range map[string]int{"one stream, a filter for each": 1, "a stream for each": scalingPartitions} {
		rate, cpu := readAlone(t, streams)
		fmt.Printf("%30s %12.0f %12.1f\n", name, rate, cpu)
	}
}

// scalingLoad is a full stream.
type scalingLoad struct {
	t          *testing.T
	broker     *broker
	server     *pgtest.Server
	partitions int
	documents  int
}

func newLoad(t *testing.T, server *pgtest.Server, partitions, documents int) *scalingLoad {
	t.Helper()
	l := &scalingLoad{t: t, broker: startBroker(t), server: server, partitions: partitions, documents: documents}
	must(t, "setup", "--nats", l.broker.url(), "--store", server.CreateDatabase(t), "--partitions", strconv.Itoa(partitions))
	js := l.broker.connect()
	s, err := js.Stream(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxMsgSize = 64 << 10
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	prefill(t, js, *scalingFragments, documents)
	return l
}

// start starts members on a new database and waits until their shares have
// settled.
func (l *scalingLoad) start(members int) *fleet {
	t := l.t
	url := l.server.CreateDatabase(t)
	must(t, "setup", "--nats", l.broker.url(), "--store", url, "--partitions", strconv.Itoa(l.partitions))
	f := &fleet{run: &run{t: t, broker: l.broker, db: &database{url: url, pg: l.server}, nats: l.broker.url(), store: url}}
	var shares []int
	for i := range members {
		f.members = append(f.members, startBinary(t, plain, "", "--nats", l.broker.url(), "--store", url, "--lease", "2s", "--flush-timeout", "1500ms"))
		shares = append(shares, (l.partitions+members-1-i)/members)
	}
	f.shares(shares...)
	return f
}

// measured is what one run cost: seconds of processor time per million fragments.
type measured struct{ rate, lobsink, postgres, nats float64 }

func (l *scalingLoad) measure(members int) measured {
	t := l.t
	f := l.start(members)
	conn := openSQL(t, "pgx", f.store)
	defer conn.Close()
	stored := func() (n int) {
		if err := conn.QueryRow("select coalesce(sum(fragments), 0) from lobsink_documents").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	now := func() (m measured) {
		for _, s := range f.members {
			m.lobsink += processorTime(t, s.cmd.Process.Pid)
		}
		m.postgres, m.nats = serverTime(t, l.server), processorTime(t, os.Getpid())
		return m
	}
	from, began, before := stored(), time.Now(), now()
	eventually(t, 10*time.Minute, func() error {
		if n := stored(); n < *scalingFragments {
			return fmt.Errorf("%d of %d fragments stored", n, *scalingFragments)
		}
		time.Sleep(100 * time.Millisecond)
		return nil
	})
	took, after := time.Since(began).Seconds(), now()
	for _, s := range f.members {
		s.terminate()
	}
	n := float64(*scalingFragments - from)
	million := func(before, after float64) float64 { return (after - before) / n * 1e6 }
	return measured{n / took, million(before.lobsink, after.lobsink), million(before.postgres, after.postgres), million(before.nats, after.nats)}
}

// takeover kills one of three members.
func (l *scalingLoad) takeover() time.Duration {
	f := l.start(3)
	time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
	f.members[0].kill()
	began := time.Now()
	f.shares(4, 4)
	took := time.Since(began)
	for _, s := range f.members[1:] {
		s.terminate()
	}
	return took
}

// readAlone reads what prefill publishes with one consumer for each partition: of
// one stream, each with its filter, or of as many streams.
func readAlone(t *testing.T, streams int) (rate, cpu float64) {
	b := startBroker(t)
	js := b.connect()
	var consumers []jetstream.Consumer
	consume := func(stream string, filter string) {
		c, err := js.CreateConsumer(t.Context(), stream, jetstream.ConsumerConfig{
			Durable: "p" + strconv.Itoa(len(consumers)), AckPolicy: jetstream.AckNonePolicy, FilterSubject: filter, MemoryStorage: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		consumers = append(consumers, c)
	}
	transform := fmt.Sprintf("p.{{partition(%d,1)}}.{{wildcard(1)}}", scalingPartitions)
	if streams == 1 {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: streamName, Subjects: []string{"fragments.*"},
			SubjectTransform: &jetstream.SubjectTransformConfig{Source: "fragments.*", Destination: transform}})
		if err != nil {
			t.Fatal(err)
		}
	} else {
		if err := b.srv.GlobalAccount().AddMapping("fragments.*", transform); err != nil {
			t.Fatal(err)
		}
		for p := range streams {
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: fmt.Sprint(streamName, p), Subjects: []string{fmt.Sprintf("p.%d.*", p)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	prefill(t, js, *scalingFragments, scalingDocuments)
	for p := range scalingPartitions {
		if streams == 1 {
			consume(streamName, fmt.Sprintf("p.%d.*", p))
		} else {
			consume(fmt.Sprint(streamName, p), "")
		}
	}
	before, began := processorTime(t, os.Getpid()), time.Now()
	var wg sync.WaitGroup
	for _, c := range consumers {
		wg.Go(func() {
			for n := 1; n > 0; {
				n = 0
				batch, err := c.FetchNoWait(1000)
				if err != nil {
					t.Error(err)
					return
				}
				for range batch.Messages() {
					n++
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began).Seconds()
	return float64(*scalingFragments) / took, (processorTime(t, os.Getpid()) - before) / float64(*scalingFragments) * 1e6
}

// prefill publishes fragments of many documents, in random order.
func prefill(t *testing.T, js jetstream.JetStream, fragments, documents int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, scalingSize)
	for i := range text {
		text[i] = byte('a' + rng.IntN(26))
	}
	for range fragments {
		_, err := js.PublishAsync(fmt.Sprintf("fragments.doc-%d", rng.IntN(documents)), text, jetstream.WithStallWait(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		t.Fatal("publishing does not end")
	}
}

// processorTime returns the seconds of processor time that a process has used, on
// Linux.
func processorTime(t *testing.T, pid int) float64 {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0 // it is gone
	}
	const ticksPerSecond = 100 // USER_HZ
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	used := 0.0
	for _, i := range []int{11, 12, 13, 14} { // utime, stime, and those of children that have ended
		n, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			t.Fatal(err)
		}
		used += n
	}
	return used / ticksPerSecond
}

// serverTime returns the processor time of a PostgreSQL server and its processes.
func serverTime(t *testing.T, s *pgtest.Server) (sum float64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Dir(), "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	postmaster, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(postmaster)
	if err != nil {
		t.Fatal(err)
	}
	sum = processorTime(t, pid)
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, child := range strings.Fields(string(children)) {
		if pid, err := strconv.Atoi(child); err == nil {
			sum += processorTime(t, pid)
		}
	}
	return sum
}

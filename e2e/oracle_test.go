package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lobsink/lobsink/lobwriter/oracle/standin"
)

// The tests of this file run lobsink against a stand-in for Oracle, in a process of
// its own. They say nothing about Oracle.

// oraclePrograms are lobsink with the driver for Oracle, and the stand-in.
var oraclePrograms = sync.OnceValues(func() (programs [2]string, err error) {
	dir := filepath.Dir(plain)
	for i, path := range []string{"../cmd/lobsink", "../lobwriter/oracle/standin/lobsink-oracle-standin"} {
		programs[i] = filepath.Join(dir, fmt.Sprint("oracle-", filepath.Base(path)))
		args := []string{"build", "-o", programs[i]}
		if *long {
			args = append(args, "-race")
		}
		cmd := exec.Command("go", append(args, path)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return programs, fmt.Errorf("go build %s: %w\n%s", path, err, out)
		}
	}
	return programs, nil
})

// oracleDatabase is a running stand-in.
type oracleDatabase struct {
	t       testing.TB
	binary  string // lobsink
	control string
	store   string
}

// startOracle starts a stand-in, for a lobsink that finds its client library.
func startOracle(t *testing.T) *oracleDatabase {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("there is no C compiler")
	}
	programs, err := oraclePrograms()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(programs[1], "-library", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log := &tail{}
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if log.contains("DATA RACE") || log.contains("panic:") {
			t.Errorf("a data race or a panic in the stand-in\n%s", log)
		}
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("the stand-in says nothing: %v\n%s", err, log)
	}
	var at standin.Addresses
	if err := json.Unmarshal(line, &at); err != nil {
		t.Fatal(err)
	}
	// The loader reads LD_LIBRARY_PATH once, at the start of a process.
	binary := filepath.Join(t.TempDir(), "lobsink")
	script := fmt.Sprintf("#!/bin/sh\nLD_LIBRARY_PATH='%s' LOBSINK_ORACLE_PASSWORD=secret exec '%s' \"$@\"\n", at.Library, programs[0])
	if err := os.WriteFile(binary, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return &oracleDatabase{t: t, binary: binary, control: at.Control, store: "oracle:lobsink@" + at.Connect}
}

// must runs a command of lobsink that has to succeed.
func (d *oracleDatabase) must(args ...string) string {
	d.t.Helper()
	cmd := exec.CommandContext(d.t.Context(), d.binary, args...)
	log := &tail{}
	cmd.Stderr = log
	out, err := cmd.Output()
	if err != nil {
		d.t.Fatalf("lobsink %v: %v\n%s%s", args, err, out, log)
	}
	return string(out)
}

// post disturbs the database.
func (d *oracleDatabase) post(path string) {
	d.t.Helper()
	answer, err := http.Post(d.control+path, "", nil)
	if err != nil {
		d.t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		d.t.Fatalf("%s: %s %s", path, answer.Status, text)
	}
}

// documents reads what is stored, without lobsink.
func (d *oracleDatabase) documents() map[string]standin.Document {
	d.t.Helper()
	answer, err := http.Get(d.control + "/documents?prefix=lobsink_")
	if err != nil {
		d.t.Fatal(err)
	}
	defer answer.Body.Close()
	var all []standin.Document
	if err := json.NewDecoder(answer.Body).Decode(&all); err != nil {
		d.t.Fatal(err)
	}
	byKey := map[string]standin.Document{}
	for _, doc := range all {
		byKey[doc.Key] = doc
	}
	return byKey
}

// stored waits until the database holds everything that the stream holds, and
// compares it byte by byte.
func (d *oracleDatabase) stored(want truth) {
	d.t.Helper()
	eventually(d.t, 2*time.Minute, func() error {
		got := d.documents()
		for key, seq := range want.last {
			if got[key].Mark < seq {
				return fmt.Errorf("%s is at %d of %d", key, got[key].Mark, seq)
			}
		}
		return nil
	})
	got := d.documents()
	for key, text := range want.text {
		if got[key].Text != text {
			d.t.Errorf("document %s: %s", key, difference(got[key].Text, text))
		}
	}
	if len(got) != len(want.text) {
		d.t.Errorf("%d documents are stored, %d were published", len(got), len(want.text))
	}
}

// TestOracle: lobsink is killed, flushes fail, connections are cut, the database
// freezes and goes back, all under one load; every document is exact.
func TestOracle(t *testing.T) {
	t.Parallel()
	d := startOracle(t)
	b := startBroker(t)
	d.must("setup", "--nats", b.url(), "--store", d.store, "--partitions", "4")
	r := &run{t: t, broker: b, done: make(chan struct{})}
	r.prod = newProducer(t, b.connect(), uint64(time.Now().UnixNano()), 40, 1500*kills(), 500*time.Microsecond)
	r.publish()
	sink := startBinary(t, d.binary, "", "--nats", b.url(), "--store", d.store, "--lease", "1s", "--flush-timeout", "800ms", "--max-age", "50ms")
	d.post("/faults?every=10")
	for i := range kills() {
		time.Sleep(500 * time.Millisecond)
		switch i % 3 {
		case 0:
			d.post("/cut")
		case 1:
			d.post("/freeze?on=true")
			time.Sleep(1500 * time.Millisecond)
			d.post("/freeze?on=false")
		case 2:
			d.post("/rewind?prefix=lobsink_&flushes=5")
		}
		time.Sleep(500 * time.Millisecond)
		sink.kill()
		sink.start()
	}
	<-r.done
	want := readTruth(t, b.connect(), streamName)
	allPublished(t, r.prod, want)
	d.stored(want)

	// It goes back once more, under an owner that has nothing to do.
	d.post("/faults?every=0")
	d.post("/rewind?prefix=lobsink_&flushes=7")
	d.stored(want)
	sink.ready()
	if code := sink.terminate(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	d.stored(want)

	// An operator builds everything again, and has it compared.
	d.must("replay", "--all", "--nats", b.url(), "--store", d.store, "--throttle", "0")
	d.stored(want)
	d.must("doc", "verify", "--all", "--store", d.store)
}

// TestOracleDemo: the demo makes its own tables, is exact, and removes them.
func TestOracleDemo(t *testing.T) {
	t.Parallel()
	d := startOracle(t)
	b := startBroker(t)
	var v verdict
	if err := json.Unmarshal([]byte(d.must("demo", "--nats", b.url(), "--store", d.store, "-o", "json")), &v); err != nil {
		t.Fatal(err)
	}
	if !v.Exact || v.Fragments == 0 || v.LOBWrites == 0 {
		t.Errorf("%+v", v)
	}
	answer, err := http.Get(d.control + "/documents?prefix=lobsink_demo_")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusNotFound {
		t.Errorf("the demo's tables are still there: %s", answer.Status)
	}
}

// TestOracleWithoutCgo: a build without cgo says what is missing.
func TestOracleWithoutCgo(t *testing.T) {
	t.Setenv("LOBSINK_ORACLE_PASSWORD", "secret")
	cmd := exec.CommandContext(t.Context(), plain, "doc", "ls", "--store", "oracle:lobsink@db")
	log := &tail{}
	cmd.Stderr = log
	if err := cmd.Run(); err == nil || !log.contains("CGO_ENABLED=1") || !log.contains("Instant Client") {
		t.Errorf("%v\n%s", err, log)
	}
}

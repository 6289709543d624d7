package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestChaos is the short form of the fault suite: a minute of random faults on
// three members, a cluster of NATS servers and PostgreSQL, and what
// `make chaos` promises about its output.
func TestChaos(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	chaos := filepath.Join(t.TempDir(), "chaos")
	args := []string{"build", "-o", chaos}
	if *long {
		args = append(args, "-race")
	}
	if out, err := exec.CommandContext(ctx, "go", append(args, "./chaos")...).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(ctx, chaos, "-lobsink", lobsink, "-faults", "14", "-fragments", "10000", "-documents", "200", "-phase", "50s")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // it ends what it has started
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	var out, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &progress
	if err := cmd.Run(); err != nil {
		t.Errorf("%v\n%s", err, &progress)
	}
	var report struct {
		Seed            *uint64
		Faults          map[string]int
		Fragments       *int
		Missing         *int
		Duplicates      *int
		Inversions      *int
		AckedNotStored  *int                            `json:"acked_not_stored"`
		TakeoverSeconds *struct{ Median, Max *float64 } `json:"takeover_seconds"`
		Exact           *bool
	}
	in := json.NewDecoder(&out)
	in.DisallowUnknownFields()
	if err := in.Decode(&report); err != nil {
		t.Fatalf("stdout is no report: %v", err)
	}
	if _, err := in.Token(); err != io.EOF {
		t.Errorf("stdout has more than the report: %v", err)
	}
	faults := 0
	for _, n := range report.Faults {
		faults += n
	}
	zero := func(n *int) bool { return n != nil && *n == 0 }
	if report.Seed == nil || faults != 14 || report.Fragments == nil || *report.Fragments < 10000 || report.TakeoverSeconds == nil ||
		!zero(report.Missing) || !zero(report.Duplicates) || !zero(report.Inversions) || !zero(report.AckedNotStored) ||
		report.Exact == nil || !*report.Exact {
		t.Errorf("the report is not that of an exact run with 14 faults:\n%s", &progress)
	}
}

package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lobsink/lobsink/e2e/chaos/check"
)

// report is what a run prints. The counts are of fragments; see check.Verdict.
type report struct {
	Seed            uint64       `json:"seed"`
	Faults          map[kind]int `json:"faults"`
	Fragments       int          `json:"fragments"`
	Missing         int          `json:"missing"`
	Duplicates      int          `json:"duplicates"`
	Inversions      int          `json:"inversions"`
	AckedNotStored  int          `json:"acked_not_stored"`
	TakeoverSeconds takeoverTime `json:"takeover_seconds"`
	Exact           bool         `json:"exact"`
}

// takeoverTime is the time from the kill of an owner to another's claim of a
// partition that it owned; null if no owner was killed.
type takeoverTime struct {
	Median *float64 `json:"median"`
	Max    *float64 `json:"max"`
}

func newReport(seed uint64, faults map[kind]int, v *check.Verdict, takeovers []time.Duration) report {
	return report{
		Seed: seed, Faults: faults, Fragments: v.Fragments,
		Missing: v.Missing, Duplicates: v.Duplicates, Inversions: v.Inversions, AckedNotStored: v.AckedNotStored,
		TakeoverSeconds: summarize(takeovers), Exact: v.Exact,
	}
}

// fault says what is wrong with the documents.
func (r *report) fault() error {
	if r.Exact && r.Missing == 0 && r.Duplicates == 0 && r.Inversions == 0 && r.AckedNotStored == 0 {
		return nil
	}
	return fmt.Errorf("missing %d, duplicates %d, inversions %d, acked_not_stored %d, exact %v",
		r.Missing, r.Duplicates, r.Inversions, r.AckedNotStored, r.Exact)
}

func summarize(takeovers []time.Duration) takeoverTime {
	if len(takeovers) == 0 {
		return takeoverTime{}
	}
	sorted := slices.Sorted(slices.Values(takeovers))
	n := len(sorted)
	median := (sorted[(n-1)/2] + sorted[n/2]) / 2
	return takeoverTime{seconds(median), seconds(sorted[n-1])}
}

// seconds rounds to milliseconds: it is not measured more exactly.
func seconds(d time.Duration) *float64 {
	s := math.Round(d.Seconds()*1000) / 1000
	return &s
}

package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/lobsink/lobsink/e2e/chaos/check"
)

func TestReport(t *testing.T) {
	v := &check.Verdict{Fragments: 5, Missing: 1, Duplicates: 2, Inversions: 3, AckedNotStored: 4}
	for _, c := range []struct {
		takeovers []time.Duration
		want      string
	}{
		{nil, `{"median":null,"max":null}`},
		{[]time.Duration{3 * time.Second}, `{"median":3,"max":3}`},
		{[]time.Duration{4 * time.Second, time.Second, 1500*time.Millisecond + 400*time.Microsecond}, `{"median":1.5,"max":4}`},
		{[]time.Duration{2 * time.Second, time.Second}, `{"median":1.5,"max":2}`},
	} {
		got, err := json.Marshal(newReport(7, map[kind]int{kill: 2}, v, c.takeovers))
		if err != nil {
			t.Fatal(err)
		}
		want := `{"seed":7,"faults":{"kill":2},"fragments":5,"missing":1,"duplicates":2,"inversions":3,"acked_not_stored":4,"takeover_seconds":` + c.want + `,"exact":false}`
		if string(got) != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

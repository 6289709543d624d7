package main

import (
	"reflect"
	"testing"
	"time"
)

func TestPlan(t *testing.T) {
	round := 0
	for _, c := range deck {
		round += c.cards
	}
	for seed := range uint64(200) {
		const over = 5 * time.Minute
		faults := plan(seed, 3*round, over)
		if !reflect.DeepEqual(faults, plan(seed, 3*round, over)) {
			t.Fatalf("seed %d gives two plans", seed)
		}
		count := map[kind]int{}
		members := firstMembers
		for i, f := range faults {
			count[f.kind]++
			members += map[kind]int{join: 1, leave: -1}[f.kind]
			if members < leastMembers || members > mostMembers {
				t.Fatalf("seed %d: %d members after fault %d", seed, members, i)
			}
			if f.at < 0 || f.at > over+time.Duration(round)*togetherWithin {
				t.Errorf("seed %d: fault %d at %s", seed, i, f.at)
			}
		}
		for _, c := range deck {
			if c.kind != join && c.kind != leave && count[c.kind] != 3*c.cards {
				t.Errorf("seed %d: %d times %s in three rounds, want %d", seed, count[c.kind], c.kind, 3*c.cards)
			}
		}
		if count[join]+count[leave] != 6 {
			t.Errorf("seed %d: %d members join and %d leave, want 6 in all", seed, count[join], count[leave])
		}
	}
}

func TestPlansDiffer(t *testing.T) {
	if reflect.DeepEqual(plan(1, 20, time.Minute), plan(2, 20, time.Minute)) {
		t.Error("two seeds give the same plan")
	}
}

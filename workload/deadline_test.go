package workload

import (
	"math"
	"testing"
	"time"
)

func TestHowLongAJobMayRunByItsDeadlines(t *testing.T) {
	set := func(phase int, seconds ...int64) PodSet {
		ps := PodSet{Phase: phase}
		for _, s := range seconds {
			ps.Deadline = &s
		}
		return ps
	}
	tests := map[string]struct {
		sets    []PodSet
		want    time.Duration
		bounded bool
	}{
		"one pod set":                                       {[]PodSet{set(0, 60)}, time.Minute, true},
		"pod sets that run at the same time":                {[]PodSet{set(0, 60), set(0, 30)}, time.Minute, true},
		"phases run one after the other":                    {[]PodSet{set(0, 60), set(1, 30), set(1, 120)}, 3 * time.Minute, true},
		"one without a deadline may run for ever":           {[]PodSet{set(0, 60), set(1)}, 0, false},
		"no pod sets":                                       {nil, 0, false},
		"deadlines beyond what can be counted are the most": {[]PodSet{set(0, math.MaxInt64), set(1, math.MaxInt64)}, math.MaxInt64 / time.Second * time.Second, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, bounded := (&Job{PodSets: tc.sets}).Deadline()
			if got != tc.want || bounded != tc.bounded {
				t.Errorf("it is %s, %v, want %s, %v", got, bounded, tc.want, tc.bounded)
			}
		})
	}
}

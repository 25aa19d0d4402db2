package bench

import (
	"testing"
	"time"
)

// class is one size of job, submitted to every ClusterQueue.
type class struct {
	name string
	// perQueue jobs come to each queue, one every interval.
	perQueue int
	every    time.Duration
	// Each asks for cores CPUs in one pod, and ends after it has run for runs.
	cores    int64
	runs     time.Duration
	priority int32
}

// shape is a load: equal cohorts of equal ClusterQueues, and the jobs for each.
type shape struct {
	cohorts, queues int
	// nominal and borrowing are the cores of each queue, and how many it may borrow.
	nominal, borrowing int64
	classes            []class
}

// kueueShape is the load by which Kueue measures itself, one part-th of its
// jobs: queues with little quota, and jobs that come faster than they run.
func kueueShape(part int) shape {
	return shape{
		cohorts: 5, queues: 6, nominal: 20, borrowing: 100,
		classes: []class{
			{name: "small", perQueue: 350 / part, every: 100 * time.Millisecond, cores: 1, runs: 200 * time.Millisecond, priority: 50},
			{name: "medium", perQueue: 100 / part, every: 500 * time.Millisecond, cores: 5, runs: 500 * time.Millisecond, priority: 100},
			{name: "large", perQueue: 50 / part, every: 1200 * time.Millisecond, cores: 20, runs: time.Second, priority: 200},
		},
	}
}

// jobs is how many jobs are submitted in all.
func (s shape) jobs() int {
	n := 0
	for _, c := range s.classes {
		n += s.cohorts * s.queues * c.perQueue
	}
	return n
}

// ofCohort is the quota of one cohort, in cores.
func (s shape) ofCohort() int64 { return int64(s.queues) * s.nominal }

// ofQueue is what one queue may use at most, in cores.
func (s shape) ofQueue() int64 { return min(s.nominal+s.borrowing, s.ofCohort()) }

// bound is the time that nobody can beat: the cohort's quota is in use all the
// time, or the last job of a class runs as soon as it has come.
func (s shape) bound() time.Duration {
	var work float64
	var last time.Duration
	for _, c := range s.classes {
		work += float64(s.queues*c.perQueue) * float64(c.cores) * c.runs.Seconds()
		last = max(last, time.Duration(c.perQueue)*c.every+c.runs)
	}
	return max(last, time.Duration(work/float64(s.ofCohort())*float64(time.Second)))
}

func TestBound(t *testing.T) {
	for _, test := range []struct {
		name string
		part int
		jobs int
		want time.Duration
	}{
		{"the whole is bound by its work", 1, 15000, 66 * time.Second},
		{"a tenth is bound by the last large job", 10, 1500, 7 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := kueueShape(test.part)
			if got := s.jobs(); got != test.jobs {
				t.Errorf("%d jobs, want %d", got, test.jobs)
			}
			if got := s.bound().Round(time.Millisecond); got != test.want {
				t.Errorf("the bound is %v, want %v", got, test.want)
			}
		})
	}
}

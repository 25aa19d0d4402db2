package scheduling

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

const (
	manyQueues  = 1000
	manyPending = 50000
)

// BenchmarkDecisionPass measures how long it takes until every bucket of 50,000
// jobs in 1,000 ClusterQueues has been tried again after quota was released, of
// which there is too little for any of them. ms/pass is the whole of it, also
// where the budget of a pass divides it.
func BenchmarkDecisionPass(b *testing.B) {
	for _, bench := range []struct {
		name string
		// cohorts is the number of cohorts that the queues are in, distinct that no
		// two jobs of a queue are alike, strict that the queues are StrictFIFO.
		cohorts  int
		distinct bool
		strict   bool
		// nominal is the quota of each queue, all of it in use: of 20, most jobs
		// would have to borrow; of 200 each would fit an empty queue.
		nominal int64
		// fair turns fair sharing on.
		fair bool
	}{
		{"5-cohorts/36-shapes", 5, false, false, 20, false},
		{"50-cohorts/36-shapes", 50, false, false, 20, false},
		{"1-cohort/36-shapes", 1, false, false, 20, false},
		{"50-cohorts/StrictFIFO", 50, false, true, 20, false},
		{"50-cohorts/all-distinct", 50, true, false, 20, false},
		{"5-cohorts/within-nominal", 5, false, false, 200, false},
		{"50-cohorts/within-nominal", 50, false, false, 200, false},
		{"1-cohort/within-nominal", 1, false, false, 200, false},
		{"5-cohorts/within-nominal/all-distinct", 5, true, false, 200, false},
		{"50-cohorts/within-nominal/all-distinct", 50, true, false, 200, false},
		{"1-cohort/within-nominal/all-distinct", 1, true, false, 200, false},
		{"5-cohorts/fair-sharing", 5, false, false, 20, true},
		{"1-cohort/fair-sharing", 1, false, false, 20, true},
		{"1-cohort/within-nominal/fair-sharing", 1, false, false, 200, true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			s := newManyQueues(b, bench.cohorts, bench.nominal, bench.strict)
			if bench.fair {
				s.shareFairly(nil)
			}
			for i := range manyPending {
				s.submit(pendingJob(i, bench.distinct), int32(i%3))
			}
			if admitted := s.pass(); len(admitted) > 0 {
				b.Fatalf("%d jobs are admitted", len(admitted))
			}
			for b.Loop() {
				for i := range bench.cohorts {
					s.mu.Lock()
					s.released(s.quota.Root(fmt.Sprintf("queue-%d", i)))
					s.mu.Unlock()
				}
				s.pass()
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/pass")
		})
	}
}

// newManyQueues has queues whose quota is in use, in cohorts in turns.
func newManyQueues(b *testing.B, cohorts int, nominal int64, strict bool) *stage {
	b.Helper()
	s := newStage(b.Context(), b)
	for i := range 100 {
		s.watched.AddNode(s.logger, flavored(fmt.Sprintf("node-%d", i), "gpu", 8))
	}
	for i := range manyQueues {
		name := fmt.Sprintf("queue-%d", i)
		cq := inCohort(name, fmt.Sprintf("cohort-%d", i%cohorts), nominal, 100)
		if strict {
			cq.Spec.QueueingStrategy = kueue.StrictFIFO
		}
		s.set(cq, false)
		s.UpdateQuota(func(t *quota.Tree) {
			t.Charge(types.UID(name), name, quota.Usage{{Flavor: "gpu", Resource: gpuResource}: nominal}, quota.Holder{})
		})
	}
	s.Restored()
	return s
}

// pendingJob is the i-th job of those that wait: of 36 shapes, or of its own.
func pendingJob(i int, distinct bool) *workload.Job {
	j := job(fmt.Sprintf("job-%d", i), set("node", 0, int32(1+i/manyQueues%18), 8-4*int64(i/manyQueues/18%2)))
	if distinct {
		j.MaxExecTime = new(fmt.Sprint(i + 1))
	}
	j.Queue = fmt.Sprintf("queue-%d", i%manyQueues)
	j.Created = epoch0.Add(time.Duration(i) * time.Second)
	return j
}

// BenchmarkPendingMemory measures what the Ledger keeps of each waiting job
// beside what was read from the API: B/job.
func BenchmarkPendingMemory(b *testing.B) {
	for _, distinct := range []bool{false, true} {
		name := "36-shapes"
		if distinct {
			name = "all-distinct"
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				s := newManyQueues(b, 50, 20, false)
				jobs := make([]*workload.Job, manyPending)
				workloads := make([]*kueue.Workload, manyPending)
				for i := range jobs {
					jobs[i] = pendingJob(i, distinct)
					workloads[i] = s.workloadOfJob(jobs[i])
				}
				before := heap()
				b.StartTimer()
				for i, j := range jobs {
					s.read(j, workloads[i], nil)
				}
				s.pass()
				b.StopTimer()
				s.wishes = newWishes()
				s.effects = s.wishes
				b.ReportMetric(float64(heap()-before)/manyPending, "B/job")
				runtime.KeepAlive(jobs)
				runtime.KeepAlive(workloads)
				runtime.KeepAlive(s)
				b.StartTimer()
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

package scheduling

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/inquiry"
)

// BenchmarkSimulate measures how long the scheduling goroutine is kept by one simulation,
// and the Ledger's lock by one explanation, with 1,000 nodes of 8 GPUs and 10,000 jobs
// that wait in 10 ClusterQueues. ms/answer is what was measured.
func BenchmarkSimulate(b *testing.B) {
	s := newStage(b.Context(), b)
	for i := range 1000 {
		s.watched.AddNode(s.logger, flavored(fmt.Sprintf("node-%d", i), "gpu", 8))
	}
	for i := range 10 {
		cq := clusterQueue(fmt.Sprintf("queue-%d", i), []string{"gpu"}, 800)
		cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
		s.set(cq, false)
	}
	s.Restored()
	// 100 jobs of 8 GPUs in each queue run, on 1,000 nodes with 10 queues: 8,000 GPUs of 8,000.
	n := 0
	submit := func(queue int, pods int32) *entry {
		n++
		j := job(fmt.Sprintf("job-%d", n), set("node", 0, pods, 8))
		j.Queue, j.Created = fmt.Sprintf("queue-%d", queue), epoch0.Add(time.Duration(n)*time.Second)
		s.submit(j, 0)
		return s.jobs[j.Owner.UID]
	}
	for i := range 990 {
		submit(i%10, 1)
	}
	if admitted := s.pass(); len(admitted) != 990 {
		b.Fatalf("%d are admitted", len(admitted))
	}
	for _, e := range s.jobs {
		e.move(evWritten)
	}
	var last *entry
	for i := range 10000 {
		last = submit(i%10, int32(2+i%30))
	}
	s.pass()
	imagine := func(pods int32, priority int32) *entry {
		j := job(fmt.Sprintf("asked-%d", pods), set("node", 0, pods, 8))
		j.Queue, j.Created, j.Owner.UID = "queue-0", epoch0.Add(time.Hour*1000), types.UID("asked")
		e := newEntry(j)
		e.priority = priority
		return e
	}
	per := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/answer")
	}
	for _, bench := range []struct {
		name    string
		e       *entry
		outcome string
	}{
		{"starts/1-pod", imagine(1, 0), inquiry.Starts},
		{"waits/100-pods", imagine(100, 0), inquiry.Waits},
		{"preempts/10-pods", imagine(10, 5), inquiry.Preempts},
		{"preempts/64-pods", imagine(64, 5), inquiry.Preempts},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for b.Loop() {
				out, err := s.cycle.simulate(s.ctx, bench.e)
				if err != nil || out.Outcome != bench.outcome {
					b.Fatalf("%+v %v", out, err)
				}
			}
			per(b)
		})
	}
	b.Run("explain", func(b *testing.B) {
		for b.Loop() {
			if _, ok := s.standingOf(last.job.Owner.UID); !ok {
				b.Fatal("unknown")
			}
		}
		per(b)
	})
}

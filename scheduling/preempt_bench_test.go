package scheduling

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

// BenchmarkSearch looks for the victims of a gang of 8-GPU pods on nodes that
// are full of jobs of one GPU, all of lower priority, so that every node would
// do. search-ms is how long the scheduling goroutine is kept; victims is how many
// are found, of how many that may go.
func BenchmarkSearch(b *testing.B) {
	for _, bench := range []struct{ nodes, pods int }{{100, 1}, {100, 16}, {1000, 1}, {1000, 64}} {
		b.Run(fmt.Sprintf("%dnodes/%dpods", bench.nodes, bench.pods), func(b *testing.B) {
			s := newStageOn(b.Context(), b, clock.RealClock{}, nil)
			c := &contest{stage: s}
			for i := range bench.nodes {
				s.watched.AddNode(s.logger, flavored(fmt.Sprintf("node-%d", i), "gpu", 8))
			}
			c.policy("main", "", int64(bench.nodes)*8, lowerPriority)
			for i := range bench.nodes * 8 {
				j := one(fmt.Sprintf("small-%d", i), 1)
				s.submit(j, int32(i%3))
				s.plan(j, []string{fmt.Sprintf("node-%d", i%bench.nodes)})
			}
			j := job("big", set("node", 0, int32(bench.pods), 8))
			s.submit(j, 10)
			e := s.entry(j)
			a, _ := s.quota.Assign(e.request(nil))
			if a == nil {
				b.Fatal("no assignment")
			}
			p := &pass{Cycle: s.cycle, ctx: b.Context(), start: time.Now()}
			if err := p.refresh(); err != nil {
				b.Fatal(err)
			}
			found := 0
			for b.Loop() {
				s.mu.Lock()
				look, _ := p.search(&attempt{b: e.spot.bucket, e: e, job: e.job, version: e.version}, &option{assignment: a, classes: prototypes(e, a, s.quota)})
				s.mu.Unlock()
				look.ends = time.Now().Add(searchFor)
				ok, err := look.run()
				if err != nil || !ok {
					b.Fatalf("found %v: %v", ok, err)
				}
				found = len(look.going)
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "search-ms")
			b.ReportMetric(float64(found), "victims")
		})
	}
}

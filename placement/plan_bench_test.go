package placement

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkPlan plans gangs of one class on clusters of 8-GPU nodes with the
// default profile's plugins. ns/pod is the figure to watch: planning, with the
// hypothetical pods taken back, divided by the number of pods planned.
func BenchmarkPlan(b *testing.B) {
	for _, bench := range []struct {
		name        string
		gpus, count int
		gangs       int
		// used is the number of GPUs taken on every node by running 1-GPU pods.
		used int
		// noPlan: the gang does not fit, and the reason is worked out.
		noPlan bool
		// spread: over ten zones, which costs a PreFilter for each pod.
		spread bool
	}{
		{name: "500pods-1gpu/empty", gpus: 1, count: 500, gangs: 1},
		{name: "500pods-8gpu/empty", gpus: 8, count: 500, gangs: 1},
		{name: "500pods-1gpu/half-full", gpus: 1, count: 500, gangs: 1, used: 4},
		{name: "500pods-4gpu/half-full", gpus: 4, count: 500, gangs: 1, used: 4},
		{name: "100gangs-20pods-4gpu/half-full", gpus: 4, count: 20, gangs: 100, used: 4},
		{name: "500pods-8gpu/no-plan", gpus: 8, count: 500, gangs: 1, used: 1, noPlan: true},
		{name: "1000pods-8gpu/empty", gpus: 8, count: 1000, gangs: 1},
		{name: "1000pods-4gpu/half-full", gpus: 4, count: 1000, gangs: 1, used: 4},
		{name: "500pods-1gpu-spread/empty", gpus: 1, count: 500, gangs: 1, spread: true},
	} {
		for _, nodes := range []int{500, 5000} {
			b.Run(fmt.Sprintf("%s/%dnodes", bench.name, nodes), func(b *testing.B) {
				var running []*v1.Pod
				for n := range nodes {
					for i := range bench.used {
						running = append(running, makePod(fmt.Sprintf("busy-%d-%d", n, i), 1, on(fmt.Sprintf("node-%d", n))))
					}
				}
				cluster := makeNodes(nodes, 8)
				for i, node := range cluster {
					node.Labels["zone"] = fmt.Sprint(i % 10)
				}
				c := newCluster(b, cluster, running...)
				planner := c.planner
				for _, gpus := range []int{1, 2, 4, 8} {
					planner.Mix().Observe(seen(gpus))
				}
				gangs := make([]Gang, bench.gangs)
				for i := range gangs {
					name := fmt.Sprintf("job-%d", i)
					pod := makePod(name, bench.gpus)
					if bench.spread {
						spread(name, "zone", 1)(pod)
					}
					gangs[i] = Gang{Name: name, UID: types.UID(name), Classes: []Class{class(pod, bench.count)}}
				}
				b.ReportAllocs()
				for b.Loop() {
					for _, gang := range gangs {
						plan, why, err := planner.Plan(c.ctx, c.fw, c.snap, gang)
						if err != nil {
							b.Fatal(err)
						}
						if (plan == nil) != bench.noPlan {
							b.Fatalf("unexpected outcome: %v", why)
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*bench.gangs*bench.count), "ns/pod")
			})
		}
	}
}

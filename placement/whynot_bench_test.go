package placement

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// BenchmarkRelief measures what it costs to find that none of 500 jobs, which have all of
// 5,000 nodes, makes room for a gang of so many pods if it leaves alone. Of 1,000 that
// shows from their size, of 10, because the CPU is others', only from their nodes.
func BenchmarkRelief(b *testing.B) {
	for _, count := range []int{10, 1000} {
		b.Run(fmt.Sprintf("%dpods", count), func(b *testing.B) { relieve(b, count) })
	}
}

func relieve(b *testing.B, count int) {
	nodes := makeNodes(5000, 8)
	jobs, all := make([][]*v1.Pod, 500), []*v1.Pod(nil)
	for i, n := range nodes {
		pod := makePod("busy-"+n.Name, 8, on(n.Name))
		jobs[i/10], all = append(jobs[i/10], pod), append(all, pod, makePod("other-"+n.Name, 0, cpus("60"), on(n.Name)))
	}
	c := newCluster(b, nodes, all...)
	gang := gangOf(class(makePod("worker", 8, cpus("8")), count))
	b.ReportAllocs()
	for b.Loop() {
		if found, err := c.planner.Relief(c.ctx, c.fw, c.snap, gang, jobs); found >= 0 || err != nil {
			b.Fatalf("got job %d, error %v", found, err)
		}
	}
}

// BenchmarkWhyNot measures what it costs to find out that a gang of 1,000 pods has no
// place on 5,000 nodes of 8 GPUs, and to say why, against the plan of one that has.
// x-plan is the ratio; both are measured in turn.
func BenchmarkWhyNot(b *testing.B) {
	const nodes, pods = 5000, 1000
	for _, bench := range []struct {
		name string
		// free is how many of the nodes have all their GPUs free.
		free    int
		options []podOption
		nodes   []nodeOption
		asked   *Topology
	}{
		{name: "no free node"},
		{name: "one node too few", free: pods - 1},
		{name: "too little CPU", free: nodes, options: []podOption{cpus("63500m")}},
		{name: "tainted", free: nodes, nodes: []nodeOption{tainted("a")}},
		{name: "no rack is large enough", free: pods, asked: requiring("rack")},
	} {
		b.Run(bench.name, func(b *testing.B) {
			build := func(free int, options ...nodeOption) *cluster {
				all := makeNodes(nodes, 8, options...)
				var running []*v1.Pod
				for i, n := range all {
					n.Labels["block"], n.Labels["rack"] = fmt.Sprint(i/2500), fmt.Sprint(i/1250)
					used := 0
					if i%nodes >= free {
						used = 1
					}
					running = append(running, makePod("busy-"+n.Name, used, on(n.Name)))
				}
				return newCluster(b, all, running...)
			}
			// Those that are free are spread over the racks, or are in one.
			full, roomy := build(bench.free, bench.nodes...), build(pods)
			if bench.asked != nil {
				full = newCluster(b, func() []*v1.Node {
					all := makeNodes(nodes, 8)
					for i, n := range all {
						n.Labels["block"], n.Labels["rack"] = "0", fmt.Sprint(i/500)
					}
					return all
				}())
			}
			gang := gangOf(close(class(makePod("worker", 8, bench.options...), pods), bench.asked))
			plain := gangOf(close(class(makePod("worker", 8), pods), bench.asked))
			var why, plan time.Duration
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				if _, no, err := full.planner.Plan(full.ctx, full.fw, full.snap, gang); err != nil || no == nil {
					b.Fatalf("got no reason, error %v", err)
				}
				why += time.Since(start)
				b.StopTimer()
				start = time.Now()
				if _, no, err := roomy.planner.Plan(roomy.ctx, roomy.fw, roomy.snap, plain); err != nil || no != nil {
					b.Fatalf("got reason %v, error %v", no, err)
				}
				plan += time.Since(start)
				b.StartTimer()
			}
			b.ReportMetric(float64(why)/float64(plan), "x-plan")
		})
	}
}

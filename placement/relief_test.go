package placement

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestRelief(t *testing.T) {
	job := func(pods ...*v1.Pod) []*v1.Pod { return pods }
	half := func(name, node string) *v1.Pod { return makePod(name, 4, on(node)) }
	for _, test := range []struct {
		name  string
		nodes []*v1.Node
		jobs  [][]*v1.Pod
		gang  Gang
		want  int
	}{
		{
			name:  "the first that leaves enough on one node",
			nodes: makeNodes(2, 8),
			jobs:  [][]*v1.Pod{job(makePod("a", 2, on("node-0"))), job(half("b", "node-0")), job(half("c", "node-1"))},
			gang:  gangOf(class(makePod("worker", 8), 1)),
			want:  2,
		},
		{
			name:  "one of many pods, each of which leaves room for one",
			nodes: makeNodes(3, 8),
			jobs:  [][]*v1.Pod{job(half("a", "node-0"), half("b", "node-1")), job(half("c", "node-0"), half("d", "node-1"), half("e", "node-2"))},
			gang:  gangOf(class(makePod("worker", 4), 4)),
			want:  1,
		},
		{
			name:  "none of them alone",
			nodes: makeNodes(2, 8),
			jobs:  [][]*v1.Pod{job(makePod("a", 8, on("node-0"))), job(makePod("b", 8, on("node-1")))},
			gang:  gangOf(class(makePod("worker", 8), 2)),
			want:  -1,
		},
		{
			name:  "GPUs alone are not enough where the CPU is another's",
			nodes: makeNodes(2, 8),
			jobs:  [][]*v1.Pod{job(makePod("a", 8, on("node-0"))), job(makePod("b", 0, cpus("60"), on("node-0")), makePod("c", 8, on("node-1")))},
			gang:  gangOf(class(makePod("worker", 8, cpus("32")), 1)),
			want:  1,
		},
		{
			name:  "a tainted node is of no use",
			nodes: []*v1.Node{makeNode("node-0", 8, tainted("a")), makeNode("node-1", 8)},
			jobs:  [][]*v1.Pod{job(makePod("a", 8, on("node-0"))), job(makePod("b", 8, on("node-1")))},
			gang:  gangOf(class(makePod("worker", 8), 1)),
			want:  1,
		},
		{
			name:  "where it is not room that is missing, nobody's leaving helps",
			nodes: makeNodes(1, 8),
			jobs:  [][]*v1.Pod{job(half("a", "node-0"))},
			gang:  gangOf(class(makePod("worker", 4), 1)),
			want:  -1,
		},
		{
			name:  "pods that mind others are not judged",
			nodes: makeNodes(1, 8),
			jobs:  [][]*v1.Pod{job(makePod("a", 8, on("node-0")))},
			gang:  gangOf(class(makePod("worker", 8, apart("other", v1.LabelHostname)), 1)),
			want:  -1,
		},
		{
			name:  "nor are those that others keep off",
			nodes: makeNodes(2, 8),
			jobs:  [][]*v1.Pod{job(makePod("a", 8, on("node-0"))), job(makePod("b", 8, on("node-1"), apart("worker", v1.LabelHostname)))},
			gang:  gangOf(class(makePod("worker", 8), 1)),
			want:  -1,
		},
		{
			name:  "nor gangs that ask for a domain",
			nodes: oneBlock(1),
			jobs:  [][]*v1.Pod{job(makePod("a", 8, on("a0")))},
			gang:  gangOf(close(class(makePod("worker", 8), 1), requiring("rack"))),
			want:  -1,
		},
		{
			name:  "nor gangs of several classes",
			nodes: makeNodes(1, 8),
			jobs:  [][]*v1.Pod{job(makePod("a", 8, on("node-0")))},
			gang:  gangOf(class(makePod("worker", 4), 1), class(makePod("head", 4), 1)),
			want:  -1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var running []*v1.Pod
			for _, pods := range test.jobs {
				running = append(running, pods...)
			}
			c := newCluster(t, test.nodes, running...)
			got, err := c.planner.Relief(c.ctx, c.fw, c.snap, test.gang, test.jobs)
			if err != nil || got != test.want {
				t.Fatalf("got %d, error %v, want %d", got, err, test.want)
			}
			if test.want < 0 {
				return
			}
			// It is true.
			without, err := c.planner.Without(c.planner.newTrial(c.ctx, c.fw, c.snap, nil).logger, c.snap)
			if err != nil {
				t.Fatal(err)
			}
			if err := without.Remove(test.jobs[got]); err != nil {
				t.Fatal(err)
			}
			if plan, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, test.gang); plan == nil {
				t.Errorf("without that job there is no plan: %v, error %v", why, err)
			}
			if err := without.End(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

package placement

import (
	"math"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// deterred is a node that the scheduler only prefers not to use.
func deterred(n *v1.Node) {
	n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectPreferNoSchedule}}
}

func TestFree(t *testing.T) {
	for name, test := range map[string]struct {
		nodes      []*v1.Node
		running    []*v1.Pod
		seen       []Gang
		free       int64
		fragmented float64
	}{
		"nothing was asked for, so nothing is known to be of no use": {
			nodes: []*v1.Node{makeNode("a", 8), makeNode("b", 8)}, running: []*v1.Pod{makePod("x", 3, on("a"))},
			free: 13,
		},
		"what is left of a node is no use to pods of a whole one": {
			nodes: []*v1.Node{makeNode("a", 8), makeNode("b", 8)}, running: []*v1.Pod{makePod("x", 3, on("a"))}, seen: []Gang{seen(8)},
			free: 13, fragmented: 5,
		},
		"pods count by the GPUs that they ask for": {
			nodes: []*v1.Node{makeNode("a", 8)}, running: []*v1.Pod{makePod("x", 4, on("a"))}, seen: []Gang{seen(8), seen(2)},
			free: 4, fragmented: 4 * .8,
		},
		"a node that is not ready, or of which nothing is heard, has none, with its taint and before it": {
			nodes: []*v1.Node{
				makeNode("a", 8, tainted(v1.TaintNodeNotReady)),
				makeNode("b", 8, tainted(v1.TaintNodeUnreachable)),
				makeNode("c", 8, ready(v1.ConditionFalse)), makeNode("d", 8, ready(v1.ConditionUnknown)),
				makeNode("e", 8, tainted("team"), tainted(v1.TaintNodeUnreachable)),
			},
		},
		"a taint that some pods tolerate, or that only deters them, keeps nothing": {
			nodes: []*v1.Node{
				makeNode("a", 8, tainted("team")),
				makeNode("b", 4, deterred), makeNode("c", 2, ready(v1.ConditionTrue)),
			},
			free: 14,
		},
		"a cordoned node and one without GPUs have none": {
			nodes: []*v1.Node{makeNode("a", 8, cordoned), makeNode("b", 0)}, seen: []Gang{seen(8)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, test.nodes, test.running...)
			mix := c.planner.Mix()
			for _, gang := range test.seen {
				mix.Observe(gang)
			}
			nodes, err := c.snap.NodeInfos().List()
			if err != nil {
				t.Fatal(err)
			}
			free, fragmented := mix.Free(nodes)
			if free != test.free || math.Abs(fragmented-test.fragmented) > 0.01 {
				t.Errorf("%d are free, %.2f of them of little use; want %d and %.2f", free, fragmented, test.free, test.fragmented)
			}
		})
	}
}

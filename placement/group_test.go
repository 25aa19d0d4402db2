package placement

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/placement/topology"
)

// inRacks are the levels of the nodes that racks makes.
func inRacks(t Topology) *Topology {
	t.Levels = []string{"block", "rack", v1.LabelHostname}
	return &t
}

func requiring(level string) *Topology { return inRacks(Topology{Level: level, Required: true}) }

func preferring(level string) *Topology { return inRacks(Topology{Level: level}) }

// close is a class that asks for a Topology.
func close(c Class, t *Topology) Class {
	c.Topology = t
	return c
}

func leader(c Class, t *Topology) Class {
	c.Topology, c.Leader = t, true
	return c
}

func beside(c Class, t *Topology) Class {
	c.Beside = t
	return c
}

// returning is a class of which only some pods are to be placed: kept has the
// nodes of all.
func returning(c Class, t *Topology, kept ...string) Class {
	c.Topology, c.Kept, c.Count = t, kept, 0
	for _, node := range kept {
		if node == "" {
			c.Count++
		} else if !slices.Contains(c.Fixed, node) {
			c.Fixed = append(c.Fixed, node)
		}
	}
	return c
}

// busy are pods that take all GPUs of nodes.
func busy(nodes ...string) []*v1.Pod {
	var out []*v1.Pod
	for _, node := range nodes {
		out = append(out, makePod("busy-"+node, 8, on(node)))
	}
	return out
}

func ofBlock(nodes []*v1.Node, block func(*v1.Node) string) []*v1.Node {
	for _, n := range nodes {
		n.Labels["block"] = block(n)
	}
	return nodes
}

// oneBlock has racks as racks makes them in one block.
func oneBlock(nodes ...int) []*v1.Node {
	return ofBlock(racks(nodes...), func(*v1.Node) string { return "x" })
}

func TestTopology(t *testing.T) {
	rack, block := requiring("rack"), requiring("block")
	for _, test := range []struct {
		name    string
		nodes   []*v1.Node
		running []*v1.Pod
		gang    Gang
		// want are the nodes of each class in rank order.
		want []string
		why  *reason.Reason
	}{
		{
			name: "of two racks with 6 and 4 free nodes, 4 pods get the smaller", nodes: oneBlock(6, 4),
			gang: gangOf(close(class(makePod("worker", 8), 4), rack)),
			want: []string{"b0 b1 b2 b3"},
		},
		{
			name: "pod sets that keep off each other's nodes get a rack with a node for each", nodes: oneBlock(2, 3),
			gang: gangOf(
				close(class(makePod("x", 1, offOthers("x", "job")), 4), rack),
				close(class(makePod("y", 1, offOthers("y", "job")), 4), rack),
				close(class(makePod("z", 1, offOthers("z", "job")), 4), rack)),
			want: []string{"b0 b0 b0 b0", "b1 b1 b1 b1", "b2 b2 b2 b2"},
		},
		{
			name: "of pods that want the same port each node has one, also if it is empty", nodes: oneBlock(2, 2), running: busy("a0"),
			gang: gangOf(close(class(makePod("worker", 1, hostPort(80)), 3), rack)),
			why:  reason.New(reason.ExceedsCluster, "needs 3 pods of 1 GPU in one rack; even empty, the largest, a, has room for 2"),
		},
		{
			name: "no rack is large enough", nodes: oneBlock(6, 4), running: busy("a0", "a1", "a2"),
			gang: gangOf(close(class(makePod("worker", 8), 5), rack)),
			why:  reason.New(reason.NoPlacement, "needs 5 pods of 8 GPUs in one rack; the best, b, has room for 4; in a 16 more GPUs are missing, on 2 nodes"),
		},
		{
			name: "no rack has the GPUs, and none lacks them where CPU is what is missing", nodes: oneBlock(2, 2),
			running: []*v1.Pod{makePod("busy", 0, cpus("60"), on("a1")), makePod("idle", 0, cpus("60"), on("b0"))},
			gang:    gangOf(close(class(makePod("worker", 8, cpus("60")), 2), rack)),
			why:     reason.New(reason.NoPlacement, "needs 2 pods of 8 GPUs in one rack; the best, a, has room for 1"),
		},
		{
			name: "nodes that are tainted, or in no rack, are none where GPUs may become free", nodes: append(oneBlock(3), func() []*v1.Node {
				nodes := append(makeNodes(3, 8), oneBlock(0, 3)...)
				for _, n := range nodes[3:] {
					tainted("broken")(n)
				}
				return nodes
			}()...),
			running: append(busy("a0", "a1"), makePod("x", 1, on("node-0")), makePod("y", 1, on("b0"))),
			gang:    gangOf(close(class(makePod("worker", 8), 3), rack)),
			why: reason.New(reason.NoPlacement, "needs 3 pods of 8 GPUs in one rack; the best, a, has room for 1; in a 16 more GPUs are missing, on 2 nodes; "+
				"2 nodes with room lack the label"),
		},
		{
			name: "single nodes are domains, too", nodes: oneBlock(2, 2), running: []*v1.Pod{makePod("x", 1, on("a0")), makePod("y", 2, on("a1")), makePod("z", 3, on("b0")), makePod("w", 4, on("b1"))},
			gang: gangOf(close(class(makePod("worker", 4), 2), requiring(v1.LabelHostname))),
			why:  reason.New(reason.NoPlacement, "needs 2 pods of 4 GPUs in one kubernetes.io/hostname; the best, a0, has room for 1; in a0 1 more GPU is missing, on one node"),
		},
		{
			name: "no rack would be, even empty", nodes: oneBlock(6, 4),
			gang: gangOf(close(class(makePod("worker", 8), 7), rack)),
			why:  reason.New(reason.ExceedsCluster, "needs 7 pods of 8 GPUs in one rack; even empty, the largest, a, has room for 6"),
		},
		{
			name: "too few GPUs are free at all", nodes: oneBlock(2, 2), running: busy("a0", "b0"),
			gang: gangOf(close(class(makePod("worker", 8), 3), block)),
			why:  reason.New(reason.NoPlacement, "needs 3 pods of 8 GPUs; 16 GPUs are free, with room for 2 of them; 8 more GPUs are missing, on one node"),
		},
		{
			name: "no node has the label", nodes: racks(3),
			gang: gangOf(close(class(makePod("worker", 8), 2), block)),
			why:  reason.New(reason.NoPlacement, "needs 2 pods of 8 GPUs in one block; no node with room has that label"),
		},
		{
			name: "a level that the topology does not have", nodes: oneBlock(3),
			gang: gangOf(close(class(makePod("worker", 8), 2), requiring("row"))),
			why:  reason.New(reason.Misconfigured, "it asks for row, which is none of the topology's levels"),
		},
		{
			name: "nodes without the label are passed over", nodes: append(oneBlock(2), makeNodes(8, 8)...),
			gang: gangOf(close(class(makePod("worker", 8), 2), rack)),
			want: []string{"a0 a1"},
		},
		{
			name: "and are told of where there is too little without them", nodes: append(oneBlock(2), makeNodes(2, 8)...),
			gang: gangOf(close(class(makePod("worker", 8), 3), rack)),
			why:  reason.New(reason.ExceedsCluster, "needs 3 pods of 8 GPUs in one rack; even empty, the largest, a, has room for 2; 2 nodes with room lack the label"),
		},
		{
			name: "a preferred rack that is too small: the fewest racks", nodes: oneBlock(1, 3, 2),
			gang: gangOf(close(class(makePod("worker", 8), 5), preferring("rack"))),
			want: []string{"b0 b1 b2 c0 c1"},
		},
		{
			name: "ranks go node by node", nodes: oneBlock(2),
			gang: gangOf(close(class(makePod("worker", 4), 4), rack)),
			want: []string{"a0 a0 a1 a1"},
		},
		{
			name: "tainted nodes do not make a rack the best", nodes: append(oneBlock(0, 3), func() []*v1.Node {
				nodes := oneBlock(4)
				for _, n := range nodes[:2] {
					tainted("broken")(n)
				}
				return nodes
			}()...),
			gang: gangOf(close(class(makePod("worker", 8), 2), rack)),
			want: []string{"a2 a3"},
		},
		{
			name: "a rack in which only Filter knows of a node that it is refused is left for the next", nodes: oneBlock(2, 3),
			running: []*v1.Pod{makePod("alone", 0, on("a1"), apart("worker", v1.LabelHostname))},
			gang:    gangOf(close(class(makePod("worker", 8), 2), rack)),
			want:    []string{"b0 b1"},
		},
		{
			name: "a cordoned node does not make a rack the best", nodes: func() []*v1.Node {
				nodes := oneBlock(3, 3)
				cordoned(nodes[3])
				return nodes
			}(),
			gang: gangOf(close(class(makePod("worker", 8), 2), rack)),
			want: []string{"b1 b2"},
		},
		{
			name: "one pod of them per node, for a port", nodes: oneBlock(2, 4),
			gang: gangOf(close(class(makePod("worker", 1, hostPort(80)), 3), rack)),
			want: []string{"b0 b1 b2"},
		},
		{
			name: "pods that keep away from others of their kind", nodes: oneBlock(2, 4),
			gang: gangOf(close(class(makePod("worker", 1, apart("worker", v1.LabelHostname)), 3), rack)),
			want: []string{"b0 b1 b2"},
		},
		{
			name: "pods that want to be near each other by another label, in one rack",
			nodes: func() []*v1.Node {
				nodes := oneBlock(3, 3)
				for i, n := range nodes {
					n.Labels["half"] = []string{"1", "2", "2", "1", "1", "1"}[i]
				}
				return nodes
			}(),
			gang: gangOf(close(class(makePod("worker", 8, near("worker", "half")), 3), rack)),
			want: []string{"b0 b1 b2"},
		},
		{
			name: "only some nodes of the rack are near each other by that label",
			nodes: func() []*v1.Node {
				nodes := oneBlock(4)
				for i, n := range nodes {
					n.Labels["half"] = []string{"1", "2", "2", "2"}[i]
				}
				return nodes
			}(),
			gang: gangOf(close(class(makePod("worker", 8, near("worker", "half")), 3), rack)),
			want: []string{"a1 a2 a3"},
		},
		{
			name: "the leader is in the domain, beside rank 0", nodes: oneBlock(2, 2), running: busy("a0"),
			gang: gangOf(leader(class(makePod("launcher", 0), 1), rack), close(class(makePod("worker", 8), 2), rack)),
			want: []string{"b0", "b0 b1"},
		},
		{
			name: "a domain without room for the leader is passed over", nodes: oneBlock(2, 3),
			gang: gangOf(leader(class(makePod("launcher", 8), 1), rack), close(class(makePod("worker", 8), 2), rack)),
			want: []string{"b0", "b1 b2"},
		},
		{
			name: "a launcher that asks for nothing is close to rank 0 all the same", nodes: append(oneBlock(2, 2), makeNode("cpu", 0)),
			gang: gangOf(beside(class(makePod("launcher", 0), 1), rack), close(class(makePod("worker", 8), 2), rack)),
			want: []string{"a0", "a0 a1"},
		},
		{
			name: "on the next node of the rack where that one is full", nodes: oneBlock(3, 3), running: busy("a2"),
			gang: gangOf(beside(class(makePod("launcher", 0, cpus("60")), 1), rack), close(class(makePod("worker", 8, cpus("60")), 1), rack)),
			want: []string{"a2", "a0"},
		},
		{
			name: "classes of one pod set follow each other", nodes: oneBlock(4, 3),
			gang: gangOf(close(class(makePod("worker-0", 8), 1), rack), close(class(makePod("worker-1", 8), 2), rack)),
			want: []string{"b0", "b1 b2"},
		},
		{
			name: "two groups take a rack each", nodes: oneBlock(2, 2),
			gang: gangOf(close(class(makePod("first", 8), 2), requiring("rack")), close(class(makePod("second", 8), 2), requiring("rack"))),
			want: []string{"a0 a1", "b0 b1"},
		},
		{
			name: "the larger group is not left without by the smaller one", nodes: oneBlock(3, 1),
			gang: gangOf(close(class(makePod("first", 8), 1), requiring("rack")), close(class(makePod("second", 8), 3), requiring("rack"))),
			want: []string{"b0", "a0 a1 a2"},
		},
		{
			name: "slices of two, each in one rack", nodes: oneBlock(3, 1, 3),
			gang: gangOf(close(class(makePod("worker", 8), 4), inRacks(Topology{Slices: []Slice{{"rack", 2}}}))),
			want: []string{"a0 a1 c0 c1"},
		},
		{
			name: "racks that are too small for slices", nodes: oneBlock(1, 3, 1),
			gang: gangOf(close(class(makePod("worker", 8), 4), inRacks(Topology{Level: "block", Required: true, Slices: []Slice{{"rack", 2}}}))),
			why:  reason.New(reason.ExceedsCluster, "needs 4 pods of 8 GPUs in one block, each 2 in one rack; even empty, the largest, x, has room for 2"),
		},
		{
			name: "and where none is required besides", nodes: oneBlock(1, 3, 1),
			gang: gangOf(close(class(makePod("worker", 8), 4), inRacks(Topology{Slices: []Slice{{"rack", 2}}}))),
			why:  reason.New(reason.NoPlacement, "needs 4 pods of 8 GPUs, each 2 in one rack; there is room for 2 in such"),
		},
		{
			name: "pods that come back stay in the domain", nodes: oneBlock(3, 1),
			running: busy("a0", "a1"),
			gang:    gangOf(returning(class(makePod("worker", 8), 0), rack, "a0", "", "a1")),
			want:    []string{"a2"},
		},
		{
			name: "or wait", nodes: oneBlock(2, 1), running: busy("a0", "a1"),
			gang: gangOf(returning(class(makePod("worker", 8), 0), rack, "a0", "")),
			why:  reason.New(reason.NoPlacement, "needs 1 pod of 8 GPUs in one rack, where the rest of the gang is: there is no room for that"),
		},
		{
			name: "a pod that comes back goes to its slice", nodes: oneBlock(3, 3), running: busy("a0", "b0", "b1"),
			gang: gangOf(returning(class(makePod("worker", 8), 0), inRacks(Topology{Slices: []Slice{{"rack", 2}}}), "b0", "b1", "a0", "")),
			want: []string{"a1"},
		},
		{
			name: "two slices of one rack that each miss a pod", nodes: oneBlock(4), running: busy("a0", "a1"),
			gang: gangOf(returning(class(makePod("worker", 8), 0), inRacks(Topology{Slices: []Slice{{"rack", 2}}}), "a0", "", "", "a1")),
			want: []string{"a2 a3"},
		},
		{
			name: "a whole slice that comes back goes to a rack of its own choice", nodes: oneBlock(2, 2, 2), running: busy("a0", "b0", "b1"),
			gang: gangOf(returning(class(makePod("worker", 8), 0), inRacks(Topology{Slices: []Slice{{"rack", 2}}}), "", "a0", "", "")),
			want: []string{"a1 c0 c1"},
		},
		{
			name: "slices of nodes within those of racks", nodes: oneBlock(3, 2),
			running: []*v1.Pod{makePod("half-a0", 4, on("a0")), makePod("half-a1", 4, on("a1"))},
			gang:    gangOf(close(class(makePod("worker", 4), 4), inRacks(Topology{Slices: []Slice{{"rack", 4}, {v1.LabelHostname, 2}}}))),
			want:    []string{"b0 b0 b1 b1"},
		},
		{
			name: "a pod that comes back goes to its node, and a slice beside it to its rack", nodes: oneBlock(3, 1, 3),
			running: []*v1.Pod{makePod("kept", 4, on("a1")), makePod("other", 4, on("a0"))},
			gang:    gangOf(returning(class(makePod("worker", 4), 0), inRacks(Topology{Slices: []Slice{{"rack", 4}, {v1.LabelHostname, 2}}}), "", "a1", "", "")),
			want:    []string{"a1 a2 a2"},
		},
		{
			name: "of slices within slices that come back one fits nowhere", nodes: oneBlock(2, 1, 3),
			running: []*v1.Pod{makePod("kept", 4, on("a1")), makePod("other", 4, on("a0"))},
			gang:    gangOf(returning(class(makePod("worker", 4), 0), inRacks(Topology{Slices: []Slice{{"rack", 4}, {v1.LabelHostname, 2}}}), "", "a1", "", "")),
			why: reason.New(reason.NoPlacement, "needs 3 pods of 4 GPUs, each 4 in one rack, and of those each 2 in one kubernetes.io/hostname, "+
				"where the rest of the gang is: there is no room for that"),
		},
		{
			name: "slices that are not inside those around them", nodes: oneBlock(2),
			gang: gangOf(close(class(makePod("worker", 8), 2), inRacks(Topology{Slices: []Slice{{"rack", 2}, {"block", 1}}}))),
			why:  reason.New(reason.Misconfigured, "it asks for slices in one block, which in the topology is not inside rack"),
		},
		{
			name: "slices that are not inside the level of all", nodes: oneBlock(2),
			gang: gangOf(close(class(makePod("worker", 8), 2), inRacks(Topology{Level: "rack", Slices: []Slice{{"block", 2}}}))),
			why:  reason.New(reason.Misconfigured, "it asks for slices in one block, which in the topology is not inside rack"),
		},
		{
			name: "no constraint: the fewest racks where that costs no node", nodes: oneBlock(2, 2), running: busy("a1"),
			gang: gangOf(close(class(makePod("worker", 8), 2), inRacks(Topology{}))),
			want: []string{"b0 b1"},
		},
		{
			name: "no constraint: a full node goes before a rack", nodes: oneBlock(2, 1),
			running: []*v1.Pod{makePod("half-a0", 4, on("a0")), makePod("half-a1", 4, on("a1"))},
			gang:    gangOf(close(class(makePod("worker", 4), 3), inRacks(Topology{}))),
			want:    []string{"a0 b0 b0"},
		},
		{
			name:  "pods without GPUs stay off nodes with GPUs, though their rack is a better fit",
			nodes: append(oneBlock(1), makeNode("c0", 0, nodeLabel("rack", "c"), nodeLabel("block", "x")), makeNode("c1", 0, nodeLabel("rack", "c"), nodeLabel("block", "x"))),
			gang:  gangOf(close(class(makePod("worker", 0), 2), rack)),
			want:  []string{"c0 c0"},
		},
		{
			name: "unless there are no others", nodes: append(oneBlock(2), makeNode("c0", 0, nodeLabel("rack", "c"), nodeLabel("block", "x"))),
			gang: gangOf(close(class(makePod("worker", 0, cpus("60")), 2), rack)),
			want: []string{"a0 a1"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, test.nodes, test.running...)
			before := c.dump(t)
			plan, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, test.gang)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, nodes := range plan {
				got = append(got, strings.Join(nodes, " "))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.why, why); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, c.dump(t)); diff != "" {
				t.Errorf("the snapshot changed:\n%s", diff)
			}
		})
	}
}

func TestTopologyQuality(t *testing.T) {
	for _, test := range []struct {
		name  string
		nodes []*v1.Node
		class Class
		want  topology.Quality
	}{
		{"one rack", oneBlock(2, 3), close(class(makePod("worker", 8), 2), requiring("rack")), topology.Quality{Level: 1, Domains: 1, Fewest: 1}},
		{"two racks for want of one", oneBlock(2, 3), close(class(makePod("worker", 8), 4), preferring("rack")), topology.Quality{Level: 1, Domains: 2, Fewest: 2, Crossed: 1}},
		{
			"the others of a pod that comes back count", oneBlock(2, 3),
			returning(class(makePod("worker", 8), 0), preferring("block"), "a0", "b0", ""), topology.Quality{Domains: 1, Fewest: 1, Crossed: 1},
		},
		{
			"where they are is room that all could have had", append(oneBlock(2, 3), makeNode("alone", 8)),
			returning(class(makePod("worker", 8), 0), preferring("rack"), "a0", "b0", "b1", ""), topology.Quality{Level: 1, Domains: 2, Fewest: 2, Crossed: 1},
		},
		{
			"nothing is asked, and one rack would do", oneBlock(2, 3), close(class(makePod("worker", 8), 3), inRacks(Topology{Unasked: true})),
			topology.Quality{Level: 1, Domains: 2, Fewest: 1, Crossed: 1},
		},
		{
			"nothing is asked, and a pod comes back", oneBlock(2, 3), returning(class(makePod("worker", 8), 0), inRacks(Topology{Unasked: true}), "b0", "b1", ""),
			topology.Quality{Level: 1, Domains: 2, Fewest: 1, Crossed: 1},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, test.nodes, busy(test.class.Fixed...)...)
			gang := gangOf(test.class)
			var got []topology.Quality
			gang.Placed = func(of *Topology, q topology.Quality) {
				if of != test.class.Topology {
					t.Errorf("told of another Topology")
				}
				got = append(got, q)
			}
			if _, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, gang); err != nil || why != nil {
				t.Fatal(why, err)
			}
			if diff := cmp.Diff([]topology.Quality{test.want}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestRequiredTopologyIsFoundWhereThereIsOne: a class of pods that do not mind
// each other gets a domain exactly where one has room by what Filter says of its
// nodes one by one, and it is the one that leaves the least over.
func TestRequiredTopologyIsFoundWhereThereIsOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
		defer cancel()
		var nodes []*v1.Node
		var running []*v1.Pod
		// hidden: what a node takes is for Filter to find out.
		hidden := false
		room := map[string]int{}
		gpus := rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "GPUs per pod")
		for i := range rapid.IntRange(1, 10).Draw(t, "nodes") {
			name := fmt.Sprintf("n%d", i)
			n := makeNode(name, 8)
			rack := rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(t, "rack")
			if rack != "" {
				n.Labels["rack"] = rack
			}
			used := rapid.SampledFrom([]int{0, 0, 1, 4, 7}).Draw(t, "used")
			if used > 0 {
				running = append(running, makePod("busy-"+name, used, on(name)))
			}
			takes := (8 - used) / gpus
			switch rapid.SampledFrom([]string{"", "", "", "cordoned", "tainted", "other", "port"}).Draw(t, "state") {
			case "cordoned":
				cordoned(n)
				takes = 0
			case "tainted":
				tainted("broken")(n)
				takes = 0
			case "other":
				n.Labels["kind"] = "other"
				takes = 0
			case "port":
				// Only Filter knows of it.
				running = append(running, makePod("port-"+name, 0, on(name), apart("worker", v1.LabelHostname)))
				takes, hidden = 0, true
			}
			if n.Labels["kind"] == "" {
				n.Labels["kind"] = "gpu"
			}
			if rack != "" {
				room[rack] += takes
			}
			nodes = append(nodes, n)
		}
		count := rapid.IntRange(1, 12).Draw(t, "pods")
		c := newClusterIn(ctx, t, nodes, running...)
		pod := makePod("worker", gpus, selecting("kind", "gpu"))
		plan, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, gangOf(close(class(pod, count), &Topology{Levels: []string{"rack"}, Level: "rack", Required: true})))
		if err != nil {
			t.Fatal(err)
		}
		best := 1 << 20
		for _, n := range room {
			if n >= count {
				best = min(best, n)
			}
		}
		if (plan != nil) != (best < 1<<20) {
			t.Fatalf("planned: %v (%v), room by rack: %v", plan, why, room)
		}
		if plan == nil {
			return
		}
		racks := map[string]bool{}
		for _, name := range plan[0] {
			for _, n := range nodes {
				if n.Name == name {
					racks[n.Labels["rack"]] = true
				}
			}
		}
		for rack := range racks {
			if len(racks) > 1 || (!hidden && room[rack] > best) {
				t.Fatalf("in racks %v, room by rack: %v", racks, room)
			}
		}
	})
}

// BenchmarkPlanTopology is BenchmarkPlan with a level that is required,
// preferred, or not asked for, in 40 racks of 125 nodes.
func BenchmarkPlanTopology(b *testing.B) {
	for _, of := range []struct {
		name     string
		topology *Topology
		count    int
	}{
		{"none", nil, 1000},
		{"required-rack", requiring("rack"), 1000},
		{"preferred-rack", preferring("rack"), 1000},
		{"unconstrained", inRacks(Topology{}), 1000},
		{"slices", inRacks(Topology{Level: "block", Required: true, Slices: []Slice{{"rack", 8}}}), 1000},
		{"judged", inRacks(Topology{Unasked: true}), 1000},
		{"none", nil, 20},
		{"judged", inRacks(Topology{Unasked: true}), 20},
		{"required-rack", requiring("rack"), 20},
	} {
		b.Run(fmt.Sprintf("%s/%dpods/5000nodes", of.name, of.count), func(b *testing.B) {
			nodes := makeNodes(5000, 8)
			for i, n := range nodes {
				n.Labels["rack"], n.Labels["block"] = fmt.Sprint(i/125), fmt.Sprint(i/1250)
			}
			c := newCluster(b, nodes)
			gang := Gang{Name: "job", UID: types.UID("job"), Classes: []Class{close(class(makePod("worker", 1), of.count), of.topology)}}
			gang.Placed = func(*Topology, topology.Quality) {}
			b.ReportAllocs()
			for b.Loop() {
				if plan, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, gang); err != nil || plan == nil {
					b.Fatal(why, err)
				}
			}
		})
	}
}

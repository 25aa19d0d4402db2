package placement

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/api/reason"
)

func TestPlan(t *testing.T) {
	zones := func(names ...string) []*v1.Node {
		var nodes []*v1.Node
		for _, name := range names {
			nodes = append(nodes, makeNode(name, 8, nodeLabel("zone", name[:1])))
		}
		return nodes
	}
	for _, test := range []struct {
		name    string
		nodes   []*v1.Node
		running []*v1.Pod
		gang    Gang
		// want is the use of nodes by each class; nil if there is no plan.
		want []string
		why  *reason.Reason
	}{
		{
			name:  "a gang fills whole nodes",
			nodes: makeNodes(4, 8),
			gang:  gangOf(class(makePod("worker", 4), 4)),
			want:  []string{"node-0 x2, node-1 x2"},
		},
		{
			name:    "the hole that fits best is taken",
			nodes:   makeNodes(3, 8),
			running: []*v1.Pod{makePod("a", 2, on("node-0")), makePod("b", 4, on("node-1"))},
			gang:    gangOf(class(makePod("worker", 4), 1)),
			want:    []string{"node-1 x1"},
		},
		{
			name:  "a gang bigger than the cluster exceeds it",
			nodes: makeNodes(4, 8),
			gang:  gangOf(class(makePod("worker", 8), 8)),
			why:   reason.New(reason.ExceedsCluster, "needs 64 GPUs; the cluster has 32"),
		},
		{
			name:    "two holes of four do not hold a pod of eight",
			nodes:   makeNodes(2, 8),
			running: []*v1.Pod{makePod("a", 4, on("node-0")), makePod("b", 4, on("node-1"))},
			gang:    gangOf(class(makePod("worker", 8), 1)),
			why:     reason.New(reason.NoPlacement, "8 GPUs free, but no node has 8; 4 more GPUs are missing, on one node"),
		},
		{
			name:    "room for a part of the gang is not enough",
			nodes:   makeNodes(2, 8),
			running: []*v1.Pod{makePod("a", 8, on("node-0"))},
			gang:    gangOf(class(makePod("worker", 4), 4)),
			why:     reason.New(reason.NoPlacement, "needs 4 pods of 4 GPUs; 8 GPUs are free, with room for 2 of them; 8 more GPUs are missing, on one node"),
		},
		{
			name:  "a pod bigger than any node exceeds the cluster",
			nodes: makeNodes(4, 4),
			gang:  gangOf(class(makePod("worker", 8), 1)),
			why:   reason.New(reason.ExceedsCluster, "needs 8 GPUs on one node; the largest node has 4"),
		},
		{
			name:  "four pods that must be apart do not fit on three nodes",
			nodes: makeNodes(3, 8),
			gang:  gangOf(class(makePod("worker", 1, apart("worker", v1.LabelHostname)), 4)),
			why:   reason.New(reason.NoPlacement, "finds nodes for 3 of 4 pods; for the rest no node with a free GPU passes: 3 node(s) didn't match pod anti-affinity rules"),
		},
		{
			name:  "three pods that must be apart fit on three nodes",
			nodes: makeNodes(3, 8),
			gang:  gangOf(class(makePod("worker", 1, apart("worker", v1.LabelHostname)), 3)),
			want:  []string{"node-0 x1, node-1 x1, node-2 x1"},
		},
		{
			name:  "pods that must be in one zone stay in the zone of the first",
			nodes: zones("a0", "b0", "a1", "b1"),
			gang:  gangOf(class(makePod("worker", 4, near("worker", "zone")), 4)),
			want:  []string{"a0 x2, a1 x2"},
		},
		{
			name:    "pods that must be in one zone go to the zone that holds them all",
			nodes:   zones("a0", "b0", "a1", "b1"),
			running: []*v1.Pod{makePod("busy", 6, on("a1"))},
			gang:    gangOf(class(makePod("worker", 4, near("worker", "zone")), 4)),
			want:    []string{"b0 x2, b1 x2"},
		},
		{
			name:  "pods that must be in one zone fit into none",
			nodes: zones("a0", "b0", "a1", "b1"),
			gang:  gangOf(class(makePod("worker", 8, near("worker", "zone")), 3)),
			why:   reason.New(reason.NoPlacement, "finds nodes for 2 of 3 pods; for the rest no node with 8 free GPUs passes: 2 node(s) didn't match pod affinity rules; 2 others have fewer"),
		},
		{
			name:  "a class that must be near a sibling class is planned after it",
			nodes: makeNodes(3, 8),
			gang: gangOf(
				class(makePod("worker", 8, near("launcher", v1.LabelHostname)), 1),
				class(makePod("launcher", 0, selecting(v1.LabelHostname, "node-2")), 1)),
			want: []string{"node-2 x1", "node-2 x1"},
		},
		{
			name:  "a later class is refused near an earlier one that wants to be apart from it",
			nodes: makeNodes(2, 8),
			gang: gangOf(
				class(makePod("launcher", 0), 1),
				class(makePod("worker", 4, apart("launcher", v1.LabelHostname)), 2)),
			want: []string{"node-1 x1", "node-0 x2"},
		},
		{
			name:  "pods spread over zones turn by turn",
			nodes: zones("a0", "a1", "b0", "c0"),
			gang:  gangOf(class(makePod("worker", 1, spread("worker", "zone", 1)), 7)),
			want:  []string{"a0 x2, b0 x3, c0 x2"},
		},
		{
			name:    "a full zone stops the others from getting ahead",
			nodes:   zones("a0", "b0"),
			running: []*v1.Pod{makePod("busy", 7, on("b0"))},
			gang:    gangOf(class(makePod("worker", 1, spread("worker", "zone", 1)), 4)),
			why:     reason.New(reason.NoPlacement, "finds nodes for 3 of 4 pods; for the rest no node with a free GPU passes: 1 node(s) didn't match pod topology spread constraints; one other has fewer"),
		},
		{
			name:  "one pod per node with a host port",
			nodes: makeNodes(3, 8),
			gang:  gangOf(class(makePod("worker", 1, hostPort(29500)), 3)),
			want:  []string{"node-0 x1, node-1 x1, node-2 x1"},
		},
		{
			name:  "a host port that is taken everywhere",
			nodes: makeNodes(2, 8),
			gang:  gangOf(class(makePod("worker", 1, hostPort(29500)), 3)),
			why:   reason.New(reason.NoPlacement, "finds nodes for 2 of 3 pods; for the rest no node with a free GPU passes: 2 node(s) didn't have free ports for the requested pod ports"),
		},
		{
			name:  "tainted nodes are not counted",
			nodes: []*v1.Node{makeNode("node-0", 8, tainted("reserved")), makeNode("node-1", 8)},
			gang:  gangOf(class(makePod("worker", 8), 2)),
			why:   reason.New(reason.ExceedsCluster, "needs 16 GPUs; the nodes that it may use have 8"),
		},
		{
			name:    "free GPUs of tainted nodes are named, not counted",
			nodes:   []*v1.Node{makeNode("node-0", 8, tainted("reserved")), makeNode("node-1", 8)},
			running: []*v1.Pod{makePod("busy", 6, on("node-1"))},
			gang:    gangOf(class(makePod("worker", 8), 1)),
			why:     reason.New(reason.NoPlacement, "needs 8 GPUs; 2 GPUs are free; 6 more GPUs are missing, on one node; not counted: 1 node(s) had untolerated taint(s)"),
		},
		{
			name:  "a node that is not ready takes no pods, though it has no taint yet",
			nodes: []*v1.Node{makeNode("node-0", 8, ready(v1.ConditionFalse)), makeNode("node-1", 8, ready(v1.ConditionUnknown)), makeNode("node-2", 8, ready(v1.ConditionTrue))},
			gang:  gangOf(class(makePod("worker", 4), 2)),
			want:  []string{"node-2 x2"},
		},
		{
			name:  "and still belongs to the cluster",
			nodes: []*v1.Node{makeNode("node-0", 8, ready(v1.ConditionFalse)), makeNode("node-1", 8)},
			gang:  gangOf(class(makePod("worker", 8), 2)),
			why:   reason.New(reason.NoPlacement, "needs 2 pods of 8 GPUs; 8 GPUs are free, with room for 1 of them; not counted: 1 node(s) were not ready"),
		},
		{
			name:  "a cordoned node still belongs to the cluster",
			nodes: []*v1.Node{makeNode("node-0", 8, cordoned), makeNode("node-1", 8)},
			gang:  gangOf(class(makePod("worker", 8), 2)),
			why:   reason.New(reason.NoPlacement, "needs 2 pods of 8 GPUs; 8 GPUs are free, with room for 1 of them; not counted: 1 node(s) were unschedulable"),
		},
		{
			name:  "no node passes",
			nodes: append(makeNodes(3, 8, tainted("reserved")), makeNode("cpu", 0)),
			gang:  gangOf(class(makePod("worker", 0, cpus("100")), 1)),
			why:   reason.New(reason.ExceedsCluster, "needs 100 CPUs on one node; the largest has 64"),
		},
		{
			name:  "GPUs and memory are on different nodes",
			nodes: append(makeNodes(2, 8), makeNode("large", 0, memory("2Ti"))),
			gang:  gangOf(class(makePod("worker", 1, requesting(v1.ResourceMemory, "600Gi")), 2)),
			why:   reason.New(reason.ExceedsCluster, "needs 600Gi of memory on one node with 1 GPU; the largest has 512Gi"),
		},
		{
			name:  "the nodes with GPUs have too little memory together",
			nodes: append(makeNodes(2, 8), makeNode("large", 0, memory("2Ti"))),
			gang:  gangOf(class(makePod("worker", 4, requesting(v1.ResourceMemory, "400Gi")), 3)),
			why:   reason.New(reason.ExceedsCluster, "needs 1200Gi of memory; the nodes with 4 GPUs have 1Ti"),
		},
		{
			name:    "6, 2, 2 and 2 free GPUs do not hold three pods of four",
			nodes:   makeNodes(4, 8),
			running: []*v1.Pod{makePod("a", 2, on("node-0")), makePod("b", 6, on("node-1")), makePod("c", 6, on("node-2")), makePod("d", 6, on("node-3"))},
			gang:    gangOf(class(makePod("worker", 4), 3)),
			why:     reason.New(reason.NoPlacement, "needs 3 pods of 4 GPUs; 12 GPUs are free, with room for 1 of them; 4 more GPUs are missing, on 2 nodes"),
		},
		{
			name:    "a full node that is tainted is none where GPUs may become free",
			nodes:   append(makeNodes(1, 8), makeNode("odd", 8, tainted("a"))),
			running: []*v1.Pod{makePod("a", 7, on("node-0")), makePod("b", 6, on("odd"))},
			gang:    gangOf(class(makePod("worker", 8), 1)),
			why:     reason.New(reason.NoPlacement, "needs 8 GPUs; 1 GPU is free; 7 more GPUs are missing, on one node; not counted: 1 node(s) had untolerated taint(s)"),
		},
		{
			name:    "GPUs are free where CPU is not",
			nodes:   makeNodes(4, 8),
			running: []*v1.Pod{makePod("a", 0, cpus("40"), on("node-0")), makePod("b", 0, cpus("44500m"), on("node-1")), makePod("c", 8, on("node-2"))},
			gang:    gangOf(class(makePod("worker", 8, cpus("60")), 3)),
			why:     reason.New(reason.NoPlacement, "finds nodes for 1 of 3 pods; for the rest no node with 8 free GPUs passes: 2 Insufficient cpu (60 needed, at most 24 free); 2 others have fewer"),
		},
		{
			name:    "GPUs are free where memory is not, and the numbers can be read",
			nodes:   makeNodes(1, 8, memory("1056270808Ki")),
			running: []*v1.Pod{makePod("a", 1, requesting(v1.ResourceMemory, "300Gi"), on("node-0"))},
			gang:    gangOf(class(makePod("worker", 4, requesting(v1.ResourceMemory, "800Gi")), 1)),
			why:     reason.New(reason.NoPlacement, "no node with 4 free GPUs passes: 1 Insufficient memory (800Gi needed, at most 707.3Gi free)"),
		},
		{
			name:    "a node whose pods have more GPUs than it says that it has counts as full",
			nodes:   []*v1.Node{makeNode("node-0", 4), makeNode("node-1", 8)},
			running: []*v1.Pod{makePod("a", 6, on("node-0")), makePod("b", 4, on("node-1"))},
			gang:    gangOf(class(makePod("worker", 4), 2)),
			why:     reason.New(reason.NoPlacement, "needs 2 pods of 4 GPUs; 4 GPUs are free, with room for 1 of them; 4 more GPUs are missing, on one node"),
		},
		{
			name:    "and takes none, while others do",
			nodes:   []*v1.Node{makeNode("node-0", 4), makeNode("node-1", 8)},
			running: []*v1.Pod{makePod("a", 6, on("node-0"))},
			gang:    gangOf(class(makePod("worker", 4), 2)),
			want:    []string{"node-1 x2"},
		},
		{
			name:    "too little CPU and taints are counted by node",
			nodes:   append(makeNodes(3, 8, tainted("reserved")), makeNode("cpu", 0)),
			running: []*v1.Pod{makePod("busy", 0, cpus("60"), on("cpu"))},
			gang:    gangOf(class(makePod("worker", 0, cpus("10")), 1)),
			why:     reason.New(reason.NoPlacement, "no node passes: 3 node(s) had untolerated taint(s), 1 Insufficient cpu (10 needed, at most 4 free)"),
		},
		{
			name:  "a nodeSelector is obeyed",
			nodes: append(makeNodes(2, 8), makeNode("h200", 8, nodeLabel("model", "h200"))),
			gang:  gangOf(class(makePod("worker", 4, selecting("model", "h200")), 2)),
			want:  []string{"h200 x2"},
		},
		{
			name:  "a nodeSelector that matches no node",
			nodes: makeNodes(2, 8),
			gang:  gangOf(class(makePod("worker", 4, selecting("model", "h200")), 2)),
			why:   reason.New(reason.NoPlacement, "no node passes: 2 node(s) didn't match Pod's node affinity/selector"),
		},
		{
			name:  "pods without GPUs leave GPU nodes alone",
			nodes: append(makeNodes(2, 8), makeNode("cpu", 0)),
			gang:  gangOf(class(makePod("launcher", 0), 1), class(makePod("worker", 8), 2)),
			want:  []string{"cpu x1", "node-0 x1, node-1 x1"},
		},
		{
			name:  "the class that is hardest to place is planned first",
			nodes: []*v1.Node{makeNode("node-0", 8), makeNode("node-1", 4)},
			gang:  gangOf(class(makePod("small", 4), 1), class(makePod("large", 8), 1)),
			want:  []string{"node-1 x1", "node-0 x1"},
		},
		{
			name:  "a class that has no choice of nodes is given them by those that have",
			nodes: zones("a0", "b0"),
			gang:  gangOf(class(makePod("large", 6), 1), class(makePod("small", 4, selecting("zone", "a")), 1)),
			want:  []string{"b0 x1", "a0 x1"},
		},
		{
			name:  "a class goes where those that must be near it can go",
			nodes: zones("a0", "b0"),
			gang: gangOf(
				class(makePod("leader", 4, near("leader", "zone")), 1),
				class(makePod("worker", 2, near("leader", "zone"), selecting("zone", "b")), 2)),
			want: []string{"b0 x1", "b0 x2"},
		},
		{
			name:  "a pod set that finds no room beside its siblings is named",
			nodes: []*v1.Node{makeNode("node-0", 8), makeNode("node-1", 4), makeNode("node-2", 4)},
			gang:  gangOf(class(makePod("small", 3), 4), class(makePod("large", 4), 1)),
			why:   reason.New(reason.NoPlacement, `pod set "small" needs 4 pods of 3 GPUs; 16 GPUs are free, with room for 3 of them beside the other pod sets`),
		},
		{
			name:  "nodes of running siblings are preferred",
			nodes: makeNodes(3, 8),
			gang:  gangOf(Class{Name: "worker", Pod: makePod("worker", 4), Count: 1, Fixed: []string{"node-2"}}),
			want:  []string{"node-2 x1"},
		},
		{
			name:  "what asks for no domain is near the others of its gang",
			nodes: racks(3, 3),
			gang:  gangOf(Class{Name: "worker", Pod: makePod("worker", 8), Count: 2, Near: []string{"b2"}, NearBy: []string{"rack", v1.LabelHostname}}),
			want:  []string{"b0 x1, b1 x1"},
		},
		{
			name:    "as far as there is room",
			nodes:   racks(3, 2),
			running: []*v1.Pod{makePod("worker", 8, on("b1"))},
			gang:    gangOf(Class{Name: "worker", Pod: makePod("worker", 8), Count: 2, Near: []string{"b1"}, NearBy: []string{"rack"}}),
			want:    []string{"b0 x1, a0 x1"},
		},
		{
			name:  "pods without GPUs keep off GPU nodes rather than that they are near",
			nodes: append(racks(1), makeNode("cpu", 0)),
			gang:  gangOf(Class{Name: "driver", Pod: makePod("driver", 0), Count: 1, Near: []string{"a0"}, NearBy: []string{"rack"}}),
			want:  []string{"cpu x1"},
		},
		{
			name:  "a node to be avoided is not taken, though siblings run on it",
			nodes: makeNodes(3, 8),
			gang:  gangOf(Class{Name: "worker", Pod: makePod("worker", 4), Count: 1, Fixed: []string{"node-0"}, Avoid: []string{"node-0", "node-1"}}),
			want:  []string{"node-2 x1"},
		},
		{
			name:  "nor if there is no other",
			nodes: makeNodes(1, 8),
			gang:  gangOf(Class{Name: "worker", Pod: makePod("worker", 4), Count: 1, Avoid: []string{"node-0"}}),
			why:   reason.New(reason.NoPlacement, "no node passes: 1 node(s) that were away or failed a pod of the gang"),
		},
		{
			name:  "nodes that are reserved for others are not taken, and not counted as free",
			nodes: makeNodes(3, 8),
			gang:  gangOf(Class{Name: "worker", Pod: makePod("worker", 8), Count: 2, Reserved: []string{"node-0", "node-1"}}),
			why:   reason.New(reason.NoPlacement, "needs 2 pods of 8 GPUs; 8 GPUs are free, with room for 1 of them; not counted: 2 node(s) reserved for jobs that have waited for long"),
		},
		{
			name:  "but one that is not reserved is",
			nodes: makeNodes(3, 8),
			gang:  gangOf(Class{Name: "worker", Pod: makePod("worker", 8), Count: 1, Reserved: []string{"node-0", "node-1"}}),
			want:  []string{"node-2 x1"},
		},
		{
			name:  "no nodes at all",
			nodes: nil,
			gang:  gangOf(class(makePod("worker", 4), 1)),
			why:   reason.New(reason.ExceedsCluster, "the cluster has no nodes"),
		},
		{
			name:  "a claim that does not exist",
			nodes: makeNodes(1, 8),
			gang: gangOf(class(makePod("worker", 1, func(p *v1.Pod) {
				p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
			}), 1)),
			why: reason.New(reason.NoPlacement, `no node passes: persistentvolumeclaim "data" not found`),
		},
		{
			name:  "a class of no pods",
			nodes: makeNodes(1, 8),
			gang:  gangOf(class(makePod("worker", 8), 0), class(makePod("launcher", 0), 1)),
			want:  []string{"", "node-0 x1"},
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
				got = append(got, use(nodes))
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

func TestPlanRefusesBadInput(t *testing.T) {
	c := newCluster(t, makeNodes(1, 8))
	for _, test := range []struct {
		name, want string
		class      Class
	}{
		{name: "a negative count", class: class(makePod("worker", 1), -1), want: "planning gang job: pod set worker has -1 pods"},
		{name: "no prototype", class: Class{Name: "worker", Count: 1}, want: "planning gang job: pod set worker has no prototype pod"},
		{name: "a prototype that has a node", class: class(makePod("worker", 1, on("node-0")), 1), want: "planning gang job: the prototype pod of pod set worker has a node, node-0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := c.planner.Plan(c.ctx, c.fw, c.snap, gangOf(test.class))
			if err == nil || err.Error() != test.want {
				t.Errorf("got error %v, want %s", err, test.want)
			}
		})
	}
	t.Run("another profile's snapshot", func(t *testing.T) {
		other := newCluster(t, makeNodes(1, 8))
		if _, _, err := c.planner.Plan(c.ctx, c.fw, other.snap, gangOf()); err == nil {
			t.Error("planned on a snapshot that the plugins do not read")
		}
	})
}

// countdown is a context that is cancelled once it has been asked n times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestPlanCancelledLeavesTheSnapshot(t *testing.T) {
	c := newCluster(t, makeNodes(4, 8), makePod("busy", 3, on("node-1")))
	before := c.dump(t)
	gang := gangOf(class(makePod("worker", 4, apart("launcher", "zone"), hostPort(29500)), 4), class(makePod("launcher", 0), 1))
	for asked := range 5 {
		plan, why, err := c.planner.Plan(&countdown{c.ctx, asked}, c.fw, c.snap, gang)
		if !errors.Is(err, context.Canceled) || plan != nil || why != nil {
			t.Errorf("cancelled at pod %d: got plan %v, reason %v, error %v", asked, plan, why, err)
		}
		if diff := cmp.Diff(before, c.dump(t)); diff != "" {
			t.Fatalf("cancelled at pod %d, the snapshot changed:\n%s", asked, diff)
		}
	}
}

func TestPlanThatIsToldToStopLeavesTheSnapshot(t *testing.T) {
	c := newCluster(t, makeNodes(4, 8), makePod("busy", 3, on("node-1")))
	before := c.dump(t)
	for name, gang := range map[string]Gang{
		"while it finds nodes":  gangOf(class(makePod("worker", 4), 4)),
		"while it asks why not": gangOf(class(makePod("worker", 8), 4)),
	} {
		asked := 0
		gang.Stop = func() bool { asked++; return asked > 3 }
		plan, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, gang)
		if !errors.Is(err, ErrStopped) || plan != nil || why != nil {
			t.Errorf("%s: got plan %v, reason %v, error %v", name, plan, why, err)
		}
		if diff := cmp.Diff(before, c.dump(t)); diff != "" {
			t.Fatalf("%s, the snapshot changed:\n%s", name, diff)
		}
	}
}

// panicking panics when the plugins are asked for the n-th pod.
type panicking struct{ countdown }

func (p *panicking) Err() error {
	if p.countdown.Err() != nil {
		panic("a plugin's bug")
	}
	return nil
}

func TestPlanPanicLeavesTheSnapshot(t *testing.T) {
	c := newCluster(t, makeNodes(4, 8))
	before := c.dump(t)
	func() {
		defer func() {
			if r := recover(); r == nil || !strings.Contains(r.(string), "a plugin's bug") {
				t.Errorf("recovered %v, want the plugin's panic", r)
			}
		}()
		_, _, _ = c.planner.Plan(&panicking{countdown{c.ctx, 3}}, c.fw, c.snap, gangOf(class(makePod("worker", 4), 8)))
	}()
	if diff := cmp.Diff(before, c.dump(t)); diff != "" {
		t.Errorf("the snapshot changed:\n%s", diff)
	}
}

package placement

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"
)

// drawCluster draws nodes of two zones, some reserved, some without GPUs, and
// running pods of an app "other" that hold GPUs, ports and their distance.
func drawCluster(t *rapid.T) ([]*v1.Node, []*v1.Pod) {
	var nodes []*v1.Node
	var running []*v1.Pod
	for i := range rapid.IntRange(1, 7).Draw(t, "nodes") {
		name := fmt.Sprintf("node-%d", i)
		gpus := rapid.SampledFrom([]int{0, 2, 4, 8, 8}).Draw(t, "gpus")
		options := []nodeOption{nodeLabel("zone", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone"))}
		if rapid.IntRange(0, 5).Draw(t, "reserved") == 0 {
			options = append(options, tainted("reserved"))
		}
		nodes = append(nodes, makeNode(name, gpus, options...))
		for j := range rapid.IntRange(0, 2).Draw(t, "running") {
			used := rapid.IntRange(0, gpus).Draw(t, "used")
			gpus -= used
			running = append(running, makePod(fmt.Sprintf("busy-%d-%d", i, j), used, on(name), cpus(rapid.SampledFrom([]string{"1", "30"}).Draw(t, "cpus")), func(p *v1.Pod) {
				p.Labels["app"] = "other"
				switch rapid.IntRange(0, 5).Draw(t, "kind") {
				case 0:
					hostPort(29500)(p)
				case 1:
					apart("worker-0", v1.LabelHostname)(p)
				}
			}))
		}
	}
	return nodes, running
}

// drawGang draws up to three classes, alone or with constraints between pods.
func drawGang(t *rapid.T) Gang {
	gang := gangOf()
	classes := rapid.IntRange(1, 3).Draw(t, "classes")
	for i := range classes {
		name := fmt.Sprintf("worker-%d", i)
		constraints := []podOption{
			nil, nil, nil,
			hostPort(29500),
			selecting("zone", "a"),
			spread(name, "zone", 1),
			spread(name, v1.LabelHostname, 1),
			near(name, "zone"),
			near(name, v1.LabelHostname),
			near("other", "zone"),
			near("worker-0", "zone"),
			apart(name, v1.LabelHostname),
			apart("other", v1.LabelHostname),
			apart("worker-0", v1.LabelHostname),
		}
		pod := makePod(name, rapid.IntRange(0, 4).Draw(t, "gpus per pod"), cpus(rapid.SampledFrom([]string{"1", "20"}).Draw(t, "cpus per pod")))
		if constrain := constraints[rapid.IntRange(0, len(constraints)-1).Draw(t, "constraint")]; constrain != nil {
			constrain(pod)
		}
		gang.Classes = append(gang.Classes, class(pod, rapid.IntRange(1, 5).Draw(t, "count")))
	}
	return gang
}

// placedPod is one pod of a plan in the order in which it was planned.
type placedPod struct {
	prototype *v1.Pod
	node      string
}

// planInOrder plans as Plan does, and keeps the order of the pods.
func planInOrder(t fataler, c *cluster, gang Gang) []placedPod {
	nodes, err := c.snap.List()
	if err != nil {
		t.Fatalf("%v", err)
	}
	trial := c.planner.newTrial(c.ctx, c.fw, c.snap, nodes)
	if err := trial.begin(c.ctx, gang); err != nil {
		t.Fatalf("%v", err)
	}
	if _, _, err := trial.plan(c.ctx, gang); err != nil {
		t.Fatalf("%v", err)
	}
	var placed []placedPod
	for _, pod := range trial.assumed {
		for _, class := range gang.Classes {
			if strings.HasPrefix(pod.Name, class.Name+"-") {
				placed = append(placed, placedPod{class.Pod, pod.Spec.NodeName})
			}
		}
	}
	if err := trial.end(); err != nil {
		t.Fatalf("%v", err)
	}
	return placed
}

// hold puts pods of the plan into the snapshot, and returns how to take them out.
func hold(t *rapid.T, c *cluster, plan []placedPod) (release func()) {
	var held []*v1.Pod
	for i, p := range plan {
		pod := p.prototype.DeepCopy()
		pod.Name = fmt.Sprintf("held-%d", i)
		pod.UID = types.UID(pod.Name)
		pod.Spec.NodeName = p.node
		info, err := framework.NewPodInfo(pod)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.snap.AssumePod(info); err != nil {
			t.Fatal(err)
		}
		held = append(held, pod)
	}
	return func() {
		for i := len(held) - 1; i >= 0; i-- {
			if err := c.snap.ForgetPod(klog.Logger{}, held[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// mustPass schedules one pod onto its node as a cycle of its own would.
func mustPass(t *rapid.T, c *cluster, p placedPod, when string) {
	t.Helper()
	state := framework.NewCycleState()
	result, status, _ := c.fw.RunPreFilterPlugins(c.ctx, state, p.prototype)
	if !status.IsSuccess() {
		t.Fatalf("%s: PreFilter refuses a planned pod: %v", when, status)
	}
	if !result.AllNodes() && !result.NodeNames.Has(p.node) {
		t.Fatalf("%s: PreFilter leaves only %v, the plan says %s", when, result.NodeNames, p.node)
	}
	node, err := c.snap.Get(p.node)
	if err != nil {
		t.Fatal(err)
	}
	if status := c.fw.RunFilterPlugins(c.ctx, state, p.prototype, node); !status.IsSuccess() {
		t.Fatalf("%s: Filter refuses the planned node %s: %v", when, p.node, status)
	}
}

// A plan is worth something only if the pods can then be scheduled into it:
// one after the other in plan order on the bare cluster, and in any order
// while the places of the others are held.
func TestPlanCanBeBound(t *testing.T) {
	plans := 0
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
		defer cancel()
		nodes, running := drawCluster(t)
		gang := drawGang(t)
		c := newClusterIn(ctx, t, nodes, running...)
		before := c.dump(t)

		assignment, why, err := c.planner.Plan(ctx, c.fw, c.snap, gang)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, c.dump(t)); diff != "" {
			t.Fatalf("the snapshot changed:\n%s", diff)
		}
		if (assignment == nil) == (why == nil) {
			t.Fatalf("got plan %v and reason %v, want one of them", assignment, why)
		}
		if why != nil {
			if why.Message == "" || len(why.Message) > 1000 {
				t.Fatalf("reason of %d bytes: %s", len(why.Message), why.Message)
			}
			return
		}
		plans++
		plan := planInOrder(t, c, gang)
		counts := make(map[string]int)
		for _, p := range plan {
			counts[p.prototype.Name+" "+p.node]++
		}
		for i, class := range gang.Classes {
			if len(assignment[i]) != class.Count {
				t.Fatalf("%d nodes for the %d pods of %s", len(assignment[i]), class.Count, class.Name)
			}
			for _, node := range assignment[i] {
				counts[class.Name+" "+node]--
			}
		}
		for place, n := range counts {
			if n != 0 {
				t.Fatalf("planning again differs by %d pods at %s", n, place)
			}
		}
		for i, p := range plan {
			release := hold(t, c, plan[:i])
			mustPass(t, c, p, "in plan order")
			release()
			others := append(append([]placedPod(nil), plan[:i]...), plan[i+1:]...)
			release = hold(t, c, others)
			mustPass(t, c, p, "with all siblings held")
			release()
		}
	})
	if plans == 0 {
		t.Error("no case had a plan")
	}
}

// For pods that ask only for GPUs, each node's room is independent of the
// others, so counting the room is an exhaustive search.
func TestPlanMissesNoRoomForGPUs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
		defer cancel()
		gpus, count := rapid.IntRange(1, 8).Draw(t, "gpus per pod"), rapid.IntRange(1, 12).Draw(t, "count")
		room := 0
		var nodes []*v1.Node
		var running []*v1.Pod
		for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
			name := fmt.Sprintf("node-%d", i)
			have := rapid.SampledFrom([]int{0, 4, 8}).Draw(t, "gpus")
			used := rapid.IntRange(0, have).Draw(t, "used")
			if used > 0 {
				running = append(running, makePod("busy-"+name, used, on(name)))
			}
			if rapid.IntRange(0, 4).Draw(t, "reserved") == 0 {
				nodes = append(nodes, makeNode(name, have, tainted("reserved")))
				continue
			}
			nodes = append(nodes, makeNode(name, have))
			room += (have - used) / gpus
		}
		c := newClusterIn(ctx, t, nodes, running...)
		plan, why, err := c.planner.Plan(ctx, c.fw, c.snap, gangOf(class(makePod("worker", gpus), count)))
		if err != nil {
			t.Fatal(err)
		}
		if planned := plan != nil; planned != (room >= count) {
			t.Fatalf("room for %d of %d pods: plan %v, reason %v", room, count, plan, why)
		}
	})
}

package placement

import (
	"context"
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"
)

// TestWhatComesBackIsAsNearAsThereIsRoom compares nodes that are as good but for where
// they are: none with room is nearer to the rest of the gang than one that is taken.
func TestWhatComesBackIsAsNearAsThereIsRoom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var nodes []*v1.Node
		var busy []*v1.Pod
		var near, free []string
		where := map[string]*v1.Node{}
		for i := range rapid.IntRange(2, 12).Draw(rt, "nodes") {
			name := fmt.Sprintf("node-%d", i)
			n := makeNode(name, 8, nodeLabel("block", rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "block")))
			if rack := rapid.SampledFrom([]string{"", "1", "2", "3"}).Draw(rt, "rack"); rack != "" {
				n.Labels["rack"] = rack
			}
			nodes, where[name] = append(nodes, n), n
			switch rapid.SampledFrom([]string{"free", "free", "near", "busy"}).Draw(rt, "is") {
			case "free":
				free = append(free, name)
			case "near":
				near = append(near, name)
				busy = append(busy, makePod("on-"+name, 8, on(name)))
			case "busy":
				busy = append(busy, makePod("on-"+name, 8, on(name)))
			}
		}
		if len(near) == 0 || len(free) == 0 {
			return
		}
		distance := func(name string) int {
			least := 2
			for _, other := range near {
				a, b := where[name].Labels, where[other].Labels
				switch {
				case a["block"] != b["block"]:
				case a["rack"] != "" && a["rack"] == b["rack"]:
					least = 0
				default:
					least = min(least, 1)
				}
			}
			return least
		}
		count := rapid.IntRange(1, len(free)).Draw(rt, "pods")
		ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
		defer cancel()
		c := newClusterIn(ctx, rt, nodes, busy...)
		gang := gangOf(Class{Name: "worker", Pod: makePod("worker", 8), Count: count, Near: near, NearBy: []string{"block", "rack", v1.LabelHostname}})
		plan, why, err := NewPlanner(isGPU).Plan(c.ctx, c.fw, c.snap, gang)
		if err != nil || why != nil {
			rt.Fatalf("no plan for %d pods on %v: %v (%v)", count, free, why, err)
		}
		for _, taken := range plan[0] {
			for _, name := range free {
				if !slices.Contains(plan[0], name) && distance(name) < distance(taken) {
					rt.Fatalf("of %v, near %v, %v are taken: %s is nearer than %s", free, near, plan[0], name, taken)
				}
			}
		}
	})
}

package placement

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"
)

// TestAGroupInPartIsCompletedWhereItIs: pods that come back keep to what the group
// asks for together with those that stay; and where nothing else has come, there is
// a place for them.
func TestAGroupInPartIsCompletedWhereItIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
		defer cancel()
		var nodes []*v1.Node
		labels := map[string]map[string]string{}
		for i := range rapid.IntRange(2, 12).Draw(t, "nodes") {
			n := makeNode(fmt.Sprintf("n%d", i), 8)
			n.Labels["block"] = rapid.SampledFrom([]string{"x", "x", "y"}).Draw(t, "block")
			if rack := rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(t, "rack"); rack != "" {
				n.Labels["rack"] = n.Labels["block"] + rack
			}
			labels[n.Name] = map[string]string{"block": n.Labels["block"], "rack": n.Labels["rack"], v1.LabelHostname: n.Name}
			if n.Labels["rack"] == "" {
				labels[n.Name]["rack"] = "alone " + n.Name
			}
			nodes = append(nodes, n)
		}
		asked := rapid.SampledFrom([]Topology{
			{}, {Level: "block", Required: true}, {Level: "rack"}, {Level: "rack", Required: true},
			{Level: "block", Required: true, Slices: []Slice{{"rack", 2}}}, {Slices: []Slice{{"rack", 3}}},
			{Slices: []Slice{{"block", 4}, {"rack", 2}}}, {Level: "block", Slices: []Slice{{v1.LabelHostname, 2}}},
			{Level: "rack", Required: true, Slices: []Slice{{v1.LabelHostname, 2}}},
			{Slices: []Slice{{"block", 4}, {"rack", 2}, {v1.LabelHostname, 2}}},
		}).Draw(t, "asked")
		topology := inRacks(asked)
		count := rapid.IntRange(1, 10).Draw(t, "pods")
		if len(asked.Slices) > 1 {
			count = max(1, count/4) * 4
		}
		step := rapid.IntRange(1, count).Draw(t, "pods per class")
		pod := rapid.SampledFrom([]*v1.Pod{
			makePod("worker", 4), makePod("worker", 2), makePod("worker", 2, spread("worker", v1.LabelHostname, 1)), makePod("worker", 4, near("worker", "block")),
		}).Draw(t, "pod")
		plain := pod.Spec.Affinity == nil && len(pod.Spec.TopologySpreadConstraints) == 0
		led := len(asked.Slices) == 0 && rapid.Bool().Draw(t, "leader")

		var gang Gang
		for from := 0; from < count; from += step {
			gang.Classes = append(gang.Classes, close(class(pod, min(step, count-from)), topology))
		}
		if led {
			gang.Classes = append(gang.Classes, leader(class(makePod("launcher", 1), 1), topology))
		}
		gang.Name, gang.UID = "job", "job-uid"
		c := newClusterIn(ctx, t, nodes)
		plan, _, err := c.planner.Plan(c.ctx, c.fw, c.snap, gang)
		if err != nil {
			t.Fatal(err)
		}
		if plan == nil {
			return
		}
		check := func(ranks [][]string) {
			var all []string
			for i, names := range ranks {
				if led && i == len(ranks)-1 {
					break
				}
				all = append(all, names...)
			}
			share := func(level string, names []string) {
				on := map[string]bool{}
				for _, name := range names {
					if name != "" && name != Over {
						on[labels[name][level]] = true
					}
				}
				if len(on) > 1 {
					t.Fatalf("%v do not share a %s (%v): %v", names, level, asked, ranks)
				}
			}
			if asked.Required {
				share(asked.Level, append(all[:len(all):len(all)], ranks[len(ranks)-1]...))
			}
			for _, s := range asked.Slices {
				for from := 0; from < len(all); from += s.Size {
					share(s.Level, all[from:min(from+s.Size, len(all))])
				}
			}
		}
		check(plan)

		var running []*v1.Pod
		var kept [][]string
		same := true
		for i := range gang.Classes {
			cl := &gang.Classes[i]
			cl.Kept, cl.Count = make([]string, len(plan[i])), 0
			for k, node := range plan[i] {
				switch rapid.SampledFrom([]string{"stays", "stays", "lost", "over"}).Draw(t, "pod") {
				case "stays":
					cl.Kept[k] = node
					p := cl.Pod.DeepCopy()
					p.Spec.NodeName = node
					running = append(running, p)
				case "lost":
					cl.Count++
				default:
					cl.Kept[k] = Over
				}
			}
			kept = append(kept, cl.Kept)
			if rapid.IntRange(0, 3).Draw(t, "avoids") == 0 {
				cl.Avoid, same = []string{nodes[rapid.IntRange(0, len(nodes)-1).Draw(t, "avoided")].Name}, false
			}
		}
		for i := range rapid.IntRange(0, 2).Draw(t, "others") {
			running, same = append(running, makePod(fmt.Sprintf("busy-%d", i), rapid.SampledFrom([]int{1, 2}).Draw(t, "GPUs"), on(nodes[i].Name))), false
		}
		for i, p := range running {
			p.Name = fmt.Sprintf("%s-%d", p.Name, i)
			p.UID = types.UID(p.Name)
		}
		again := newClusterIn(ctx, t, nodes, running...)
		var why any
		plan, why, err = again.planner.Plan(again.ctx, again.fw, again.snap, gang)
		if err != nil {
			t.Fatal(err)
		}
		if plan == nil {
			if same && plain {
				t.Fatalf("no place for %v: %v", kept, why)
			}
			return
		}
		ranks := make([][]string, len(gang.Classes))
		for i := range gang.Classes {
			next := 0
			for _, name := range gang.Classes[i].Kept {
				if name == "" {
					name = plan[i][next]
					next++
					for _, avoided := range gang.Classes[i].Avoid {
						if name == avoided {
							t.Fatalf("class %d is on %s, which it avoids", i, name)
						}
					}
				}
				ranks[i] = append(ranks[i], name)
			}
			if next != len(plan[i]) {
				t.Fatalf("%d nodes for %d pods", len(plan[i]), next)
			}
		}
		check(ranks)
	})
}

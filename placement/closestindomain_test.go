package placement

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	"github.com/muster-gpu/muster/placement/inventory"
	"github.com/muster-gpu/muster/placement/islands"
)

func TestPodsOfADomainGoWhereTheirGPUsAreClose(t *testing.T) {
	const pcie = "NVIDIA-L40S"
	cards := func(name, rack string) *v1.Node {
		return makeNode(name, 8, product(pcie), nodeLabel("block", "x"), nodeLabel("rack", rack))
	}
	// taken is a pod that has all but some GPUs of a node.
	taken := func(node, gpus string) *v1.Pod {
		n := strings.Count(gpus, ",") + 1
		return makePod("r-"+node, n, on(node), has(gpus), started)
	}
	for _, tt := range []struct {
		name    string
		nodes   []*v1.Node
		running []*v1.Pod
		gang    Gang
		// want are the nodes of each class in rank order.
		want []string
	}{
		{
			name: "two pods of a preferred rack on the node with two pairs", nodes: []*v1.Node{cards("a", "1"), cards("b", "1"), cards("c", "2")},
			running: []*v1.Pod{taken("a", "1,3,5,7"), taken("b", "4,5,6,7")},
			gang:    gangOf(close(class(makePod("p", 2), 2), preferring("rack"))),
			want:    []string{"b b"},
		},
		{
			name: "three pods on the two nodes with pairs, and not where only pieces of pairs are free", nodes: []*v1.Node{cards("a", "1"), cards("b", "1"), cards("c", "1")},
			running: []*v1.Pod{taken("a", "1,3,5,7"), taken("b", "4,5,6,7"), taken("c", "0,1,2,3")},
			gang:    gangOf(close(class(makePod("p", 2), 3), requiring("rack"))),
			want:    []string{"b b c"},
		},
		{
			name: "slices of one node each", nodes: []*v1.Node{cards("a", "1"), cards("b", "1"), cards("c", "1")},
			running: []*v1.Pod{taken("a", "1,3,5,7"), taken("b", "4,5,6,7"), taken("c", "0,1,2,3")},
			gang:    gangOf(close(class(makePod("p", 2), 4), inRacks(Topology{Level: "rack", Required: true, Slices: []Slice{{v1.LabelHostname, 2}}}))),
			want:    []string{"b b c c"},
		},
		{
			name: "the workers beside a launcher, and not it, say where GPUs are close", nodes: []*v1.Node{cards("a", "1"), cards("b", "1")},
			running: []*v1.Pod{taken("a", "1,3,5,7"), taken("b", "4,5,6,7")},
			gang: func() Gang {
				asked := requiring("rack")
				return gangOf(leader(class(makePod("l", 0), 1), asked), close(class(makePod("p", 2), 2), asked))
			}(),
			want: []string{"b", "b b"},
		},
		{
			name: "a pod that comes back goes beside the others rather than to a pair", nodes: []*v1.Node{cards("a", "1"), cards("b", "1")},
			running: []*v1.Pod{taken("a", "1,3,5,7"), taken("b", "4,5,6,7")},
			gang:    gangOf(returning(class(makePod("p", 2), 0), requiring("rack"), "a", "")),
			want:    []string{"a"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, tt.nodes, tt.running...)
			c.planner.UseIslands(NewIslands(inventory.NewProducts(nil), EnforceAnnotation, nil))
			plan, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, tt.gang)
			if err != nil || why != nil {
				t.Fatalf("no plan: %v, %v", why, err)
			}
			var got []string
			for _, nodes := range plan {
				got = append(got, strings.Join(nodes, " "))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
		})
	}
}

// worstLink is the worst link within one of so many pods with n GPUs each, which are given
// the free GPUs one after the other, as nodes do: each gets the closest that are left, of
// all sets. False if there are too few.
func worstLink(t *rapid.T, s *islands.Shape, free islands.Set, n, pods int) (worst islands.Link, ok bool) {
	for range pods {
		closest := islands.Machine + 1
		for set := islands.Set(1); set <= free; set++ {
			if set&^free == 0 && set.Len() == n {
				closest = min(closest, s.Apart(set))
			}
		}
		if closest > islands.Machine {
			return 0, false
		}
		chosen, _ := s.Choose(free, n)
		if chosen.Link != closest {
			t.Fatalf("%d of %v are chosen that are joined by %v, there are some joined by %v", n, free, chosen.Link, closest)
		}
		worst, free = max(worst, closest), free&^chosen.Devices
	}
	return worst, true
}

// TestNoNodeOfTheDomainHasCloserGPUs: a gang that requires a rack and fits one node is
// on the node of its rack with the closest GPUs, given out pod by pod; of one that needs
// several no pods would be closer on another node with as much room.
func TestNoNodeOfTheDomainHasCloserGPUs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
		defer cancel()
		products := []string{"NVIDIA-L40S", "NVIDIA-H100-80GB-HBM3", "Tesla-V100-SXM2-16GB", "NVIDIA-H100-NVL"}
		source := inventory.NewProducts(nil)
		gpus := rapid.SampledFrom([]int{2, 4}).Draw(t, "GPUs per pod")
		type spot struct {
			rack  string
			room  int
			free  islands.Set
			shape *islands.Shape
		}
		spots := map[string]spot{}
		var nodes []*v1.Node
		var running []*v1.Pod
		for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
			name, rack := fmt.Sprint("n", i), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "rack")
			n := makeNode(name, 8, product(rapid.SampledFrom(products).Draw(t, "product")), nodeLabel("block", "x"), nodeLabel("rack", rack))
			used := islands.Set(rapid.IntRange(0, 255).Draw(t, "used"))
			if used != 0 {
				running = append(running, makePod("r-"+name, used.Len(), on(name), has(used.String()), started))
			}
			known, _ := source.Node(n)
			nodes = append(nodes, n)
			spots[name] = spot{rack, (8 - used.Len()) / gpus, islands.First(8) &^ used, known.Shape}
		}
		count := rapid.IntRange(1, 6).Draw(t, "pods")
		c := newClusterIn(ctx, t, nodes, running...)
		c.planner.UseIslands(NewIslands(source, EnforceAnnotation, nil))
		plan, _, err := c.planner.Plan(c.ctx, c.fw, c.snap, gangOf(close(class(makePod("p", gpus), count), requiring("rack"))))
		if err != nil {
			t.Fatal(err)
		}
		if plan == nil {
			t.Skip("no rack is large enough")
		}
		on := map[string]int{}
		for _, name := range plan[0] {
			on[name]++
		}
		for name, pods := range on {
			mine := spots[name]
			link, _ := worstLink(t, mine.shape, mine.free, gpus, pods)
			for other, its := range spots {
				if its.rack != mine.rack || on[other] > 0 {
					continue
				}
				last := len(on) == 1 && its.room >= count
				if better, ok := worstLink(t, its.shape, its.free, gpus, pods); ok && better < link && (last || its.room == mine.room && pods == mine.room) {
					t.Fatalf("%d pods are on %s, joined by %v, and on %s they would be by %v; all: %v", pods, name, link, other, better, slices.Sorted(slices.Values(plan[0])))
				}
			}
		}
	})
}

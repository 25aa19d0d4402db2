package placement

import (
	"cmp"
	"fmt"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/placement/inventory"
)

// product labels a node of eight GPUs, some of which may be missing.
func product(name string) nodeOption {
	return func(n *v1.Node) {
		n.Labels["nvidia.com/gpu.product"], n.Labels["nvidia.com/gpu.count"] = name, "8"
		n.Status.Capacity = v1.ResourceList{gpuResource: resource.MustParse("8")}
	}
}

// has are the GPUs that are written on a pod.
func has(gpus string) podOption {
	return func(p *v1.Pod) {
		p.Annotations, p.ResourceVersion = map[string]string{GPUsAnnotation: gpus}, "1"
	}
}

func started(p *v1.Pod) { p.Status.StartTime = &metav1.Time{} }

func TestPlanPutsPodsWhereTheirGPUsAreClose(t *testing.T) {
	const hgx, pcie = "NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S"
	// running are pods that leave so many GPUs of the node free.
	running := func(node string, free int) *v1.Pod {
		return makePod("r-"+node, 8-free, on(node), started)
	}
	having := func(node, gpus string, n int) *v1.Pod {
		return makePod("r-"+node+gpus, n, on(node), has(gpus), started)
	}
	tests := []struct {
		name        string
		enforcement Enforcement
		nodes       []*v1.Node
		running     []*v1.Pod
		seen        []Gang
		classes     []Class
		// want has the nodes of each class.
		want string
	}{
		{
			name: "four GPUs behind an NVSwitch before four that fit a node exactly", enforcement: Predict,
			nodes:   []*v1.Node{makeNode("cards", 8, product(pcie)), makeNode("hgx", 8, product(hgx))},
			running: []*v1.Pod{running("cards", 4)},
			classes: []Class{class(makePod("p", 4), 1)}, want: "hgx x1",
		},
		{
			name: "nodes of which nothing is known come after those that are known to have islands", enforcement: Predict,
			nodes:   []*v1.Node{makeNode("any", 8), makeNode("cards", 8, product(pcie))},
			classes: []Class{class(makePod("p", 2), 1)}, want: "cards x1",
		},
		{
			name: "where only numbers are known, an exact fit goes before what is sure", enforcement: Predict,
			nodes:   []*v1.Node{makeNode("a", 8, product(pcie)), makeNode("b", 8, product(pcie))},
			running: []*v1.Pod{running("b", 2)},
			classes: []Class{class(makePod("p", 2), 1)}, want: "b x1",
		},
		{
			name: "and of nodes that are as good the one on which a pair is sure", enforcement: Predict,
			nodes:   []*v1.Node{makeNode("a", 8, product(pcie)), makeNode("b", 8, product(pcie))},
			running: []*v1.Pod{running("a", 4), running("b", 5)},
			classes: []Class{class(makePod("p", 2), 1)}, want: "b x1",
		},
		{
			name: "what is written on pods of another mode does not count", enforcement: Predict,
			nodes:   []*v1.Node{makeNode("a", 8, product(pcie)), makeNode("b", 8, product(pcie))},
			running: []*v1.Pod{having("a", "1,3,4,5,6,7", 6), having("b", "3,4,5,6,7", 5)},
			classes: []Class{class(makePod("p", 2), 1)}, want: "a x1",
		},
		{
			name: "a pair that is free before an exact fit on two roots", enforcement: EnforceAnnotation,
			nodes:   []*v1.Node{makeNode("a", 8, product(pcie)), makeNode("b", 8, product(pcie))},
			running: []*v1.Pod{having("a", "1,3,4,5,6,7", 6), having("b", "3,4,5,6,7", 5)},
			classes: []Class{class(makePod("p", 2), 1)}, want: "b x1",
		},
		{
			name: "a single GPU is taken where it breaks no pair", enforcement: EnforceAnnotation,
			nodes:   []*v1.Node{makeNode("a", 8, product(pcie)), makeNode("b", 8, product(pcie))},
			running: []*v1.Pod{having("a", "4,5,6,7", 4), having("b", "1,4,6,7", 4)},
			classes: []Class{class(makePod("p", 1), 1)}, want: "b x1",
		},
		{
			name: "also where pods with more CPU would use the other node better by a little", enforcement: EnforceAnnotation,
			nodes:   []*v1.Node{makeNode("a", 8, product(pcie), nodeCPUs("56")), makeNode("b", 8, product(pcie), nodeCPUs("60"))},
			running: []*v1.Pod{having("a", "4,5,6,7", 4), having("b", "1,4,6,7", 4)},
			seen:    []Gang{seen(2, cpus("32")), seen(1, cpus("14"))},
			classes: []Class{class(makePod("p", 1), 1)}, want: "b x1",
		},
		{
			name: "and a pair where that keeps four GPUs on one node", enforcement: EnforceAnnotation,
			nodes:   []*v1.Node{makeNode("a", 8, product(pcie)), makeNode("b", 8, product(pcie))},
			running: []*v1.Pod{having("a", "2,3,4,5,6,7", 6), having("b", "1,3,5,7", 4)},
			seen:    []Gang{seen(2), seen(4), seen(1)},
			classes: []Class{class(makePod("p", 1), 1)}, want: "a x1",
		},
		{
			name: "pods that are still to be bound are counted with what they will get", enforcement: EnforceAnnotation,
			nodes:   []*v1.Node{makeNode("a", 8, product(pcie)), makeNode("b", 8, product(pcie))},
			running: []*v1.Pod{having("a", "3,4,5,6,7", 5), makePod("hold", 1, on("a")), having("b", "1,3,4,5,6", 5)},
			// Of 0, 1 and 2 the hold will get 2.
			classes: []Class{class(makePod("p", 2), 1)}, want: "a x1",
		},
		{
			name: "siblings too", enforcement: EnforceAnnotation,
			nodes:   []*v1.Node{makeNode("a", 8, product(pcie)), makeNode("b", 8, product(pcie))},
			running: []*v1.Pod{having("a", "1,3,5,6,7", 5), having("b", "2,3,4,5,6,7", 6)},
			classes: []Class{class(makePod("p", 2), 1), class(makePod("q", 1), 3)}, want: "b x1; a x3",
		},
		{
			name: "where another one has given out GPUs, only numbers are known", enforcement: EnforceAnnotation,
			nodes:   []*v1.Node{makeNode("a", 8, product(pcie)), makeNode("b", 8, product(pcie))},
			running: []*v1.Pod{running("a", 2), having("b", "3,4,5,6,7", 5)},
			classes: []Class{class(makePod("p", 2), 1)}, want: "a x1",
		},
	}
	for _, tt := range tests {
		for _, level := range []string{"", "rack"} {
			t.Run(tt.name+", in one "+cmp.Or(level, "cluster"), func(t *testing.T) {
				for _, n := range tt.nodes {
					n.Labels["block"], n.Labels["rack"] = "x", "r"
				}
				c := newCluster(t, tt.nodes, tt.running...)
				c.planner.UseIslands(NewIslands(inventory.NewProducts(nil), tt.enforcement, nil))
				for _, gang := range tt.seen {
					c.planner.Mix().Observe(gang)
				}
				gang := gangOf(tt.classes...)
				for i := range gang.Classes {
					if level != "" {
						gang.Classes[i] = close(gang.Classes[i], requiring(level))
					}
				}
				assignment, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, gang)
				if err != nil || why != nil {
					t.Fatalf("no plan: %v, %v", why, err)
				}
				got := ""
				for i, nodes := range assignment {
					if i > 0 {
						got += "; "
					}
					got += use(nodes)
				}
				if diff := gocmp.Diff(tt.want, got); diff != "" {
					t.Errorf("nodes (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestFreeGPUs(t *testing.T) {
	pod := func(name string, gpus int, options ...podOption) *v1.Pod {
		return makePod(name, gpus, append(options, on("n"))...)
	}
	tests := []struct {
		name    string
		gpus    int
		running []*v1.Pod
		// want are the free GPUs, "?" where they are not known.
		want string
	}{
		{"all of an empty node", 8, nil, "0,1,2,3,4,5,6,7"},
		{"all but those that are written on pods", 8, []*v1.Pod{pod("a", 2, has("0,5"), started), pod("b", 1, has("7"))}, "1,2,3,4,6"},
		{"what pods that are to be bound will get is not free", 8, []*v1.Pod{pod("a", 1, has("0")), pod("b", 1), pod("c", 4)}, "2,3"},
		{"a pod without GPUs has none", 8, []*v1.Pod{pod("a", 0, started)}, "0,1,2,3,4,5,6,7"},
		{"what its author has written on a hold does not count", 8, []*v1.Pod{pod("a", 1, has("7"), func(p *v1.Pod) { p.ResourceVersion = "" })}, "1,2,3,4,5,6,7"},
		{"a pod that runs without a word of its GPUs", 8, []*v1.Pod{pod("a", 1, started)}, "?"},
		{"two pods with one GPU", 8, []*v1.Pod{pod("a", 1, has("3")), pod("b", 2, has("3,4"))}, "?"},
		{"a pod with fewer GPUs than it asks for", 8, []*v1.Pod{pod("a", 2, has("3"))}, "?"},
		{"GPUs that the node does not have", 8, []*v1.Pod{pod("a", 1, has("9"))}, "?"},
		{"words that are no GPUs", 8, []*v1.Pod{pod("a", 1, has("first"))}, "?"},
		{"a broken GPU, nobody says which", 7, nil, "?"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, []*v1.Node{makeNode("n", tt.gpus, product("NVIDIA-L40S"))}, tt.running...)
			node, err := c.snap.Get("n")
			if err != nil {
				t.Fatal(err)
			}
			known, ok := inventory.NewProducts(nil).Node(node.Node())
			if !ok {
				t.Fatal("nothing is known of the node")
			}
			got := "?"
			if set, exact := NewIslands(nil, EnforceAnnotation, nil).free(node, known); exact {
				got = set.String()
			}
			if diff := gocmp.Diff(tt.want, got); diff != "" {
				t.Errorf("free GPUs (-want +got):\n%s", diff)
			}
		})
	}
}

// Where all GPUs are alike nothing changes, and little is spent.
func BenchmarkIslands(b *testing.B) {
	for _, name := range []string{"", "NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S"} {
		b.Run(fmt.Sprintf("2 GPUs on 5000 nodes of %q", name), func(b *testing.B) {
			c := newCluster(b, makeNodes(5000, 8, product(name)))
			c.planner.UseIslands(NewIslands(inventory.NewProducts(nil), Predict, nil))
			gang := gangOf(class(makePod("p", 2), 1000))
			b.ReportAllocs()
			for b.Loop() {
				if _, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, gang); why != nil || err != nil {
					b.Fatal(why, err)
				}
			}
		})
	}
}

package placement

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"

	"github.com/muster-gpu/muster/placement/fragmentation"
)

func nodeCPUs(n string) nodeOption {
	return func(node *v1.Node) { node.Status.Allocatable[v1.ResourceCPU] = resource.MustParse(n) }
}

func TestPlanLeavesWhatOthersCanUse(t *testing.T) {
	for _, test := range []struct {
		name    string
		nodes   []*v1.Node
		running []*v1.Pod
		seen    []Gang
		gang    Gang
		want    []string
	}{
		{
			name:  "a pod that needs much CPU goes where GPUs need less",
			nodes: []*v1.Node{makeNode("a", 4, nodeCPUs("32")), makeNode("b", 4, nodeCPUs("64"))},
			seen:  []Gang{seen(1, cpus("8"))},
			gang:  gangOf(class(makePod("worker", 1, cpus("24")), 1)),
			want:  []string{"b x1"},
		},
		{
			name:    "a pod that needs little CPU goes where there is little for the GPUs",
			nodes:   []*v1.Node{makeNode("a", 4, nodeCPUs("64")), makeNode("b", 4, nodeCPUs("16"))},
			running: []*v1.Pod{makePod("x", 1, on("a")), makePod("y", 1, on("b"))},
			seen:    []Gang{seen(1, cpus("16"))},
			gang:    gangOf(class(makePod("worker", 1), 1)),
			want:    []string{"b x1"},
		},
		{
			name:    "an exact fit comes first",
			nodes:   []*v1.Node{makeNode("a", 4, nodeCPUs("2")), makeNode("b", 1)},
			running: []*v1.Pod{makePod("x", 1, on("a"))},
			seen:    []Gang{seen(1, cpus("16"))},
			gang:    gangOf(class(makePod("worker", 1), 1)),
			want:    []string{"b x1"},
		},
		{
			name:  "a pod goes to nodes that fewer others may use",
			nodes: []*v1.Node{makeNode("a", 4, nodeLabel("model", "a")), makeNode("b", 4, nodeLabel("model", "b"))},
			seen:  []Gang{seen(1, selecting("model", "a")), seen(1, selecting("model", "a")), seen(2, selecting("model", "b")), seen(1)},
			gang:  gangOf(class(makePod("worker", 1), 1)),
			want:  []string{"a x1"},
		},
		{
			name:  "large jobs of other nodes do not count",
			nodes: []*v1.Node{makeNode("a", 8, nodeLabel("model", "a"), nodeCPUs("32")), makeNode("b", 8, nodeLabel("model", "a"), nodeCPUs("64"))},
			seen:  []Gang{seen(8, selecting("model", "b"), cpus("8")), seen(1, cpus("4"))},
			gang:  gangOf(class(makePod("worker", 1, cpus("8")), 1)),
			want:  []string{"b x1"},
		},
		{
			name:    "pods that no node takes together go where they fill best",
			nodes:   []*v1.Node{makeNode("a", 5), makeNode("b", 4), makeNode("c", 8)},
			running: []*v1.Pod{makePod("x", 8, on("c"))},
			seen:    []Gang{seen(1), seen(4)},
			gang:    gangOf(class(makePod("worker", 4), 2)),
			want:    []string{"b x1, a x1"},
		},
		{
			name:  "a pod without GPUs that must go to a node with GPUs goes where they need its CPU least",
			nodes: []*v1.Node{makeNode("a", 4, nodeCPUs("32")), makeNode("b", 4, nodeCPUs("64"))},
			seen:  []Gang{seen(1, cpus("8"))},
			gang:  gangOf(class(makePod("loader", 0, cpus("16")), 1)),
			want:  []string{"b x1"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, test.nodes, test.running...)
			for _, gang := range test.seen {
				c.planner.Mix().Observe(gang)
			}
			plan, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, test.gang)
			if err != nil || why != nil {
				t.Fatal(why, err)
			}
			var got []string
			for _, nodes := range plan {
				got = append(got, use(nodes))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMixForgetsPoolsThatNobodyAsksFor(t *testing.T) {
	m := newMix(isGPU)
	m.Observe(seen(8, selecting("host", "often")))
	for i := range 3 * fragmentation.MaxPools {
		m.Observe(seen(1, selecting("host", fmt.Sprint(i))))
	}
	now := m.now()
	if len(now.pools) != fragmentation.MaxPools {
		t.Fatalf("%d pools, want %d", len(now.pools), fragmentation.MaxPools)
	}
	c := newCluster(t, []*v1.Node{makeNode("last", 8, nodeLabel("host", fmt.Sprint(3*fragmentation.MaxPools-1))), makeNode("first", 8, nodeLabel("host", "0")), makeNode("often", 8, nodeLabel("host", "often"))})
	for name, want := range map[string]int{"last": 1, "first": 0, "often": 1} {
		node, err := c.snap.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := bits.OnesCount64(now.of(node)); got != want {
			t.Errorf("node %s is in %d pools, want %d", name, got, want)
		}
	}
}

// What a planner remembers of nodes from plan to plan must not differ from what
// is found out anew.
func TestScoresOfAPlanAreThoseOfSinglePods(t *testing.T) {
	const amd = v1.ResourceName("amd.com/gpu")
	anyGPU := func(name v1.ResourceName) bool { return name == gpuResource || name == amd }
	models := []string{"a", "b", "c"}
	chance := rand.New(rand.NewPCG(1, 1))
	node := func(i int) *v1.Node {
		n := makeNode(fmt.Sprintf("node-%d", i), chance.IntN(9), nodeLabel("model", models[chance.IntN(3)]), nodeCPUs(fmt.Sprint(16*(1+chance.IntN(3)))))
		if chance.IntN(3) == 0 {
			n.Status.Allocatable[amd] = *resource.NewQuantity(int64(chance.IntN(4)), resource.DecimalSI)
		}
		return n
	}
	pod := func(n int) *v1.Pod {
		p := makePod("pod", 1+chance.IntN(4), cpus(fmt.Sprint(1+chance.IntN(8))))
		if chance.IntN(2) == 0 {
			selecting("model", models[chance.IntN(3)])(p)
		}
		requests := p.Spec.Containers[0].Resources.Requests
		if chance.IntN(3) == 0 {
			requests[amd] = requests[gpuResource]
			delete(requests, gpuResource)
		}
		for name, q := range requests {
			q.Mul(int64(n))
			requests[name] = q
		}
		return p
	}
	nodes := make([]*v1.Node, 24)
	for i := range nodes {
		nodes[i] = node(i)
	}
	c := newCluster(t, nodes)
	planner, compared := NewPlanner(anyGPU), 0
	for round := range 200 {
		if chance.IntN(3) == 0 {
			planner.Mix().Observe(gangOf(class(pod(1), 1+chance.IntN(round+1))))
		}
		if i := chance.IntN(2 * len(nodes)); i < len(nodes) {
			old := nodes[i]
			nodes[i] = node(i)
			c.sched.Cache.UpdateNode(klog.Logger{}, old, nodes[i])
			if err := c.sched.Cache.UpdateSnapshot(klog.Logger{}, c.snap); err != nil {
				t.Fatal(err)
			}
		}
		infos, err := c.snap.List()
		if err != nil {
			t.Fatal(err)
		}
		seed := chance.Uint64()
		n := 1 + chance.IntN(2)
		chance = rand.New(rand.NewPCG(seed, 1))
		one := pod(1)
		chance = rand.New(rand.NewPCG(seed, 1))
		fit, err := planner.Mix().Fit(pod(n))
		if err != nil {
			t.Fatal(err)
		}
		gang := gangOf(class(one, 4))
		s, err := planner.newTrial(c.ctx, c.fw, c.snap, infos).newClassSearch(&gang, 0)
		if err != nil {
			t.Fatal(err)
		}
		score := s.scoring()
		for _, candidate := range s.candidates() {
			if candidate.room < n {
				continue
			}
			compared++
			// Now and then for another number of pods in between.
			if chance.IntN(2) == 0 {
				score(&candidate, 3-n)
			}
			want, _ := fit.On(infos[candidate.node])
			if got := score(&candidate, n); got != want {
				t.Fatalf("round %d: the score of %s for %d pods is %+v, want %+v", round, candidate.name, n, got, want)
			}
		}
	}
	if compared < 500 {
		t.Errorf("only %d scores were compared", compared)
	}
}

func TestMixOfAnotherGPU(t *testing.T) {
	m := newMix(func(name v1.ResourceName) bool { return name == gpuResource || name == "amd.com/gpu" })
	m.Observe(seen(1))
	node := makeNode("both", 4)
	node.Status.Allocatable["amd.com/gpu"] = resource.MustParse("4")
	c := newCluster(t, []*v1.Node{node})
	info, err := c.snap.Get("both")
	if err != nil {
		t.Fatal(err)
	}
	other := makePod("other", 0)
	other.Spec.Containers[0].Resources.Requests["amd.com/gpu"] = resource.MustParse("1")
	for _, test := range []struct {
		pod  *v1.Pod
		want int64
	}{
		// 1 of 4 GPUs of which all others could use all.
		{makePod("same", 1), 0},
		// Nobody who was seen could use it.
		{other, -1e6},
	} {
		fit, err := m.Fit(test.pod)
		if err != nil {
			t.Fatal(err)
		}
		if got, free := fit.On(info); free != 4 || got.Growth != test.want || fit.GPUs() != 1 {
			t.Errorf("%s: %+v for %d GPUs, want a growth of %d", test.pod.Name, got, fit.GPUs(), test.want)
		}
	}
}

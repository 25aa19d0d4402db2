package placement

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	"github.com/muster-gpu/muster/api/reason"
)

// vainly are so many racks of two nodes that have room for 16 pods of one GPU as far as
// can be counted, and of which one node refuses all pods that are workers.
func vainly(count int) (nodes []*v1.Node, running []*v1.Pod) {
	for i := range count {
		rack := fmt.Sprintf("r%d", i)
		for k := range 2 {
			nodes = append(nodes, makeNode(fmt.Sprintf("%s-%d", rack, k), 8, nodeLabel("rack", rack), nodeLabel("block", "x")))
		}
		refuser := makePod("refuser-"+rack, 0, apart("worker", v1.LabelHostname), on(rack+"-1"))
		running = append(running, refuser)
	}
	return nodes, running
}

// tryAll plans a gang until nothing is left to try, and says how many plans that took.
func (c *cluster) tryAll(t fataler, gang Gang) (Assignment, *reason.Reason, int) {
	t.Helper()
	gang.Progress = &Progress{}
	for n := 1; n < 1000; n++ {
		plan, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, gang)
		if err != nil {
			t.Fatalf("planning: %v", err)
		}
		if !gang.Progress.Unfinished() {
			return plan, why, n
		}
		if plan != nil {
			t.Fatalf("a gang with nodes is unfinished")
		}
	}
	t.Fatalf("a thousand plans and no end")
	return nil, nil, 0
}

// TestAPlanEndsBeforeAllIsTried: what is too much for one plan is told, and tried by
// the next ones.
func TestAPlanEndsBeforeAllIsTried(t *testing.T) {
	nodes, running := vainly(300)
	c := newCluster(t, nodes, running...)
	for _, test := range []struct {
		name  string
		gang  Gang
		first string
	}{
		{
			name:  "a rack that must be shared, and pods that want their own kind near them",
			gang:  gangOf(close(class(makePod("worker", 1, near("worker", "rack")), 16), requiring("rack"))),
			first: "needs 16 pods of 1 GPU in one rack; at least 16 of the 300 domains of rack that are large enough were tried, the others are tried next",
		},
		{
			name:  "a rack that is preferred: the block and all nodes together are no racks",
			gang:  gangOf(close(class(makePod("worker", 1, near("worker", "rack")), 16), preferring("rack"))),
			first: "needs 16 pods of 1 GPU; at least 16 of the 300 domains of rack that are large enough were tried, the others are tried next",
		},
		{
			name:  "only their own kind",
			gang:  gangOf(class(makePod("worker", 1, near("worker", "rack")), 16)),
			first: "needs 16 pods of 1 GPU; at least 64 of the 300 domains of rack that are large enough were tried, the others are tried next",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			progress := &Progress{}
			test.gang.Progress = progress
			_, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, test.gang)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(reason.New(reason.NoPlacement, "%s", test.first), why); diff != "" || !progress.Unfinished() {
				t.Fatalf("unfinished %t (-want +got):\n%s", progress.Unfinished(), diff)
			}
			for progress.Unfinished() {
				if _, why, err = c.planner.Plan(c.ctx, c.fw, c.snap, test.gang); err != nil || strings.Contains(why.Message, "300 of the 300") {
					t.Fatal(why, err)
				}
			}
			if _, why, n := c.tryAll(t, test.gang); why == nil || strings.Contains(why.Message, "tried") || n < 2 {
				t.Fatalf("after %d plans: %v", n, why)
			}
		})
	}
}

// TestHowManyDomainsWereTriedIsSaidRarely: whoever is told writes it each time that it is
// something else.
func TestHowManyDomainsWereTriedIsSaidRarely(t *testing.T) {
	const all = 5000
	var said []string
	for tried := range all {
		var least int
		words := triedOf(tried, all, "rack")
		if _, err := fmt.Sscanf(strings.TrimPrefix(words, "at least "), "%d of the 5000 domains of rack that are large enough were tried", &least); err != nil || least > tried || 2*least < tried {
			t.Fatalf("of %d domains that were tried it says %q (%v)", tried, words, err)
		}
		if len(said) == 0 || said[len(said)-1] != words {
			said = append(said, words)
		}
	}
	if len(said) > 14 {
		t.Errorf("it says %d times something else: %q", len(said), said)
	}
}

// TestAGangThatFitsSomewhereIsFoundInTheEnd: however little of what can be tried one plan
// tries, a place is found if there is one, and there is an end if there is none.
func TestAGangThatFitsSomewhereIsFoundInTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
		defer cancel()
		count := rapid.IntRange(1, 120).Draw(t, "racks")
		nodes, running := vainly(count)
		good := rapid.IntRange(0, 2*count).Draw(t, "the rack that serves")
		kind := rapid.SampledFrom([]string{"near", "near, one rack", "apart, one rack", "apart, slices"}).Draw(t, "kind")
		var gang Gang
		switch kind {
		case "near":
			gang = gangOf(class(makePod("worker", 1, near("worker", "rack")), 16))
		case "near, one rack":
			gang = gangOf(close(class(makePod("worker", 1, near("worker", "rack")), 16), requiring("rack")))
		default:
			// Each replica of 4 pods wants nodes of its own, of which there are too few.
			asked := requiring("rack")
			if kind == "apart, slices" {
				asked = inRacks(Topology{Slices: []Slice{{"rack", 12}}})
			}
			for i := range 3 {
				name := fmt.Sprintf("replica-%d", i)
				gang.Classes = append(gang.Classes, close(class(makePod(name, 1, offOthers(name, "job")), 4), asked))
			}
			gang.Name, gang.UID = "job", "job-uid"
			running = nil
		}
		if good < count {
			rack := fmt.Sprintf("r%d", good)
			for k := range 4 {
				nodes = append(nodes, makeNode(fmt.Sprintf("%s-more-%d", rack, k), 8, nodeLabel("rack", rack), nodeLabel("block", "x")))
			}
		}
		c := newClusterIn(ctx, t, nodes, running...)
		plan, why, n := c.tryAll(t, gang)
		if (plan != nil) != (good < count) {
			t.Fatalf("after %d plans: %v, %v", n, plan, why)
		}
		for _, names := range plan {
			for _, name := range names {
				if !strings.HasPrefix(name, fmt.Sprintf("r%d-", good)) {
					t.Fatalf("%s is not in rack %d", name, good)
				}
			}
		}
	})
}

// TestALeaderThatComesBackAloneIsUnfinishedToo: with none of the other pods in the plan.
func TestALeaderThatComesBackAloneIsUnfinishedToo(t *testing.T) {
	nodes := makeNodes(600, 8, nodeLabel("rack", "r"), nodeLabel("block", "x"))
	c := newCluster(t, nodes)
	gang := gangOf(leader(class(makePod("launcher", 0, near("worker", "rack")), 1), requiring("rack")))
	_, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, gang)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(reason.New(reason.NoPlacement, "needs 1 pod; 0 of the 1 domains of rack that are large enough were tried, the others are tried next"), why); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestWhatOneGroupIsRefusedAnotherMayHave: workers want a rack and servers a zone, and
// where they would rather be nodes refuse the ones and let the others in.
func TestWhatOneGroupIsRefusedAnotherMayHave(t *testing.T) {
	var nodes []*v1.Node
	var running []*v1.Pod
	add := func(name, rack, zone string, off ...string) {
		nodes = append(nodes, makeNode(name, 8, nodeLabel("rack", rack), nodeLabel("zone", zone)))
		for _, app := range off {
			running = append(running, makePod("off-"+app+"-"+name, 0, apart(app, v1.LabelHostname), on(name)))
		}
	}
	add("a", "1", "2", "worker")
	add("b", "2", "1", "server")
	for i := range 300 {
		// Chance does not find the two among all these.
		add(fmt.Sprintf("c-%d", i), fmt.Sprint(i+3), fmt.Sprint(i+3), "worker", "server")
	}
	c := newCluster(t, nodes, running...)
	in := func(level string) *Topology {
		return &Topology{Levels: []string{level, v1.LabelHostname}, Level: level, Required: true}
	}
	gang := gangOf(close(class(makePod("worker", 8), 1), in("rack")), close(class(makePod("server", 8), 1), in("zone")))
	plan, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, gang)
	if diff := cmp.Diff(Assignment{{"b"}, {"a"}}, plan); diff != "" {
		t.Errorf("(-want +got):\n%s%v %v", diff, why, err)
	}
}

// TestADomainThatHasChangedIsTriedAgain although a plan before has tried it in vain, and
// when many change all the time there is an end still.
func TestADomainThatHasChangedIsTriedAgain(t *testing.T) {
	for name, gang := range map[string]Gang{
		"one rack": gangOf(close(class(makePod("worker", 1, near("worker", "rack")), 16), requiring("rack"))),
		"near":     gangOf(class(makePod("worker", 1, near("worker", "rack")), 16)),
	} {
		t.Run(name, func(t *testing.T) {
			nodes, running := vainly(300)
			c := newCluster(t, nodes, running...)
			gang.Progress = &Progress{}
			plan := func() Assignment {
				plan, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, gang)
				if err != nil || (plan == nil) != (why != nil) {
					t.Fatal(plan, why, err)
				}
				return plan
			}
			changes := func(change func(klog.Logger) error) {
				logger := klog.FromContext(c.ctx)
				if err := change(logger); err != nil {
					t.Fatal(err)
				}
				if err := c.sched.Cache.UpdateSnapshot(logger, c.snap); err != nil {
					t.Fatal(err)
				}
			}
			for n := 0; n == 0 || gang.Progress.Unfinished(); n++ {
				if n == 30 {
					t.Fatal("no end")
				}
				if got := plan(); got != nil {
					t.Fatalf("a plan on %v", got)
				}
				changes(func(logger klog.Logger) error {
					for i := range 100 {
						other := makePod(fmt.Sprintf("other-%d-%d", n, i), 0, on(fmt.Sprintf("r%d-0", i)))
						if err := c.sched.Cache.AddPod(logger, other); err != nil {
							return err
						}
					}
					return nil
				})
			}
			plan()
			changes(func(logger klog.Logger) error { return c.sched.Cache.RemovePod(logger, running[1]) })
			for gang.Progress.Unfinished() {
				if got := plan(); got != nil {
					return
				}
			}
			t.Error("none in the rack that has got room")
		})
	}
}

// TestNodesWithoutLabelsAreDomainsOfTheirOwn: that one of them was tried says nothing of
// the others, or of all nodes together.
func TestNodesWithoutLabelsAreDomainsOfTheirOwn(t *testing.T) {
	nodes, running := vainly(100)
	for _, n := range nodes {
		n.Labels["zone"] = n.Labels["rack"]
	}
	for _, name := range []string{"lone-0", "lone-1"} {
		nodes = append(nodes, makeNode(name, 16, nodeLabel("zone", name)))
		running = append(running, makePod("refuser-"+name, 0, apart("worker", v1.LabelHostname), on(name)))
	}
	// Only all nodes together have 16 GPUs in this zone.
	for _, block := range []string{"y", "z"} {
		nodes = append(nodes, makeNode(block, 8, nodeLabel("block", block), nodeLabel("rack", block), nodeLabel("zone", "good")))
	}
	c := newCluster(t, nodes, running...)
	plan, why, n := c.tryAll(t, gangOf(close(class(makePod("worker", 1, near("worker", "zone")), 16), preferring("rack"))))
	if diff := cmp.Diff("y x8, z x8", use(slices.Concat(plan...))); diff != "" {
		t.Errorf("after %d plans: %v (-want +got):\n%s", n, why, diff)
	}
}

// TestLookingAtClaimsIsWhatPlansCost: all devices are looked at for each pod, so that a plan
// of pods with claims tries fewer racks.
func TestLookingAtClaimsIsWhatPlansCost(t *testing.T) {
	nodes, running := vainly(500)
	objects := []runtime.Object{makeDeviceClass(), makeDeviceTemplate("gpus-1", 1)}
	for _, n := range nodes {
		objects = append(objects, makeSlice(n.Name, 8))
	}
	c := newClaimCluster(t, objects, nodes, running...)
	for want, worker := range map[string]*v1.Pod{
		"needs 16 pods; at least 8 of the 500 domains of rack that are large enough were tried, the others are tried next":           makePod("worker", 0, near("worker", "rack"), claiming("gpus-1")),
		"needs 16 pods of 1 GPU; at least 32 of the 500 domains of rack that are large enough were tried, the others are tried next": makePod("worker", 1, near("worker", "rack")),
	} {
		_, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, gangOf(class(worker, 16)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(reason.New(reason.NoPlacement, "%s", want), why); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

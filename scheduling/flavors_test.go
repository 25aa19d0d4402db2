package scheduling

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// newChoice is a contest in a queue, main, of two flavors with the quota given, whose
// nodes have as many GPUs as is said, in the order of their flavors.
func newChoice(t *testing.T, quotas [2]int64, a, b []int64, change ...func(*kueue.ClusterQueueSpec)) *contest {
	t.Helper()
	c := newContest(t)
	for flavor, nodes := range map[string][]int64{"a": a, "b": b} {
		for i, gpus := range nodes {
			c.watched.AddNode(c.logger, flavored(fmt.Sprintf("%s-%d", flavor, i), flavor, gpus))
		}
	}
	cq := clusterQueue("main", []string{"a", "b"}, quotas[0], quotas[1])
	for _, f := range change {
		f(&cq.Spec)
	}
	c.set(cq, false)
	c.Restored()
	return c
}

func preempts(s *kueue.ClusterQueueSpec) {
	s.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
}

// flavorsOf are the flavors of the GPUs of each pod set.
func (c *contest) flavorsOf(j *workload.Job) []string {
	var out []string
	if a := c.entry(j).assignment; a != nil {
		for _, f := range a.Flavors {
			out = append(out, f[gpuResource])
		}
	}
	return out
}

func TestAClaimKeepsTheFlavorOfEachPodSet(t *testing.T) {
	c := newChoice(t, [2]int64{8, 8}, []int64{8}, []int64{4, 4}, preempts)
	c.runs(one("low", 8), 0)
	high := job("high", set("small", 0, 8, 1), set("large", 0, 1, 8))
	c.submit(high, 1)
	c.pass()
	c.wantLeaving("low")
	// Now the first flavor is free to the first pod set as well.
	c.leave()
	c.pass()
	if diff := cmp.Diff([]string{"b", "a"}, c.flavorsOf(high)); diff != "" {
		t.Errorf("flavors (-want +got):\n%s\n%v", diff, c.why(high))
	}
}

func TestAnElasticJobGrowsInTheFlavorThatItRunsIn(t *testing.T) {
	c := newChoice(t, [2]int64{8, 8}, []int64{8}, []int64{8})
	first := one("first", 8)
	c.runs(first, 0)
	grows := elastic("grows", 2, 1)
	c.runs(grows, 0)
	c.read(running(grows), c.entry(grows).workload, nil)
	c.ownerGone(first.Owner.UID)
	c.left(first.Owner.UID)
	c.read(running(asks(grows, 4)), c.entry(grows).workload, nil)
	c.pass()
	if diff := cmp.Diff([]string{"b-0", "b-0", "b-0", "b-0"}, slotNodes(c.entry(grows))); diff != "" {
		t.Errorf("nodes (-want +got):\n%s\n%v", diff, c.entry(grows).growth.refused)
	}
}

// slotNodes are the nodes of a job's slots.
func slotNodes(e *entry) []string {
	var out []string
	for _, set := range e.sets {
		for _, s := range set.slots {
			out = append(out, s.node)
		}
	}
	return out
}

// takes has a pod of no job take GPUs of a node, and returns what makes it go.
func (c *contest) takes(node string, gpus int64) (goes func()) {
	c.t.Helper()
	p := plainPod(fmt.Sprintf("on-%s-%d", node, gpus), node, gpus)
	if err := c.watched.AddPod(c.logger, p); err != nil {
		c.t.Fatal(err)
	}
	return func() {
		c.t.Helper()
		if err := c.watched.RemovePod(c.logger, p); err != nil {
			c.t.Fatal(err)
		}
	}
}

func stopsBeforeTheNextFlavor(s *kueue.ClusterQueueSpec) {
	s.FlavorFungibility = &kueue.FlavorFungibility{WhenCanPreempt: kueue.MayStopSearch}
}

func TestAJobWithoutAPlaceTriesItsNextFlavor(t *testing.T) {
	preferA := []func(*kueue.ClusterQueueSpec){preempts, stopsBeforeTheNextFlavor}
	tests := map[string]struct {
		quotas [2]int64
		a, b   []int64
		policy []func(*kueue.ClusterQueueSpec)
		// low are the GPUs of single pods that run at a lower priority.
		low     []int64
		job     *workload.Job
		flavors []string
		stopped []string
		why     string
	}{
		"the first flavor has free GPUs, but no node with enough": {
			quotas: [2]int64{16, 16}, a: []int64{4, 4}, b: []int64{8}, job: one("j", 8), flavors: []string{"b"},
		},
		"the larger pod set goes elsewhere, the other one stays": {
			quotas: [2]int64{16, 16}, a: []int64{4}, b: []int64{8}, job: job("j", set("leader", 0, 1, 1), set("worker", 0, 1, 8)),
			flavors: []string{"a", "b"},
		},
		"two pod sets that find no place beside each other part": {
			quotas: [2]int64{16, 16}, a: []int64{8}, b: []int64{4}, job: job("j", set("leader", 0, 1, 4), set("worker", 0, 1, 8)),
			flavors: []string{"b", "a"},
		},
		"nobody is stopped as long as another flavor has a place": {
			quotas: [2]int64{16, 8}, a: []int64{8}, b: []int64{8}, policy: []func(*kueue.ClusterQueueSpec){preempts}, low: []int64{8},
			job: one("j", 8), flavors: []string{"b"},
		},
		"but with whenCanPreempt: MayStopSearch": {
			quotas: [2]int64{16, 8}, a: []int64{8}, b: []int64{8}, policy: preferA, low: []int64{8},
			job: one("j", 8), stopped: []string{"low-0"}, why: "waiting for 1 job to leave a-0",
		},
		"others are stopped in the first flavor if there is no place in any": {
			quotas: [2]int64{16, 16}, a: []int64{8}, b: []int64{8}, policy: []func(*kueue.ClusterQueueSpec){preempts}, low: []int64{8, 8},
			job: one("j", 8), stopped: []string{"low-0"}, why: "waiting for 1 job to leave a-0",
		},
		"or in the next one, if that would not help in the first": {
			quotas: [2]int64{16, 16}, a: []int64{4, 4}, b: []int64{8}, policy: []func(*kueue.ClusterQueueSpec){preempts}, low: []int64{4, 4, 8},
			job: one("j", 8), stopped: []string{"low-2"}, why: "waiting for 1 job to leave b-0",
		},
		"also where quota is short in both": {
			quotas: [2]int64{8, 8}, a: []int64{4, 4}, b: []int64{8}, policy: []func(*kueue.ClusterQueueSpec){preempts}, low: []int64{4, 4, 8},
			job: one("j", 8), stopped: []string{"low-2"}, why: "waiting for 1 job to leave b-0",
		},
		"stopping others in vain in the first flavor leaves the second one, which is free": {
			quotas: [2]int64{8, 8}, a: []int64{4, 4}, b: []int64{8}, policy: preferA, low: []int64{4, 4},
			job: one("j", 8), flavors: []string{"b"},
		},
		"a part is started where there is a place for it": {
			quotas: [2]int64{32, 32}, a: []int64{4, 4}, b: []int64{8, 4}, job: canDoWith("j", 3, 1, 8), flavors: []string{"b"},
		},
		"no flavor has a place": {
			quotas: [2]int64{16, 16}, a: []int64{8}, b: []int64{8}, job: one("j", 4, needsZone),
			why: "flavor a: no node passes: 2 node(s) didn't match Pod's node affinity/selector; flavor b: no node passes: 2 node(s) didn't match Pod's node affinity/selector",
		},
		"the first has no place, the second no quota": {
			quotas: [2]int64{16, 4}, a: []int64{8}, b: []int64{8}, low: []int64{4}, job: one("j", 8),
			why: "flavor a: needs 8 GPUs; 4 GPUs are free; 4 more GPUs are missing, on one node; not counted: 1 node(s) didn't match Pod's node affinity/selector; it would fit if JobSet team-a/low-0 (4 GPUs) left; needs 8 GPUs in queue main, the quota is 4 in flavor b",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newChoice(t, tc.quotas, tc.a, tc.b, tc.policy...)
			for i, gpus := range tc.low {
				c.runs(one(fmt.Sprintf("low-%d", i), gpus), 0)
			}
			c.submit(tc.job, 1)
			c.pass()
			if diff := cmp.Diff(tc.flavors, c.flavorsOf(tc.job)); diff != "" {
				t.Errorf("flavors (-want +got):\n%s", diff)
			}
			c.wantLeaving(tc.stopped...)
			var why string
			if tc.flavors == nil {
				why = c.why(tc.job).String()
			}
			if diff := cmp.Diff(tc.why, why); diff != "" {
				t.Errorf("why (-want +got):\n%s", diff)
			}
			if errs := c.waitlistErrors(); len(errs) > 0 {
				t.Errorf("the waitlist: %q", errs)
			}
		})
	}
}

// needsZone has a job ask for nodes of a zone that there are none of.
func needsZone(j *workload.Job) {
	j.PodSets[0].Template.Spec.NodeSelector = map[string]string{"zone": "z1"}
}

func TestAJobWaitsForAPlaceInEachFlavor(t *testing.T) {
	tests := map[string]struct {
		job     *workload.Job
		happens func(c *contest, goes map[string]func())
		flavor  string
	}{
		"GPUs become free in the first":  {one("j", 8), func(_ *contest, goes map[string]func()) { goes["a-0"]() }, "a"},
		"GPUs become free in the second": {one("j", 8), func(_ *contest, goes map[string]func()) { goes["b-0"]() }, "b"},
		"a node comes in the second": {one("j", 8, needsZone), func(c *contest, _ map[string]func()) {
			n := flavored("b-1", "b", 8)
			n.Labels["zone"] = "z1"
			c.watched.AddNode(c.logger, n)
		}, "b"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newChoice(t, [2]int64{16, 16}, []int64{8}, []int64{8})
			goes := map[string]func(){}
			for _, n := range []string{"a-0", "b-0"} {
				goes[n] = c.takes(n, 4)
			}
			c.submit(tc.job, 0)
			if got := c.pass(); len(got) > 0 {
				t.Fatalf("%q were admitted", got)
			}
			c.wishes.admits = 0
			tc.happens(c, goes)
			if c.wishes.admits == 0 {
				t.Error("no pass is asked for")
			}
			c.pass()
			if diff := cmp.Diff([]string{tc.flavor}, c.flavorsOf(tc.job)); diff != "" {
				t.Errorf("flavors (-want +got):\n%s\n%v", diff, c.why(tc.job))
			}
			if errs := c.waitlistErrors(); len(errs) > 0 {
				t.Errorf("the waitlist: %q", errs)
			}
		})
	}
}

func TestQuotaThatIsReleasedInAnotherFlavorHelpsAJobThatWaitsForNodes(t *testing.T) {
	c := newChoice(t, [2]int64{16, 8}, []int64{4}, []int64{8})
	other := job("other", set("node", 0, 2, 4))
	c.runs(other, 0)
	j := one("j", 8)
	c.submit(j, 0)
	c.pass()
	want := "flavor a: needs 8 GPUs; the nodes that it may use have 4; needs 8 GPUs in queue main, 0 of 8 free in flavor b"
	if diff := cmp.Diff(want, c.why(j).String()); diff != "" {
		t.Errorf("why (-want +got):\n%s", diff)
	}
	c.ownerGone(other.Owner.UID)
	c.left(other.Owner.UID)
	if diff := cmp.Diff([]string{"j"}, c.pass()); diff != "" {
		t.Errorf("admitted (-want +got):\n%s\n%v", diff, c.why(j))
	}
}

// inFlavor is a pod of its own that goes to a flavor.
func inFlavor(name, flavor string, gpus int64) *workload.Job {
	j := one(name, gpus)
	j.PodSets[0].Template.Spec.NodeSelector = map[string]string{"flavor": flavor}
	return j
}

func TestNobodyIsStoppedWhereTwoPodSetsHaveAPlaceTheOtherWayRound(t *testing.T) {
	c := newChoice(t, [2]int64{16, 9}, []int64{8}, []int64{8, 1}, preempts)
	c.runs(inFlavor("low", "b", 8), 0)
	j := job("j", set("leader", 0, 1, 1), set("worker", 0, 1, 8))
	c.submit(j, 1)
	c.pass()
	c.wantLeaving()
	if diff := cmp.Diff([]string{"b", "a"}, c.flavorsOf(j)); diff != "" {
		t.Errorf("flavors (-want +got):\n%s\n%v", diff, c.why(j))
	}
}

// cpusInTheirOwnFlavors covers the CPUs of a ClusterQueue in the flavors c and d.
func cpusInTheirOwnFlavors(s *kueue.ClusterQueueSpec) {
	gpus := &s.ResourceGroups[0]
	gpus.CoveredResources = gpus.CoveredResources[:1]
	for i := range gpus.Flavors {
		gpus.Flavors[i].Resources = gpus.Flavors[i].Resources[:1]
	}
	cpus := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{corev1.ResourceCPU}}
	for _, f := range []kueue.ResourceFlavorReference{"c", "d"} {
		cpus.Flavors = append(cpus.Flavors, kueue.FlavorQuotas{Name: f, Resources: []kueue.ResourceQuota{
			{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse("1000")},
		}})
	}
	s.ResourceGroups = append(s.ResourceGroups, cpus)
}

func TestAPartIsTriedInTheFlavorsOfEachGroup(t *testing.T) {
	c := newChoice(t, [2]int64{8, 8}, nil, nil, preempts, cpusInTheirOwnFlavors)
	c.UpdateQuota(func(t *quota.Tree) {
		for _, f := range []string{"c", "d"} {
			t.SetFlavor(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: f}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"cpu": f}}})
		}
	})
	for name, cpu := range map[string]string{"a-0": "d", "b-0": "c"} {
		n := flavored(name, name[:1], 8)
		n.Labels["cpu"] = cpu
		c.watched.AddNode(c.logger, n)
	}
	// In the flavors b and c, which come before a and d, it would have to be stopped.
	c.runs(inFlavor("low", "b", 8), 0)
	j := canDoWith("j", 2, 1, 8, func(j *workload.Job) {
		j.PodSets[0].Template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1")
	})
	c.submit(j, 1)
	c.pass()
	if diff := cmp.Diff([]string{"a"}, c.flavorsOf(j)); diff != "" {
		t.Errorf("flavors (-want +got):\n%s\n%v", diff, c.why(j))
	}
}

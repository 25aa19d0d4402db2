package scheduling

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// newCloseChoice is newChoice with racks of so many nodes of 8 GPUs in each flavor,
// named a-<rack>-0 and so on. The flavors have topologies of the levels given.
func newCloseChoice(t *testing.T, quotas [2]int64, a, b []int, levels [2][]string, change ...func(*kueue.ClusterQueueSpec)) *contest {
	t.Helper()
	c := newChoice(t, quotas, nil, nil, change...)
	for f, racks := range map[int][]int{0: a, 1: b} {
		flavor := string(rune('a' + f))
		topologyOn(flavor, "of-"+flavor, levels[f]...)(c.stage)
		for i, nodes := range racks {
			for k := range nodes {
				n := flavored(fmt.Sprintf("%s-%d-%d", flavor, i, k), flavor, 8)
				n.Labels["block"], n.Labels["rack"] = flavor, fmt.Sprintf("%s-%d", flavor, i)
				c.watched.AddNode(c.logger, n)
			}
		}
	}
	return c
}

// withCPUsOf has the CPUs be of a flavor of their own.
func withCPUsOf(flavor string) func(*kueue.ClusterQueueSpec) {
	return func(s *kueue.ClusterQueueSpec) {
		cpu := clusterQueue("main", []string{flavor}, 0).Spec.ResourceGroups[0]
		cpu.CoveredResources = []corev1.ResourceName{corev1.ResourceCPU}
		cpu.Flavors[0].Resources = cpu.Flavors[0].Resources[1:]
		gpus := &s.ResourceGroups[0]
		gpus.CoveredResources = []corev1.ResourceName{gpuResource}
		for i := range gpus.Flavors {
			gpus.Flavors[i].Resources = gpus.Flavors[i].Resources[:1]
		}
		s.ResourceGroups = append(s.ResourceGroups, cpu)
	}
}

func TestAJobWithoutADomainTriesItsNextFlavor(t *testing.T) {
	inRack := kueue.PodSetTopologyRequest{Required: new("rack")}
	racks := []string{"block", "rack", corev1.LabelHostname}
	same := [2][]string{racks, racks}
	two := func(r kueue.PodSetTopologyRequest) *workload.Job { return job("j", asking(set("node", 0, 2, 8), r)) }
	torn := job("j", asking(cpus(set("node", 0, 2, 8)), inRack))
	for name, tc := range map[string]struct {
		quotas [2]int64
		a, b   []int
		levels [2][]string
		policy []func(*kueue.ClusterQueueSpec)
		job    *workload.Job
		// low are nodes on which others run at a lower priority.
		low     int
		flavors []string
		close   string
		stopped []string
		why     string
	}{
		"no rack of the first flavor is large enough": {
			quotas: [2]int64{64, 64}, a: []int{1, 1}, b: []int{2}, levels: same, job: two(inRack), flavors: []string{"b"}, close: "in one domain of rack",
		},
		"the racks of both flavors are too small": {
			quotas: [2]int64{64, 64}, a: []int{1, 1}, b: []int{1, 1, 1}, levels: same, job: two(inRack),
			why: "flavor a: needs 2 pods of 8 GPUs in one rack; even empty, the largest, a-0, has room for 1; flavor b: needs 2 pods of 8 GPUs in one rack; even empty, the largest, b-0, has room for 1",
		},
		"the topology of the first flavor has no such level": {
			quotas: [2]int64{64, 64}, a: []int{2}, b: []int{2}, levels: [2][]string{{"block"}, racks}, job: two(inRack), flavors: []string{"b"}, close: "in one domain of rack",
		},
		"how close the pods are is said in the levels of the flavor that they are in": {
			quotas: [2]int64{64, 64}, a: []int{1}, b: []int{1, 1}, levels: [2][]string{{"rack"}, {"block"}}, job: two(kueue.PodSetTopologyRequest{}),
			flavors: []string{"b"}, close: "in one domain of block",
		},
		"the topologies of the first choice do not go together": {
			quotas: [2]int64{64, 64}, a: []int{2}, b: []int{2}, levels: [2][]string{{"rack", "block"}, racks}, policy: []func(*kueue.ClusterQueueSpec){withCPUsOf("b")},
			job: torn, flavors: []string{"b"}, close: "in one domain of rack",
		},
		"others are stopped in a rack of the first flavor if there is none in any": {
			quotas: [2]int64{64, 64}, a: []int{1, 2}, b: []int{1, 1}, levels: same, policy: []func(*kueue.ClusterQueueSpec){preempts}, job: two(inRack), low: 3,
			stopped: []string{"low-1", "low-2"}, why: "waiting for 2 jobs to leave a-1-0..a-1-1",
		},
		"or of the second, if the racks of the first are too small": {
			quotas: [2]int64{8, 64}, a: []int{1}, b: []int{2}, levels: same, policy: []func(*kueue.ClusterQueueSpec){preempts}, job: two(inRack), low: 3,
			stopped: []string{"low-1", "low-2"}, why: "waiting for 2 jobs to leave b-0-0..b-0-1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloseChoice(t, tc.quotas, tc.a, tc.b, tc.levels, tc.policy...)
			for i := range tc.low {
				c.runs(one(fmt.Sprintf("low-%d", i), 8), 0)
			}
			c.submit(tc.job, 1)
			c.pass()
			if diff := cmp.Diff(tc.flavors, c.flavorsOf(tc.job)); diff != "" {
				t.Errorf("flavors (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.close, c.entry(tc.job).close.String()); diff != "" {
				t.Errorf("how close they are (-want +got):\n%s", diff)
			}
			c.wantLeaving(tc.stopped...)
			var why string
			if tc.flavors == nil {
				why = c.why(tc.job).String()
			}
			if diff := cmp.Diff(tc.why, why); diff != "" {
				t.Errorf("why (-want +got):\n%s", diff)
			}
			if len(tc.stopped) > 0 {
				c.leave()
				c.pass()
				if diff := cmp.Diff("in one domain of rack", c.entry(tc.job).close.String()); diff != "" {
					t.Errorf("how close they are once others have left (-want +got):\n%s", diff)
				}
			}
		})
	}
}

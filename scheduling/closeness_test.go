package scheduling

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/placement/topology"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// closeStage has one queue, main, of the flavor gpu, with the levels block and
// rack, and nodes a0, a1, ... b0, ... of 8 GPUs in racks of one block.
func closeStage(t *testing.T, racks ...int) *stage {
	t.Helper()
	s := newStage(t.Context(), t)
	s.queue("main", false, []string{"gpu"}, 1000)
	topologyOn("gpu", "dc", "block", "rack", corev1.LabelHostname)(s)
	for i, nodes := range racks {
		for k := range nodes {
			n := flavored(fmt.Sprintf("%c%d", 'a'+i, k), "gpu", 8)
			n.Labels["block"], n.Labels["rack"] = "x", string(rune('a'+i))
			s.watched.AddNode(s.logger, n)
		}
	}
	s.Restored()
	return s
}

// topologyOn gives a flavor a Topology of the levels.
func topologyOn(flavor, name string, levels ...string) func(*stage) {
	return func(s *stage) {
		s.UpdateQuota(func(t *quota.Tree) {
			o := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: name}}
			for _, l := range levels {
				o.Spec.Levels = append(o.Spec.Levels, kueue.TopologyLevel{NodeLabel: l})
			}
			t.SetTopology(o)
			t.SetFlavor(&kueue.ResourceFlavor{
				ObjectMeta: metav1.ObjectMeta{Name: flavor},
				Spec:       kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"flavor": flavor}, TopologyName: new(kueue.TopologyReference(name))},
			})
		})
	}
}

// asking gives a pod set a topology request.
func asking(ps workload.PodSet, r kueue.PodSetTopologyRequest) workload.PodSet {
	ps.Topology = &r
	return ps
}

// placed renders the nodes of a job's pod sets, in the order of slots.
func (s *stage) placed(j *workload.Job) string {
	e := s.entry(j)
	var sets []string
	for _, set := range e.sets {
		var nodes []string
		for _, sl := range set.slots {
			nodes = append(nodes, sl.node)
		}
		sets = append(sets, strings.Join(nodes, " "))
	}
	return strings.Join(sets, " | ")
}

func TestJobsAreClose(t *testing.T) {
	required := func(level string) kueue.PodSetTopologyRequest {
		return kueue.PodSetTopologyRequest{Required: &level}
	}
	grouped := func(level string) kueue.PodSetTopologyRequest {
		return kueue.PodSetTopologyRequest{Required: &level, PodSetGroupName: new("all")}
	}
	for name, tc := range map[string]struct {
		racks  []int
		change func(*stage)
		sets   []workload.PodSet
		want   string
	}{
		"a required rack": {[]int{6, 4}, nil, []workload.PodSet{asking(set("node", 0, 4, 8), required("rack"))}, "b0 b1 b2 b3"},
		"a preferred rack": {[]int{2, 3}, nil, []workload.PodSet{asking(set("node", 0, 4, 8), kueue.PodSetTopologyRequest{Preferred: new("rack")})},
			"a0 b0 b1 b2"},
		"slices": {[]int{3, 3}, nil, []workload.PodSet{asking(set("node", 0, 4, 8), kueue.PodSetTopologyRequest{
			PodSetSliceRequiredTopology: new("rack"), PodSetSliceSize: new(int32(2))})}, "a0 a1 b0 b1"},
		"slices within slices": {[]int{3, 3}, nil, []workload.PodSet{asking(set("node", 0, 8, 4), kueue.PodSetTopologyRequest{
			PodsetSliceRequiredTopologyConstraints: []kueue.PodsetSliceRequiredTopologyConstraint{{Topology: "rack", Size: 4}, {Topology: corev1.LabelHostname, Size: 2}}})},
			"a0 a0 a1 a1 b0 b0 b1 b1"},
		"a launcher in the group": {[]int{2, 3}, nil, []workload.PodSet{
			asking(set("launcher", 0, 1, 8), grouped("rack")), asking(set("node", 0, 2, 8), grouped("rack")),
		}, "b0 | b1 b2"},
		"a launcher that comes after them": {[]int{2, 3}, nil, []workload.PodSet{
			asking(set("node", 0, 2, 8), grouped("rack")), asking(set("launcher", 0, 1, 8), grouped("rack")),
		}, "b1 b2 | b0"},
		"two sets of several pods in the group": {[]int{3, 4}, nil, []workload.PodSet{
			asking(set("a", 0, 2, 8), grouped("rack")), asking(set("b", 0, 2, 8), grouped("rack")),
		}, "b0 b1 | b2 b3"},
		"three sets in the group, two of them single pods": {[]int{3, 4}, nil, []workload.PodSet{
			asking(set("a", 0, 2, 8), grouped("rack")), asking(set("b", 0, 1, 8), grouped("rack")), asking(set("c", 0, 1, 8), grouped("rack")),
		}, "b0 b1 | b2 | b3"},
		"a launcher that asks for nothing": {[]int{3, 2}, nil, []workload.PodSet{
			set("launcher", 0, 1, 1), asking(set("node", 0, 2, 4), required("rack")),
		}, "b1 | b0 b0"},
		"nothing asked for": {[]int{2, 3}, nil, []workload.PodSet{set("node", 0, 3, 8)}, "a0 a1 b0"},
		"nothing asked for where the flavor has a level that is preferred": {[]int{2, 3}, func(s *stage) {
			s.UpdateQuota(func(t *quota.Tree) {
				t.SetDefaultLevels(func(string) []string { return nil }, func(string) string { return "rack" })
			})
		}, []workload.PodSet{set("node", 0, 3, 8)}, "b0 b1 b2"},
		"the levels are those of the configuration": {[]int{2, 3}, func(s *stage) {
			s.UpdateQuota(func(t *quota.Tree) {
				t.SetFlavor(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
				t.SetDefaultLevels(func(string) []string { return []string{"rack"} }, func(string) string { return "" })
			})
		}, []workload.PodSet{asking(set("node", 0, 3, 8), required("rack"))}, "b0 b1 b2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := closeStage(t, tc.racks...)
			if tc.change != nil {
				tc.change(s)
			}
			j := job("a", tc.sets...)
			s.submit(j, 0)
			s.pass()
			if diff := cmp.Diff(tc.want, s.placed(j)); diff != "" {
				t.Errorf("nodes by slot (-want +got):\n%s\n%v", diff, s.entry(j).spot.bucket)
			}
		})
	}
}

func TestRequestsThatCannotBeMet(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*stage)
		set    workload.PodSet
		want   string
	}{
		"a level that the topology does not have": {nil, asking(set("node", 0, 2, 8), kueue.PodSetTopologyRequest{Required: new("row")}),
			"pod set node: the topology of flavor gpu has no level row, but block, rack, kubernetes.io/hostname"},
		"a flavor without a topology": {func(s *stage) {
			s.UpdateQuota(func(t *quota.Tree) {
				t.SetFlavor(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
			})
		}, asking(set("node", 0, 2, 8), kueue.PodSetTopologyRequest{Preferred: new("rack")}),
			"pod set node: flavor gpu has no topology, and so no level rack"},
		"a Topology that does not exist": {func(s *stage) {
			s.UpdateQuota(func(t *quota.Tree) { t.DeleteTopology("dc") })
		}, set("node", 0, 2, 8), "Topology dc of ResourceFlavor gpu does not exist"},
		"no rack is large enough": {nil, asking(set("node", 0, 4, 8), kueue.PodSetTopologyRequest{Required: new("rack")}),
			"needs 4 pods of 8 GPUs in one rack; even empty, the largest, b, has room for 3"},
		"two flavors with different topologies": {func(s *stage) {
			cq := clusterQueue("main", []string{"gpu"}, 1000)
			cpu := clusterQueue("main", []string{"cpu"}, 0).Spec.ResourceGroups[0]
			cq.Spec.ResourceGroups[0].CoveredResources = []corev1.ResourceName{gpuResource}
			cq.Spec.ResourceGroups[0].Flavors[0].Resources = cq.Spec.ResourceGroups[0].Flavors[0].Resources[:1]
			cpu.CoveredResources = []corev1.ResourceName{corev1.ResourceCPU}
			cpu.Flavors[0].Resources = cpu.Flavors[0].Resources[1:]
			cq.Spec.ResourceGroups = append(cq.Spec.ResourceGroups, cpu)
			s.set(cq, false)
			topologyOn("gpu", "dc", "block", "rack")(s)
			topologyOn("cpu", "other", "rack", "block")(s)
		}, asking(cpus(set("node", 0, 2, 8)), kueue.PodSetTopologyRequest{Required: new("rack")}),
			`pod set "node" asks for a topology level, and the topologies of its flavors cpu and gpu have different levels (rack, block; block, rack)`},
	} {
		t.Run(name, func(t *testing.T) {
			s := closeStage(t, 2, 3)
			if tc.change != nil {
				tc.change(s)
			}
			j := job("a", tc.set)
			s.submit(j, 0)
			s.pass()
			b := s.entry(j).spot.bucket
			if b == nil || b.why == nil || !strings.Contains(b.why.Message, tc.want) {
				t.Errorf("it is on %q, and the reason is %+v; want %q", s.placed(j), b.why, tc.want)
			}
		})
	}
}

// cpus has the pods of a set ask for a CPU too.
func cpus(ps workload.PodSet) workload.PodSet {
	c := &ps.Template.Spec.Containers[0]
	c.Resources.Requests = c.Resources.Requests.DeepCopy()
	c.Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1")
	return ps
}

func TestALostSlotIsFoundANodeInTheDomain(t *testing.T) {
	s := closeStage(t, 4, 3)
	j := job("a", asking(set("node", 0, 2, 8), kueue.PodSetTopologyRequest{Required: new("rack")}))
	s.submit(j, 0)
	s.pass()
	if got := s.placed(j); got != "b0 b1" {
		t.Fatalf("it is on %s", got)
	}
	s.write(j)
	s.removeNode(t, "b0")
	s.pass()
	if got := s.placed(j); got != "b2 b1" {
		t.Errorf("after the loss of b0 it is on %s, want b2 b1", got)
	}
	s.removeNode(t, "b1")
	s.pass()
	if got := s.placed(j); got != "b2 " {
		t.Errorf("with no node left in the rack it is on %s", got)
	}
	if why := s.entry(j).why; why == nil || !strings.Contains(why.Message, "needs 1 pod of 8 GPUs in one rack, where the rest of the gang is") {
		t.Errorf("the reason is %v", why)
	}
}

func (s *stage) removeNode(t *testing.T, name string) {
	t.Helper()
	if err := s.watched.RemoveNode(s.logger, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
}

func TestTheWorkloadSaysHowCloseThePodsAre(t *testing.T) {
	for name, tc := range map[string]struct {
		request kueue.PodSetTopologyRequest
		want    string
	}{
		"a rack":                {kueue.PodSetTopologyRequest{Required: new("rack")}, ", in one domain of rack"},
		"two racks":             {kueue.PodSetTopologyRequest{Preferred: new("rack")}, ", in 2 domains of rack, no fewer would do, 1 level crossed"},
		"nothing was asked for": {kueue.PodSetTopologyRequest{}, ", in 2 domains of rack, of which 1 would do, 1 level crossed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := closeStage(t, 2, 3)
			n := int32(3)
			if tc.request.Preferred != nil {
				n = 4
			}
			j := job("a", asking(set("node", 0, n, 8), tc.request))
			s.submit(j, 0)
			s.pass()
			a, ok := s.admissionOf(j.Owner.UID)
			if !ok || !strings.HasSuffix(a.message, tc.want) {
				t.Errorf("it says %q, want ...%q", a.message, tc.want)
			}

			wl := s.workloadOfJob(j, s.admissionWritten(j), func(wl *kueue.Workload) {
				wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, Message: "admitted: " + a.message}}
			})
			after := closeStage(t, 2, 3)
			after.restore(j, wl, nil)
			if again, ok := after.admissionOf(j.Owner.UID); !ok || again.message != a.message {
				t.Errorf("after a restart it says %q, want %q", again.message, a.message)
			}
		})
	}
}

func TestHowFewDomainsWouldDoIsNotSaidWhereNobodyHasCounted(t *testing.T) {
	c := &closeness{of: []judged{{&placement.Topology{Levels: []string{"rack"}}, topology.Quality{Domains: 2, Crossed: 1}}}}
	if got, want := c.String(), "in 2 domains of rack, 1 level crossed"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}

// TestFlavorsThatDisagreeHaveNoLevel: whoever plans such a job, be it to find
// victims for it, finds no place.
func TestFlavorsThatDisagreeHaveNoLevel(t *testing.T) {
	s := closeStage(t, 2)
	topologyOn("other", "other", "rack", "block")(s)
	levels := []string{"block", "rack", corev1.LabelHostname}
	const torn = `pod set "leader" asks for a topology level, and the topologies of `
	for name, tc := range map[string]struct {
		group *string
		// cpu and worker are flavors: of the leader's CPUs, and of the workers.
		cpu, worker string
		want        [][]string
		why         string
	}{
		"in one flavor": {nil, "gpu", "gpu", [][]string{levels, levels}, ""},
		"in two of them": {nil, "other", "gpu", [][]string{nil, levels},
			torn + "its flavors other and gpu have different levels (rack, block; block, rack, kubernetes.io/hostname)"},
		"each pod set in one": {nil, "gpu", "other", [][]string{levels, {"rack", "block"}}, ""},
		"each pod set of a group in one": {new("ring"), "gpu", "other", [][]string{nil, nil},
			torn + "the flavors of its group ring, gpu and other have different levels (block, rack, kubernetes.io/hostname; rack, block)"},
	} {
		t.Run(name, func(t *testing.T) {
			inRack := kueue.PodSetTopologyRequest{Preferred: new("rack"), PodSetGroupName: tc.group}
			j := job("a", asking(set("leader", 0, 1, 8), inRack), asking(set("worker", 0, 2, 8), inRack))
			a := &quota.Assignment{Flavors: []map[corev1.ResourceName]string{{gpuResource: "gpu", corev1.ResourceCPU: tc.cpu}, {gpuResource: tc.worker}}}
			classes := []class{{set: 0}, {set: 1}}
			setCloseness(j, a, s.Ledger.quota, classes)
			var got [][]string
			for _, c := range classes {
				got = append(got, c.topology.Levels)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("levels (-want +got):\n%s", diff)
			}
			var why string
			if no := disagree(j, a, s.Ledger.quota); no != nil {
				why = no.Message
			}
			if diff := cmp.Diff(tc.why, why); diff != "" {
				t.Errorf("why (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFourNodesAndThenSix(t *testing.T) {
	s := closeStage(t, 4, 6)
	four := job("four", asking(set("node", 0, 4, 8), kueue.PodSetTopologyRequest{Required: new("rack")}))
	six := job("six", asking(set("node", 0, 6, 8), kueue.PodSetTopologyRequest{Required: new("rack")}))
	s.submit(four, 0)
	s.submit(six, 0)
	if got := s.pass(); !slices.Contains(got, "four") || !slices.Contains(got, "six") {
		t.Errorf("admitted: %v", got)
	}
}

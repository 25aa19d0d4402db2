package quota

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

// sharing is a pod set whose pods share n of a resource.
func sharing(ps PodSet, name corev1.ResourceName, n int64) PodSet {
	ps.Shared = Requests{name: n}
	return ps
}

func TestAssignGivesFlavors(t *testing.T) {
	spot := corev1.Taint{Key: "spot", Value: "true", Effect: corev1.TaintEffectNoSchedule}
	tests := map[string]struct {
		tree    *Tree
		used    Usage
		request Request
		want    *Assignment
	}{
		"all pods of a pod set are charged": {
			tree:    cluster(clusterQ("cq", group(of("h100", "nvidia.com/gpu", "16", "cpu", "64"))), flavorOf("h100", nil)),
			request: job(pods("node", 4, "nvidia.com/gpu", "4", "cpu", "500m")),
			want: &Assignment{
				ClusterQueue: "cq",
				Flavors:      []map[corev1.ResourceName]string{{nvidiaGPU: "h100", "cpu": "h100"}},
				PodSetUsage:  []Requests{{nvidiaGPU: 16, "cpu": 2000}},
				Usage:        Usage{{"h100", nvidiaGPU}: 16, {"h100", "cpu"}: 2000},
			},
		},
		"what the pods of a set share is charged once, beside what each takes": {
			tree: cluster(clusterQ("cq", group(of("h100", "nvidia.com/gpu", "16"), of("a100", "nvidia.com/gpu", "32"))), flavorOf("h100", nil), flavorOf("a100", nil)),
			request: job(sharing(pods("node", 4, "nvidia.com/gpu", "3"), "nvidia.com/gpu", 5),
				sharing(pods("other", 2), "nvidia.com/gpu", 8), sharing(pods("none", 0), "nvidia.com/gpu", 99)),
			want: &Assignment{
				ClusterQueue: "cq",
				Flavors:      []map[corev1.ResourceName]string{{nvidiaGPU: "a100"}, {nvidiaGPU: "h100"}, {}},
				PodSetUsage:  []Requests{{nvidiaGPU: 17}, {nvidiaGPU: 8}, {}},
				Usage:        Usage{{"a100", nvidiaGPU}: 17, {"h100", nvidiaGPU}: 8},
			},
		},
		"a job takes exactly what is left": {
			tree:    cluster(clusterQ("cq", group(of("h100", "nvidia.com/gpu", "16"))), flavorOf("h100", nil)),
			used:    Usage{{"h100", nvidiaGPU}: 8},
			request: job(pods("node", 2, "nvidia.com/gpu", "4")),
			want: &Assignment{
				ClusterQueue: "cq",
				Flavors:      []map[corev1.ResourceName]string{{nvidiaGPU: "h100"}},
				PodSetUsage:  []Requests{{nvidiaGPU: 8}},
				Usage:        Usage{{"h100", nvidiaGPU}: 8},
			},
		},
		"a full flavor is passed over for the next one, with all resources of the group": {
			tree: cluster(clusterQ("cq", group(
				of("h100", "nvidia.com/gpu", "8", "cpu", "64"), of("a100", "nvidia.com/gpu", "8", "cpu", "64"))),
				flavorOf("h100", nil), flavorOf("a100", nil)),
			used:    Usage{{"h100", nvidiaGPU}: 1},
			request: job(pods("node", 2, "nvidia.com/gpu", "4", "cpu", "1")),
			want: &Assignment{
				ClusterQueue: "cq",
				Flavors:      []map[corev1.ResourceName]string{{nvidiaGPU: "a100", "cpu": "a100"}},
				PodSetUsage:  []Requests{{nvidiaGPU: 8, "cpu": 2000}},
				Usage:        Usage{{"a100", nvidiaGPU}: 8, {"a100", "cpu"}: 2000},
			},
		},
		"a pod set sees what the one before it took": {
			tree: cluster(clusterQ("cq", group(of("h100", "nvidia.com/gpu", "8"), of("a100", "nvidia.com/gpu", "8"))),
				flavorOf("h100", nil), flavorOf("a100", nil)),
			request: job(pods("a", 1, "nvidia.com/gpu", "8"), pods("b", 1, "nvidia.com/gpu", "8")),
			want: &Assignment{
				ClusterQueue: "cq",
				Flavors:      []map[corev1.ResourceName]string{{nvidiaGPU: "h100"}, {nvidiaGPU: "a100"}},
				PodSetUsage:  []Requests{{nvidiaGPU: 8}, {nvidiaGPU: 8}},
				Usage:        Usage{{"h100", nvidiaGPU}: 8, {"a100", nvidiaGPU}: 8},
			},
		},
		"resource groups give different flavors to one pod set": {
			tree: cluster(clusterQ("cq", group(of("h100", "nvidia.com/gpu", "8")), group(of("cpus", "cpu", "8", "memory", "1Ti"))),
				flavorOf("h100", nil), flavorOf("cpus", nil)),
			request: job(pods("node", 1, "nvidia.com/gpu", "8", "memory", "2Gi")),
			want: &Assignment{
				ClusterQueue: "cq",
				Flavors:      []map[corev1.ResourceName]string{{nvidiaGPU: "h100", "memory": "cpus"}},
				PodSetUsage:  []Requests{{nvidiaGPU: 8, "memory": 2 << 30}},
				Usage:        Usage{{"h100", nvidiaGPU}: 8, {"cpus", "memory"}: 2 << 30},
			},
		},
		"pods are counted where they are covered": {
			tree:    cluster(clusterQ("cq", group(of("h100", "pods", "4"))), flavorOf("h100", nil)),
			request: job(pods("node", 3)),
			want: &Assignment{
				ClusterQueue: "cq",
				Flavors:      []map[corev1.ResourceName]string{{"pods": "h100"}},
				PodSetUsage:  []Requests{{"pods": 3}},
				Usage:        Usage{{"h100", "pods"}: 3},
			},
		},
		"zero of an uncovered resource is ignored": {
			tree:    cluster(clusterQ("cq", group(of("h100", "nvidia.com/gpu", "8"))), flavorOf("h100", nil)),
			request: job(pods("node", 1, "nvidia.com/gpu", "8", "cpu", "0")),
			want: &Assignment{
				ClusterQueue: "cq",
				Flavors:      []map[corev1.ResourceName]string{{nvidiaGPU: "h100"}},
				PodSetUsage:  []Requests{{nvidiaGPU: 8}},
				Usage:        Usage{{"h100", nvidiaGPU}: 8},
			},
		},
		"a queue in debt still takes a pod set that asks for zero": {
			tree:    cluster(clusterQ("cq", group(of("h100", "nvidia.com/gpu", "8"))), flavorOf("h100", nil)),
			used:    Usage{{"h100", nvidiaGPU}: 12},
			request: job(pods("launcher", 1, "nvidia.com/gpu", "0")),
			want: &Assignment{
				ClusterQueue: "cq",
				Flavors:      []map[corev1.ResourceName]string{{nvidiaGPU: "h100"}},
				PodSetUsage:  []Requests{{nvidiaGPU: 0}},
				Usage:        Usage{},
			},
		},
		"a node selector picks the flavor with that label, whatever its order": {
			tree: cluster(clusterQ("cq", group(of("h100", "nvidia.com/gpu", "8"), of("a100", "nvidia.com/gpu", "8"))),
				flavorOf("h100", map[string]string{"nvidiaGPU": "h100"}), flavorOf("a100", map[string]string{"nvidiaGPU": "a100"})),
			request: job(pods("node", 1, "nvidia.com/gpu", "8").as(corev1.PodSpec{
				NodeSelector: map[string]string{"nvidiaGPU": "a100", "zone": "z1"},
			})),
			want: &Assignment{
				ClusterQueue: "cq",
				Flavors:      []map[corev1.ResourceName]string{{nvidiaGPU: "a100"}},
				PodSetUsage:  []Requests{{nvidiaGPU: 8}},
				Usage:        Usage{{"a100", nvidiaGPU}: 8},
			},
		},
		"a flavor in which there was no place is passed over by the pod set that had none": {
			tree: cluster(clusterQ("cq", group(of("h100", "nvidia.com/gpu", "16"), of("a100", "nvidia.com/gpu", "16"))),
				flavorOf("h100", nil), flavorOf("a100", nil)),
			request: job(pods("a", 1, "nvidia.com/gpu", "8"), pods("b", 1, "nvidia.com/gpu", "8").without("h100")),
			want: &Assignment{
				ClusterQueue: "cq",
				Flavors:      []map[corev1.ResourceName]string{{nvidiaGPU: "h100"}, {nvidiaGPU: "a100"}},
				PodSetUsage:  []Requests{{nvidiaGPU: 8}, {nvidiaGPU: 8}},
				Usage:        Usage{{"h100", nvidiaGPU}: 8, {"a100", nvidiaGPU}: 8},
			},
		},
		"a pod set that has flavors keeps them, each pod set its own": {
			tree: cluster(clusterQ("cq", group(of("h100", "nvidia.com/gpu", "16"), of("a100", "nvidia.com/gpu", "16"))),
				flavorOf("h100", nil), flavorOf("a100", nil)),
			request: job(
				pods("a", 1, "nvidia.com/gpu", "8").in(map[corev1.ResourceName]string{nvidiaGPU: "a100"}),
				pods("b", 1, "nvidia.com/gpu", "8").in(map[corev1.ResourceName]string{nvidiaGPU: "h100"})),
			want: &Assignment{
				ClusterQueue: "cq",
				Flavors:      []map[corev1.ResourceName]string{{nvidiaGPU: "a100"}, {nvidiaGPU: "h100"}},
				PodSetUsage:  []Requests{{nvidiaGPU: 8}, {nvidiaGPU: 8}},
				Usage:        Usage{{"h100", nvidiaGPU}: 8, {"a100", nvidiaGPU}: 8},
			},
		},
		"a tainted flavor is passed over by pods that do not tolerate it": {
			tree: cluster(clusterQ("cq", group(of("spot", "nvidia.com/gpu", "8"), of("h100", "nvidia.com/gpu", "8"))),
				flavorOf("spot", nil, spot), flavorOf("h100", nil)),
			request: job(pods("node", 1, "nvidia.com/gpu", "8")),
			want: &Assignment{
				ClusterQueue: "cq",
				Flavors:      []map[corev1.ResourceName]string{{nvidiaGPU: "h100"}},
				PodSetUsage:  []Requests{{nvidiaGPU: 8}},
				Usage:        Usage{{"h100", nvidiaGPU}: 8},
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.tree.Charge("earlier", "cq", tc.used, Holder{})
			got, no := tc.tree.Assign(tc.request)
			if no != nil {
				t.Fatalf("refused: %s: %s", no.Class, no)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("assignment (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAssignSaysNoWithNumbers(t *testing.T) {
	oneFlavor := func() *Tree {
		return cluster(clusterQ("cq", group(of("h100", "nvidia.com/gpu", "16", "cpu", "64", "memory", "64Gi"))), flavorOf("h100", nil))
	}
	twoFlavors := func() *Tree {
		return cluster(clusterQ("cq", group(of("h100", "nvidia.com/gpu", "16"), of("a100", "nvidia.com/gpu", "8"))),
			flavorOf("h100", map[string]string{"nvidiaGPU": "h100"}), flavorOf("a100", map[string]string{"nvidiaGPU": "a100"}))
	}
	edit := func(t *Tree, change func(*kueue.ClusterQueue)) *Tree {
		cq := clusterQ("cq", group(of("h100", "nvidia.com/gpu", "16")))
		change(cq)
		t.SetClusterQueue(cq)
		return t
	}
	stopped := localQ(teamNLP, "cq")
	hold := kueue.Hold
	stopped.Spec.StopPolicy = &hold

	tests := map[string]struct {
		tree    func() *Tree
		used    Usage
		request Request
		want    reason.Reason
	}{
		"the LocalQueue is unknown": {
			tree:    New,
			request: job(),
			want:    reason.Reason{Class: reason.QueueNotFound, Message: "LocalQueue nlp/team-nlp does not exist"},
		},
		"the ClusterQueue is unknown": {
			tree: func() *Tree { t := oneFlavor(); t.DeleteClusterQueue("cq"); return t },
			want: reason.Reason{Class: reason.QueueNotFound, Message: "ClusterQueue cq does not exist"},
		},
		"the LocalQueue was deleted": {
			tree: func() *Tree { t := oneFlavor(); t.DeleteLocalQueue(teamNLP); return t },
			want: reason.Reason{Class: reason.QueueNotFound, Message: "LocalQueue nlp/team-nlp does not exist"},
		},
		"the LocalQueue is stopped": {
			tree: func() *Tree { t := oneFlavor(); t.SetLocalQueue(stopped); return t },
			want: reason.Reason{Class: reason.QueueInactive, Message: "LocalQueue nlp/team-nlp is stopped (Hold)"},
		},
		"the ClusterQueue is stopped": {
			tree: func() *Tree {
				drain := kueue.HoldAndDrain
				return edit(oneFlavor(), func(cq *kueue.ClusterQueue) { cq.Spec.StopPolicy = &drain })
			},
			want: reason.Reason{Class: reason.QueueInactive, Message: "ClusterQueue cq is not active: it is stopped (HoldAndDrain)"},
		},
		"a flavor is missing": {
			tree: func() *Tree { t := oneFlavor(); t.DeleteFlavor("h100"); return t },
			want: reason.Reason{Class: reason.QueueInactive, Message: "ClusterQueue cq is not active: ResourceFlavor h100 does not exist"},
		},
		"an admission check is named": {
			tree: func() *Tree {
				return edit(oneFlavor(), func(cq *kueue.ClusterQueue) {
					cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{
						AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "budget"}},
					}
				})
			},
			want: reason.Reason{Class: reason.QueueInactive, Message: "ClusterQueue cq is not active: AdmissionCheck budget is not run by Muster"},
		},
		"a null namespaceSelector selects nothing": {
			tree: func() *Tree {
				return edit(oneFlavor(), func(cq *kueue.ClusterQueue) { cq.Spec.NamespaceSelector = nil })
			},
			want: reason.Reason{Class: reason.NamespaceMismatch, Message: "namespace nlp is not selected by ClusterQueue cq"},
		},
		"the namespaceSelector wants another label": {
			tree: func() *Tree {
				return edit(oneFlavor(), func(cq *kueue.ClusterQueue) {
					cq.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "vision"}}
				})
			},
			request: Request{Queue: teamNLP, NamespaceLabels: map[string]string{"team": "nlp"}},
			want:    reason.Reason{Class: reason.NamespaceMismatch, Message: "namespace nlp is not selected by ClusterQueue cq"},
		},
		"a pod set has a negative count": {
			tree:    oneFlavor,
			request: job(pods("node", -1, "nvidia.com/gpu", "1")),
			want:    reason.Reason{Class: reason.Misconfigured, Message: "pod set node has -1 pods"},
		},
		"a resource is not covered": {
			tree:    oneFlavor,
			request: job(pods("node", 1, "amd.com/gpu", "1")),
			want:    reason.Reason{Class: reason.NoMatchingFlavor, Message: "ClusterQueue cq has no quota for amd.com/gpu (it covers nvidia.com/gpu, cpu, memory)"},
		},
		"no resource group at all": {
			tree:    func() *Tree { return cluster(clusterQ("cq")) },
			request: job(pods("node", 1, "nvidia.com/gpu", "1")),
			want:    reason.Reason{Class: reason.NoMatchingFlavor, Message: "ClusterQueue cq has no quota for nvidia.com/gpu"},
		},
		"half the quota is in use": {
			tree:    oneFlavor,
			used:    Usage{{"h100", nvidiaGPU}: 8},
			request: job(pods("node", 4, "nvidia.com/gpu", "4")),
			want:    reason.Reason{Class: reason.WaitingForQuota, Message: "needs 16 GPUs in queue team-nlp, 8 of 16 free"},
		},
		"more is in use than the quota": {
			tree:    oneFlavor,
			used:    Usage{{"h100", nvidiaGPU}: 24},
			request: job(pods("node", 1, "nvidia.com/gpu", "1")),
			want:    reason.Reason{Class: reason.WaitingForQuota, Message: "needs 1 GPU in queue team-nlp, 0 of 16 free"},
		},
		"two resources are short": {
			tree:    oneFlavor,
			used:    Usage{{"h100", nvidiaGPU}: 8, {"h100", "memory"}: 63 << 30},
			request: job(pods("node", 4, "nvidia.com/gpu", "4", "memory", "2Gi")),
			want: reason.Reason{Class: reason.WaitingForQuota,
				Message: "needs 16 GPUs in queue team-nlp, 8 of 16 free; needs 8Gi memory, 1Gi of 64Gi free"},
		},
		"cpu is short by half a core": {
			tree:    oneFlavor,
			used:    Usage{{"h100", "cpu"}: 63500},
			request: job(pods("node", 1, "cpu", "1")),
			want:    reason.Reason{Class: reason.WaitingForQuota, Message: "needs 1 cpu in queue team-nlp, 500m of 64 free"},
		},
		"pod sets that fit one by one do not fit together": {
			tree:    oneFlavor,
			used:    Usage{{"h100", nvidiaGPU}: 4},
			request: job(pods("a", 1, "nvidia.com/gpu", "8"), pods("b", 1, "nvidia.com/gpu", "8")),
			want:    reason.Reason{Class: reason.WaitingForQuota, Message: "needs 16 GPUs in queue team-nlp, 12 of 16 free"},
		},
		"the need of one flavor counts the pod sets behind the one that fails": {
			tree:    oneFlavor,
			used:    Usage{{"h100", nvidiaGPU}: 12},
			request: job(pods("a", 1, "nvidia.com/gpu", "8"), pods("b", 1, "nvidia.com/gpu", "8")),
			want:    reason.Reason{Class: reason.WaitingForQuota, Message: "needs 16 GPUs in queue team-nlp, 4 of 16 free"},
		},
		"the job is larger than the queue, though the queue is in use too": {
			tree:    oneFlavor,
			used:    Usage{{"h100", nvidiaGPU}: 8},
			request: job(pods("node", 8, "nvidia.com/gpu", "4")),
			want:    reason.Reason{Class: reason.ExceedsMaxQuota, Message: "needs 32 GPUs in queue team-nlp, the quota is 16"},
		},
		"requests beyond any integer are larger than the queue": {
			tree:    oneFlavor,
			request: job(pods("node", 2_000_000_000, "memory", "8Ei")),
			want:    reason.Reason{Class: reason.ExceedsMaxQuota, Message: "needs over 7Ei memory in queue team-nlp, the quota is 64Gi"},
		},
		"two flavors are in use": {
			tree:    twoFlavors,
			used:    Usage{{"h100", nvidiaGPU}: 12, {"a100", nvidiaGPU}: 8},
			request: job(pods("node", 2, "nvidia.com/gpu", "4")),
			want: reason.Reason{Class: reason.WaitingForQuota,
				Message: "needs 8 GPUs in queue team-nlp, 4 of 16 free in flavor h100, 0 of 8 free in flavor a100"},
		},
		"the job is larger than the largest of two flavors": {
			tree:    twoFlavors,
			request: job(pods("node", 5, "nvidia.com/gpu", "4")),
			want: reason.Reason{Class: reason.ExceedsMaxQuota,
				Message: "needs 20 GPUs in queue team-nlp, the quota is 16 in flavor h100, the quota is 8 in flavor a100"},
		},
		"what is free of two flavors is not the same resource": {
			tree: func() *Tree {
				return cluster(clusterQ("cq", group(of("h100", "nvidia.com/gpu", "16", "cpu", "64"), of("a100", "nvidia.com/gpu", "8", "cpu", "64"))), flavorOf("h100", nil), flavorOf("a100", nil))
			},
			used:    Usage{{"h100", nvidiaGPU}: 12, {"a100", "cpu"}: 62000},
			request: job(pods("node", 2, "nvidia.com/gpu", "4", "cpu", "2")),
			want: reason.Reason{Class: reason.WaitingForQuota,
				Message: "needs 8 GPUs in queue team-nlp, 4 of 16 free in flavor h100, 4 cpu needed, 2 of 64 free in flavor a100"},
		},
		"of several pod sets the first is told that fits no flavor": {
			tree:    twoFlavors,
			used:    Usage{{"h100", nvidiaGPU}: 16, {"a100", nvidiaGPU}: 8},
			request: job(pods("master", 1, "nvidia.com/gpu", "8"), pods("worker", 2, "nvidia.com/gpu", "4")),
			want: reason.Reason{Class: reason.WaitingForQuota,
				Message: "pod set master needs 8 GPUs in queue team-nlp, 0 of 16 free in flavor h100, 0 of 8 free in flavor a100"},
		},
		"what the pod sets before it take is not what a pod set needs": {
			tree:    twoFlavors,
			used:    Usage{{"a100", nvidiaGPU}: 4},
			request: job(pods("master", 1, "nvidia.com/gpu", "8"), pods("worker", 3, "nvidia.com/gpu", "4")),
			want: reason.Reason{Class: reason.ExceedsMaxQuota,
				Message: "pod set worker needs 12 GPUs in queue team-nlp, the quota is 16 in flavor h100, where other pod sets of it need 8, the quota is 8 in flavor a100"},
		},
		"nor what is free to it": {
			tree:    twoFlavors,
			used:    Usage{{"h100", nvidiaGPU}: 4, {"a100", nvidiaGPU}: 4},
			request: job(pods("master", 1, "nvidia.com/gpu", "8"), pods("worker", 2, "nvidia.com/gpu", "4")),
			want: reason.Reason{Class: reason.WaitingForQuota,
				Message: "pod set worker needs 8 GPUs in queue team-nlp, 12 of 16 free in flavor h100, where other pod sets of it need 8, 4 of 8 free in flavor a100"},
		},
		"no flavor is left": {
			tree:    twoFlavors,
			request: job(pods("node", 2, "nvidia.com/gpu", "4").without("h100", "a100")),
			want: reason.Reason{Class: reason.NoMatchingFlavor,
				Message: "pod set node: flavor h100 is ruled out for it; flavor a100 is ruled out for it"},
		},
		"the flavor that is left is in use": {
			tree:    twoFlavors,
			used:    Usage{{"a100", nvidiaGPU}: 8},
			request: job(pods("node", 2, "nvidia.com/gpu", "4").without("h100")),
			want: reason.Reason{Class: reason.WaitingForQuota,
				Message: "needs 8 GPUs in queue team-nlp, 0 of 8 free in flavor a100"},
		},
		"a flavor that the pods may not use is not told of": {
			tree: twoFlavors,
			used: Usage{{"a100", nvidiaGPU}: 8},
			request: job(pods("node", 2, "nvidia.com/gpu", "4").as(corev1.PodSpec{
				NodeSelector: map[string]string{"nvidiaGPU": "a100"},
			})),
			want: reason.Reason{Class: reason.WaitingForQuota, Message: "needs 8 GPUs in queue team-nlp, 0 of 8 free in flavor a100"},
		},
		"the pods may use no flavor": {
			tree: twoFlavors,
			request: job(pods("node", 2, "nvidia.com/gpu", "4").as(corev1.PodSpec{
				NodeSelector: map[string]string{"nvidiaGPU": "b200"},
			})),
			want: reason.Reason{Class: reason.NoMatchingFlavor,
				Message: "pod set node: node selector or affinity does not match flavor h100; node selector or affinity does not match flavor a100"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.request.Queue == (types.NamespacedName{}) {
				tc.request.Queue = teamNLP
			}
			tree := tc.tree()
			tree.Charge("earlier", "cq", tc.used, Holder{})
			got, no := tree.Assign(tc.request)
			if no == nil {
				t.Fatalf("assigned: %+v", got)
			}
			if diff := cmp.Diff(&tc.want, no); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
		})
	}
}

func TestASentenceNamesOnlyAFewFlavors(t *testing.T) {
	tree := cluster(clusterQ("cq", group(
		of("f1", "nvidia.com/gpu", "1"), of("f2", "nvidia.com/gpu", "1"), of("f3", "nvidia.com/gpu", "1"),
		of("f4", "nvidia.com/gpu", "1"), of("f5", "nvidia.com/gpu", "1"))),
		flavorOf("f1", nil), flavorOf("f2", nil), flavorOf("f3", nil), flavorOf("f4", nil), flavorOf("f5", nil))
	_, no := tree.Assign(job(pods("node", 1, "nvidia.com/gpu", "8")))
	want := "needs 8 GPUs in queue team-nlp, the quota is 1 in flavor f1, the quota is 1 in flavor f2, " +
		"the quota is 1 in flavor f3, and 2 more flavors"
	if diff := cmp.Diff(want, no.String()); diff != "" {
		t.Errorf("reason (-want +got):\n%s", diff)
	}
}

func BenchmarkAssign(b *testing.B) {
	tree := cluster(clusterQ("cq",
		group(of("h100", "nvidia.com/gpu", "1024", "cpu", "8k", "memory", "64Ti"),
			of("a100", "nvidia.com/gpu", "1024", "cpu", "8k", "memory", "64Ti"))),
		flavorOf("h100", map[string]string{"nvidiaGPU": "h100"}, corev1.Taint{Key: "nvidiaGPU", Effect: corev1.TaintEffectNoSchedule}),
		flavorOf("a100", map[string]string{"nvidiaGPU": "a100"}))
	spec := corev1.PodSpec{NodeSelector: map[string]string{"nvidiaGPU": "a100"}}
	request := job(
		pods("launcher", 1, "cpu", "1", "memory", "1Gi").as(spec),
		pods("node", 64, "nvidia.com/gpu", "8", "cpu", "32", "memory", "256Gi").as(spec))
	for name, used := range map[string]Usage{"fits": nil, "waits": {{"a100", nvidiaGPU}: 1000}} {
		b.Run(name, func(b *testing.B) {
			tree.Charge("earlier", "cq", used, Holder{})
			b.ReportAllocs()
			for b.Loop() {
				tree.Assign(request)
			}
		})
	}
}

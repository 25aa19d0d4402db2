package quota

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestStatusOfAClusterQueue(t *testing.T) {
	hold, now := kueue.Hold, metav1.Now()
	tests := map[string]struct {
		change func(*kueue.ClusterQueue)
		want   metav1.Condition
	}{
		"ready": {
			change: func(*kueue.ClusterQueue) {},
			want:   metav1.Condition{Type: "Active", Status: "True", Reason: "Ready", Message: "Can admit new workloads"},
		},
		"stopped": {
			change: func(cq *kueue.ClusterQueue) { cq.Spec.StopPolicy = &hold },
			want: metav1.Condition{Type: "Active", Status: "False", Reason: "Stopped",
				Message: "Can't admit new workloads: it is stopped (Hold)"},
		},
		"being deleted": {
			change: func(cq *kueue.ClusterQueue) { cq.DeletionTimestamp = &now },
			want: metav1.Condition{Type: "Active", Status: "False", Reason: "Terminating",
				Message: "Can't admit new workloads: it is being deleted"},
		},
		"a flavor and a check are missing": {
			change: func(cq *kueue.ClusterQueue) {
				cq.Spec.ResourceGroups = []kueue.ResourceGroup{group(of("h100", "cpu", "1"), of("b200", "cpu", "1"))}
				cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{
					AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "budget"}},
				}
			},
			want: metav1.Condition{Type: "Active", Status: "False", Reason: "FlavorNotFound",
				Message: "Can't admit new workloads: ResourceFlavor b200 does not exist, AdmissionCheck budget is not run by Muster"},
		},
		"a check that applies to no flavor is still a check": {
			change: func(cq *kueue.ClusterQueue) {
				cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{
					AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "budget", OnFlavors: []kueue.ResourceFlavorReference{"x"}}},
				}
			},
			want: metav1.Condition{Type: "Active", Status: "False", Reason: "AdmissionCheckNotFound",
				Message: "Can't admit new workloads: AdmissionCheck budget is not run by Muster"},
		},
		"a quantity is negative": {
			change: func(cq *kueue.ClusterQueue) {
				cq.Spec.ResourceGroups = []kueue.ResourceGroup{group(of("h100", "cpu", "-4"))}
			},
			want: metav1.Condition{Type: "Active", Status: "False", Reason: "Unknown",
				Message: "Can't admit new workloads: nominalQuota of cpu in flavor h100 is negative (-4)"},
		},
		"a flavor has quotas of other resources": {
			change: func(cq *kueue.ClusterQueue) {
				g := group(of("h100", "cpu", "1"))
				g.CoveredResources = []corev1.ResourceName{"example.com/unicorn"}
				cq.Spec.ResourceGroups = []kueue.ResourceGroup{g}
			},
			want: metav1.Condition{Type: "Active", Status: "False", Reason: "Unknown",
				Message: "Can't admit new workloads: flavor h100 has quotas of [cpu], while coveredResources are [example.com/unicorn]"},
		},
		"a resource is covered twice": {
			change: func(cq *kueue.ClusterQueue) {
				cq.Spec.ResourceGroups = append(cq.Spec.ResourceGroups, group(of("h100", "cpu", "1")))
			},
			want: metav1.Condition{Type: "Active", Status: "False", Reason: "Unknown",
				Message: "Can't admit new workloads: cpu is in coveredResources twice"},
		},
		"what has no effect is told": {
			change: func(cq *kueue.ClusterQueue) {
				g := group(of("h100", "cpu", "1", "memory", "1"))
				g.CoveredResources = []corev1.ResourceName{"memory", "cpu"}
				limit := resource.MustParse("2")
				g.Flavors[0].Resources[0].LendingLimit, g.Flavors[0].Resources[0].BorrowingLimit = &limit, &limit
				cq.Spec.ResourceGroups = []kueue.ResourceGroup{g}
			},
			want: metav1.Condition{Type: "Active", Status: "True", Reason: "Ready",
				Message: "Can admit new workloads; flavor h100 lists its resources in another order than coveredResources; " +
					"borrowingLimit of cpu in flavor h100 has no effect, because it is in no cohort; " +
					"lendingLimit of cpu in flavor h100 has no effect, because it is in no cohort"},
		},
		"more can be lent than there is": {
			change: func(cq *kueue.ClusterQueue) {
				limit := resource.MustParse("2")
				cq.Spec.CohortName = "research"
				cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].LendingLimit = &limit
				weight := resource.MustParse("-1")
				cq.Spec.FairSharing = &kueue.FairSharing{Weight: &weight}
			},
			want: metav1.Condition{Type: "Active", Status: "True", Reason: "Ready",
				Message: "Can admit new workloads; lendingLimit of cpu in flavor h100 (2) is more than its nominalQuota (1); " +
					"fairSharing.weight is negative (-1), and counts as 0"},
		},
		"many quantities are negative": {
			change: func(cq *kueue.ClusterQueue) {
				cq.Spec.ResourceGroups = []kueue.ResourceGroup{group(of("h100", "a", "-1", "b", "-1", "c", "-1", "d", "-1", "e", "-1", "f", "-1"))}
			},
			want: metav1.Condition{Type: "Active", Status: "False", Reason: "Unknown",
				Message: "Can't admit new workloads: nominalQuota of a in flavor h100 is negative (-1); nominalQuota of b in flavor h100 is negative (-1); " +
					"nominalQuota of c in flavor h100 is negative (-1); nominalQuota of d in flavor h100 is negative (-1); " +
					"nominalQuota of e in flavor h100 is negative (-1); and 1 more"},
		},
		"the selector is invalid": {
			change: func(cq *kueue.ClusterQueue) {
				cq.Spec.NamespaceSelector = &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Like"}},
				}
			},
			want: metav1.Condition{Type: "Active", Status: "False", Reason: "Unknown",
				Message: `Can't admit new workloads: its namespaceSelector is invalid: "Like" is not a valid label selector operator`},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cq := clusterQ("cq", group(of("h100", "cpu", "1")))
			tc.change(cq)
			tree := cluster(cq, flavorOf("h100", nil))
			got, ok := tree.Status("cq")
			if !ok {
				t.Fatal("the ClusterQueue is unknown")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("condition (-want +got):\n%s", diff)
			}
		})
	}
	if _, ok := New().Status("cq"); ok {
		t.Error("an unknown ClusterQueue has a status")
	}
}

func TestStatusOfALocalQueue(t *testing.T) {
	hold := kueue.Hold
	tests := map[string]struct {
		change func(*Tree)
		want   metav1.Condition
	}{
		"ready": {
			change: func(*Tree) {},
			want: metav1.Condition{Type: "Active", Status: "True", Reason: "Ready",
				Message: "Can submit new workloads to ClusterQueue cq"},
		},
		"stopped": {
			change: func(t *Tree) {
				lq := localQ(teamNLP, "cq")
				lq.Spec.StopPolicy = &hold
				t.SetLocalQueue(lq)
			},
			want: metav1.Condition{Type: "Active", Status: "False", Reason: "Stopped", Message: "LocalQueue is stopped (Hold)"},
		},
		"its ClusterQueue is gone": {
			change: func(t *Tree) { t.DeleteClusterQueue("cq") },
			want: metav1.Condition{Type: "Active", Status: "False", Reason: "ClusterQueueDoesNotExist",
				Message: "ClusterQueue cq does not exist"},
		},
		"its ClusterQueue is inactive": {
			change: func(t *Tree) { t.DeleteFlavor("h100") },
			want: metav1.Condition{Type: "Active", Status: "False", Reason: "ClusterQueueIsInactive",
				Message: "ClusterQueue cq is not active: ResourceFlavor h100 does not exist"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tree := cluster(clusterQ("cq", group(of("h100", "cpu", "1"))), flavorOf("h100", nil))
			tc.change(tree)
			got, ok := tree.LocalQueueStatus(teamNLP)
			if !ok {
				t.Fatal("the LocalQueue is unknown")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("condition (-want +got):\n%s", diff)
			}
		})
	}
	if _, ok := New().LocalQueueStatus(teamNLP); ok {
		t.Error("an unknown LocalQueue has a status")
	}
}

func TestFlavorTellsWhatToInject(t *testing.T) {
	tolerate := []corev1.Toleration{{Key: "nvidiaGPU", Operator: corev1.TolerationOpExists}}
	obj := flavorOf("h100", map[string]string{"nvidiaGPU": "h100"})
	obj.Spec.Tolerations = tolerate
	tree := New()
	tree.SetFlavor(obj)
	obj.Spec.NodeLabels["nvidiaGPU"] = "changed by its owner"

	labels, tolerations, ok := tree.Flavor("h100")
	if !ok {
		t.Fatal("the flavor is unknown")
	}
	if diff := cmp.Diff(map[string]string{"nvidiaGPU": "h100"}, labels); diff != "" {
		t.Errorf("node labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(tolerate, tolerations); diff != "" {
		t.Errorf("tolerations (-want +got):\n%s", diff)
	}
	if _, _, ok := tree.Flavor("b200"); ok {
		t.Error("an unknown flavor exists")
	}
}

func TestClusterQueueOfALocalQueue(t *testing.T) {
	tree := New()
	tree.SetLocalQueue(localQ(teamNLP, "cq"))
	if cq, ok := tree.ClusterQueueOf(teamNLP); cq != "cq" || !ok {
		t.Errorf("got %q, %v; want cq, true", cq, ok)
	}
	tree.DeleteLocalQueue(teamNLP)
	if cq, ok := tree.ClusterQueueOf(teamNLP); ok {
		t.Errorf("a deleted LocalQueue leads to %q", cq)
	}
}

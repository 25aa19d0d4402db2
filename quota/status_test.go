package quota

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
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

package inventory

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/policy"
)

func clusterQueue(name, cohort string, gpus int64) *kueue.ClusterQueue {
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	q.Spec.CohortName = kueue.CohortReference(cohort)
	q.Spec.NamespaceSelector = &metav1.LabelSelector{}
	q.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"cpu", "nvidia.com/gpu"},
		Flavors: []kueue.FlavorQuotas{{Name: "h100", Resources: []kueue.ResourceQuota{
			{Name: "cpu", NominalQuota: resource.MustParse("1000")},
			{Name: "nvidia.com/gpu", NominalQuota: *resource.NewQuantity(gpus, resource.DecimalSI)},
		}}},
	}}
	return q
}

func localQueue(namespace, name, of string, used ...int64) *kueue.LocalQueue {
	q := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	q.Spec.ClusterQueue = kueue.ClusterQueueReference(of)
	for _, n := range used {
		q.Status.FlavorsUsage = append(q.Status.FlavorsUsage, kueue.LocalQueueFlavorUsage{Name: "h100", Resources: []kueue.LocalQueueResourceUsage{
			{Name: "cpu", Total: resource.MustParse("96")}, {Name: "nvidia.com/gpu", Total: *resource.NewQuantity(n, resource.DecimalSI)},
		}})
	}
	return q
}

func TestAnInventoryCountsTheGPUsOfQueues(t *testing.T) {
	reclaims := clusterQueue("reclaims", "team", 24)
	reclaims.Spec.Preemption = &kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny}
	got := Build(Objects{
		Namespaces:    map[string]labels.Set{"nlp": {"team": "nlp"}, "bare": nil},
		ClusterQueues: []*kueue.ClusterQueue{clusterQueue("alone", "", 8), clusterQueue("lends", "team", 8), reclaims},
		LocalQueues: []*kueue.LocalQueue{
			localQueue("nlp", "default", "lends", 4, 2), localQueue("nlp", "small", "alone"), localQueue("vision", "default", "missing"),
		},
		Defaults: []*v1alpha1.RuntimeDefaults{{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Generation: 3}}},
	}, time.Time{})
	want := policy.Inventory{
		Namespaces: map[string]policy.Namespace{"nlp": {Labels: labels.Set{"team": "nlp"}}, "bare": {Labels: labels.Set{}}},
		Queues: map[string]map[string]policy.Queue{
			"nlp": {
				"default": {ClusterQueue: "lends", Reach: 32, Used: 6, Preemptible: true},
				"small":   {ClusterQueue: "alone", Reach: 8},
			},
		},
		RuntimeDefaults: map[string]policy.Defaults{"gpu": {Generation: 3}},
		GPUNodes:        map[string]policy.GPUNode{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}
}

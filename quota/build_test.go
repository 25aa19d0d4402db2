package quota

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const nvidiaGPU = corev1.ResourceName("nvidia.com/gpu")

var teamNLP = types.NamespacedName{Namespace: "nlp", Name: "team-nlp"}

// cluster is a Tree with the LocalQueue nlp/team-nlp on the given ClusterQueue
// and the given flavors.
func cluster(cq *kueue.ClusterQueue, flavors ...*kueue.ResourceFlavor) *Tree {
	t := New()
	t.SetClusterQueue(cq)
	t.SetLocalQueue(localQ(teamNLP, cq.Name))
	for _, f := range flavors {
		t.SetFlavor(f)
	}
	return t
}

func localQ(name types.NamespacedName, cq string) *kueue.LocalQueue {
	return &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(cq)},
	}
}

// clusterQ selects every namespace.
func clusterQ(name string, groups ...kueue.ResourceGroup) *kueue.ClusterQueue {
	return &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups:    groups,
		},
	}
}

func group(flavors ...kueue.FlavorQuotas) kueue.ResourceGroup {
	g := kueue.ResourceGroup{Flavors: flavors}
	for _, r := range flavors[0].Resources {
		g.CoveredResources = append(g.CoveredResources, r.Name)
	}
	return g
}

// of lists the quota of a flavor as pairs: resource name, quantity.
func of(flavor string, pairs ...string) kueue.FlavorQuotas {
	fq := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(flavor)}
	for i := 0; i < len(pairs); i += 2 {
		fq.Resources = append(fq.Resources, kueue.ResourceQuota{
			Name:         corev1.ResourceName(pairs[i]),
			NominalQuota: resource.MustParse(pairs[i+1]),
		})
	}
	return fq
}

func flavorOf(name string, nodeLabels map[string]string, taints ...corev1.Taint) *kueue.ResourceFlavor {
	return &kueue.ResourceFlavor{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       kueue.ResourceFlavorSpec{NodeLabels: nodeLabels, NodeTaints: taints},
	}
}

// job asks for pod sets in the queue nlp/team-nlp.
func job(sets ...PodSet) Request { return Request{Queue: teamNLP, PodSets: sets} }

// pods is a pod set; the pairs are what each pod requests.
func pods(name string, count int32, pairs ...string) PodSet {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return PodSet{Name: name, Count: count, PerPod: RequestsOf(list)}
}

func (ps PodSet) as(spec corev1.PodSpec) PodSet {
	ps.Template = &spec
	return ps
}

func (ps PodSet) without(flavors ...string) PodSet {
	ps.Without = flavors
	return ps
}

func (ps PodSet) in(flavors map[corev1.ResourceName]string) PodSet {
	ps.Flavors = flavors
	return ps
}

// h100GPUs is the cell that most tests of cohorts are about.
var h100GPUs = FlavorResource{"h100", nvidiaGPU}

// world is a Tree with the given objects, the flavors h100 and a100, and for
// every ClusterQueue a LocalQueue of the same name in namespace nlp.
func world(objects ...any) *Tree {
	t := New()
	t.SetFlavor(flavorOf("h100", nil))
	t.SetFlavor(flavorOf("a100", nil))
	for _, o := range objects {
		switch o := o.(type) {
		case *kueue.ClusterQueue:
			t.SetClusterQueue(o)
			t.SetLocalQueue(localQ(types.NamespacedName{Namespace: "nlp", Name: o.Name}, o.Name))
		case *kueue.Cohort:
			t.SetCohort(o)
		case *kueue.ResourceFlavor:
			t.SetFlavor(o)
		}
	}
	return t
}

// queueIn is a ClusterQueue in a cohort ("" for none) whose flavors are of one
// resource group.
func queueIn(cohort, name string, flavors ...kueue.FlavorQuotas) *kueue.ClusterQueue {
	cq := clusterQ(name, group(flavors...))
	cq.Spec.CohortName = kueue.CohortReference(cohort)
	return cq
}

func cohortIn(parent, name string, flavors ...kueue.FlavorQuotas) *kueue.Cohort {
	c := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.CohortSpec{ParentName: kueue.CohortReference(parent)}}
	if len(flavors) > 0 {
		c.Spec.ResourceGroups = []kueue.ResourceGroup{group(flavors...)}
	}
	return c
}

// gpus is the quota of whole GPUs in flavor h100, with the limits given.
func gpus(nominal int64, limits ...func(*kueue.ResourceQuota)) kueue.FlavorQuotas {
	return gpusOf("h100", nominal, limits...)
}

func gpusOf(flavor string, nominal int64, limits ...func(*kueue.ResourceQuota)) kueue.FlavorQuotas {
	q := kueue.ResourceQuota{Name: nvidiaGPU, NominalQuota: *resource.NewQuantity(nominal, resource.DecimalSI)}
	for _, set := range limits {
		set(&q)
	}
	return kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(flavor), Resources: []kueue.ResourceQuota{q}}
}

func borrow(limit int64) func(*kueue.ResourceQuota) {
	return func(q *kueue.ResourceQuota) { q.BorrowingLimit = resource.NewQuantity(limit, resource.DecimalSI) }
}

func lend(limit int64) func(*kueue.ResourceQuota) {
	return func(q *kueue.ResourceQuota) { q.LendingLimit = resource.NewQuantity(limit, resource.DecimalSI) }
}

// preempting sets the policies of a ClusterQueue.
func preempting(cq *kueue.ClusterQueue, within, reclaim kueue.PreemptionPolicy) *kueue.ClusterQueue {
	cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: within, ReclaimWithinCohort: reclaim}
	return cq
}

// borrowing adds borrowWithinCohort to the policies of a ClusterQueue.
func borrowing(cq *kueue.ClusterQueue, threshold *int32) *kueue.ClusterQueue {
	cq.Spec.Preemption.BorrowWithinCohort = &kueue.BorrowWithinCohort{
		Policy: kueue.BorrowWithinCohortPolicyLowerPriority, MaxPriorityThreshold: threshold,
	}
	return cq
}

// ask is one pod that wants n GPUs of a ClusterQueue of a world.
func ask(cq string, n int64, priority int32) Request {
	return Request{
		Queue:    types.NamespacedName{Namespace: "nlp", Name: cq},
		ID:       "asks",
		Priority: priority,
		Created:  time.Unix(1_000, 0),
		PodSets:  []PodSet{{Name: "node", Count: 1, PerPod: Requests{nvidiaGPU: n}}},
	}
}

package quota

import (
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

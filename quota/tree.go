package quota

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Tree is the quota of a cluster: its queues, its flavors and what the
// admitted jobs take. It keeps values, never the objects it was given.
type Tree struct {
	clusterQueues map[string]*clusterQueue
	localQueues   map[types.NamespacedName]localQueue
	flavors       map[string]*flavor
	charges       map[types.UID]charge
	// used is the sum of charges by ClusterQueue. It outlives the ClusterQueue
	// object, so that one that is deleted and created again still knows its jobs.
	used map[string]Usage
}

// clusterQueue is what the decisions need of a ClusterQueue.
type clusterQueue struct {
	name string
	// selector is nil where the object's selector cannot be parsed;
	// selectorErr says why.
	selector    labels.Selector
	selectorErr error
	stopPolicy  kueue.StopPolicy
	terminating bool
	checks      []string
	groups      []resourceGroup
	// groupOf says which of groups covers a resource.
	groupOf map[corev1.ResourceName]int
}

// resourceGroup is a set of resources that a pod set takes from one flavor.
type resourceGroup struct {
	flavors []flavorQuotas
}

type flavorQuotas struct {
	name   string
	quotas map[corev1.ResourceName]cellQuota
}

// cellQuota is the quota of one flavor and resource. Limits on borrowing and
// lending will stand beside nominal.
type cellQuota struct {
	nominal int64
}

type localQueue struct {
	clusterQueue string
	stopPolicy   kueue.StopPolicy
}

type flavor struct {
	name       string
	nodeLabels map[string]string
	taints     []corev1.Taint
	tolerate   []corev1.Toleration
}

// New returns a Tree with nothing in it.
func New() *Tree {
	return &Tree{
		clusterQueues: map[string]*clusterQueue{},
		localQueues:   map[types.NamespacedName]localQueue{},
		flavors:       map[string]*flavor{},
		charges:       map[types.UID]charge{},
		used:          map[string]Usage{},
	}
}

// SetClusterQueue adds a ClusterQueue or replaces its specification; charges
// stay. An object that is being deleted is kept, and admits nothing.
func (t *Tree) SetClusterQueue(obj *kueue.ClusterQueue) {
	c := &clusterQueue{
		name:        obj.Name,
		stopPolicy:  stopPolicyOf(obj.Spec.StopPolicy),
		terminating: obj.DeletionTimestamp != nil,
		groupOf:     map[corev1.ResourceName]int{},
	}
	// A null selector selects nothing, as metav1 has it.
	c.selector, c.selectorErr = metav1.LabelSelectorAsSelector(obj.Spec.NamespaceSelector)
	if s := obj.Spec.AdmissionChecksStrategy; s != nil {
		for _, check := range s.AdmissionChecks {
			c.checks = append(c.checks, string(check.Name))
		}
	}
	for i, group := range obj.Spec.ResourceGroups {
		g := resourceGroup{flavors: make([]flavorQuotas, 0, len(group.Flavors))}
		for _, name := range group.CoveredResources {
			if _, twice := c.groupOf[name]; !twice {
				c.groupOf[name] = i
			}
		}
		for _, f := range group.Flavors {
			fq := flavorQuotas{name: string(f.Name), quotas: make(map[corev1.ResourceName]cellQuota, len(f.Resources))}
			for _, r := range f.Resources {
				fq.quotas[r.Name] = cellQuota{nominal: max(0, valueOf(r.Name, r.NominalQuota))}
			}
			g.flavors = append(g.flavors, fq)
		}
		c.groups = append(c.groups, g)
	}
	t.clusterQueues[obj.Name] = c
}

// DeleteClusterQueue forgets a ClusterQueue. The charges in it stay until they
// are released, and count again if it comes back.
func (t *Tree) DeleteClusterQueue(name string) { delete(t.clusterQueues, name) }

// SetLocalQueue adds or replaces a LocalQueue.
func (t *Tree) SetLocalQueue(obj *kueue.LocalQueue) {
	t.localQueues[types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}] = localQueue{
		clusterQueue: string(obj.Spec.ClusterQueue),
		stopPolicy:   stopPolicyOf(obj.Spec.StopPolicy),
	}
}

// DeleteLocalQueue forgets a LocalQueue; the jobs admitted through it keep
// their charge.
func (t *Tree) DeleteLocalQueue(name types.NamespacedName) { delete(t.localQueues, name) }

// SetFlavor adds or replaces a ResourceFlavor.
func (t *Tree) SetFlavor(obj *kueue.ResourceFlavor) {
	spec := obj.Spec.DeepCopy()
	t.flavors[obj.Name] = &flavor{
		name:       obj.Name,
		nodeLabels: spec.NodeLabels,
		taints:     spec.NodeTaints,
		tolerate:   spec.Tolerations,
	}
}

// DeleteFlavor forgets a ResourceFlavor. ClusterQueues that list it become
// inactive; what was charged in it stays charged.
func (t *Tree) DeleteFlavor(name string) { delete(t.flavors, name) }

// ClusterQueueOf returns the name of the ClusterQueue behind a LocalQueue, and
// whether the LocalQueue exists.
func (t *Tree) ClusterQueueOf(lq types.NamespacedName) (string, bool) {
	q, ok := t.localQueues[lq]
	return q.clusterQueue, ok
}

// Flavor returns what a resume injects into the pods of a flavor, and whether
// the flavor exists. The results are the Tree's own: read them only.
func (t *Tree) Flavor(name string) (nodeLabels map[string]string, tolerations []corev1.Toleration, ok bool) {
	f, ok := t.flavors[name]
	if !ok {
		return nil, nil, false
	}
	return f.nodeLabels, f.tolerate, true
}

func stopPolicyOf(p *kueue.StopPolicy) kueue.StopPolicy {
	if p == nil || *p == "" {
		return kueue.None
	}
	return *p
}

// HasChoice says whether a ClusterQueue lists more than one flavor for a
// resource: then more as well as less use of it can change the flavors that
// Assign finds for a job.
func (t *Tree) HasChoice(cq string) bool {
	c := t.clusterQueues[cq]
	return c != nil && slices.ContainsFunc(c.groups, func(g resourceGroup) bool { return len(g.flavors) > 1 })
}

// ClusterQueues are the names of the ClusterQueues that exist.
func (t *Tree) ClusterQueues() []string { return slices.Sorted(maps.Keys(t.clusterQueues)) }

// LocalQueues are the names of the LocalQueues that exist, in no order.
func (t *Tree) LocalQueues() []types.NamespacedName {
	return slices.Collect(maps.Keys(t.localQueues))
}

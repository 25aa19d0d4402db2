package quota

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Tree is the quota of a cluster: its queues, its flavors and what the
// admitted jobs take. It keeps values, never the objects it was given.
type Tree struct {
	clusterQueues map[string]*clusterQueue
	cohorts       map[string]*node
	localQueues   map[types.NamespacedName]localQueue
	flavors       map[string]*flavor
	// topologies has the levels of each Topology, outermost first. defaultLevels are
	// those of flavors that name none, and preferredLevel is that of pods that ask
	// for none.
	topologies     map[string][]string
	defaultLevels  func(flavor string) []string
	preferredLevel func(flavor string) string

	charges, claims, withheld map[types.UID]*taking
	// kept is what keepers has found out.
	kept map[treeCell][]keeper

	// workshop is the oracles'.
	workshop workshop

	// fair are the strategies of fair sharing, none where it is off.
	fair []FairStrategy
	// changes counts what changes the shares of ClusterQueues and Cohorts.
	changes int64
}

// localQueue is what the decisions need of a LocalQueue.
type localQueue struct {
	clusterQueue string
	stopPolicy   kueue.StopPolicy
}

type flavor struct {
	name       string
	nodeLabels map[string]string
	taints     []corev1.Taint
	tolerate   []corev1.Toleration
	// topology is the name of its Topology, "" without one.
	topology string
}

// New returns a Tree with nothing in it.
func New() *Tree {
	return &Tree{
		clusterQueues: map[string]*clusterQueue{},
		cohorts:       map[string]*node{},
		localQueues:   map[types.NamespacedName]localQueue{},
		flavors:       map[string]*flavor{},
		charges:       map[types.UID]*taking{},
		claims:        map[types.UID]*taking{},
		withheld:      map[types.UID]*taking{},
		kept:          map[treeCell][]keeper{},
		topologies:    map[string][]string{},

		defaultLevels:  func(string) []string { return nil },
		preferredLevel: func(string) string { return "" },
	}
}

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
	f := &flavor{
		name:       obj.Name,
		nodeLabels: spec.NodeLabels,
		taints:     spec.NodeTaints,
		tolerate:   spec.Tolerations,
	}
	if spec.TopologyName != nil {
		f.topology = string(*spec.TopologyName)
	}
	t.flavors[obj.Name] = f
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

// LocalQueues are the names of the LocalQueues that exist, in no order.
func (t *Tree) LocalQueues() []types.NamespacedName {
	return slices.Collect(maps.Keys(t.localQueues))
}

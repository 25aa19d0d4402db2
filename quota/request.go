package quota

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/api/reason"
)

// Request is what one job asks of its queue.
type Request struct {
	// ID is the job's; what it has claimed and withholds itself is free to it.
	ID types.UID
	// Priority and Created, the place among those of its priority in the queue,
	// decide whom it may preempt.
	Priority int32
	Created  time.Time
	// Queue is the LocalQueue.
	Queue types.NamespacedName
	// NamespaceLabels are those of the job's namespace, for the ClusterQueue's
	// namespaceSelector.
	NamespaceLabels map[string]string
	PodSets         []PodSet
}

// PodSet is Count identical pods of a job.
type PodSet struct {
	Name  string
	Count int32
	// PerPod is what one pod requests, defaults and overhead included.
	PerPod Requests
	// Shared is what the pods request together, once, if there are any.
	Shared Requests
	// Template decides which flavors the pods may use, by its tolerations,
	// node selector and required node affinity; nil is a pod without any.
	Template *corev1.PodSpec
	// Levels are those of a topology that the flavors must have, because the pods
	// ask for domains of them.
	Levels []string
	// Flavors, if not nil, are the only ones that the pods may be given, by
	// resource: what they have or are promised, or what nodes were found for.
	Flavors map[corev1.ResourceName]string
	// Without are flavors that the pods are not to be given: no nodes were found
	// for them there.
	Without []string
}

// mayHave says that a flavor, of which something is asked, is not ruled out by
// the request itself.
func (ps *PodSet) mayHave(flavor string, asked []portion) bool {
	// All resources of a group have one flavor.
	return (ps.Flavors == nil || ps.Flavors[asked[0].resource] == flavor) && !slices.Contains(ps.Without, flavor)
}

// demand is what one pod set asks of the resource groups.
type demand struct {
	podSet PodSet
	// groups holds, for each resource group of the ClusterQueue, what the pod
	// set asks of it in the order of sortedResources; nil where it asks nothing.
	groups [][]portion
}

// portion is what all pods of a set together ask of one resource.
type portion struct {
	resource corev1.ResourceName
	value    int64
}

// demands splits the requests of each pod set over the resource groups. A
// resource that no group covers is refused, unless nothing is asked of it.
func demands(q *clusterQueue, r Request) ([]demand, *reason.Reason) {
	sets := make([]demand, 0, len(r.PodSets))
	for _, ps := range r.PodSets {
		if ps.Count < 0 {
			return nil, reason.New(reason.Misconfigured, "pod set %s has %d pods", ps.Name, ps.Count)
		}
		d := demand{podSet: ps, groups: make([][]portion, len(q.spec.groups))}
		pods, countsPods := q.spec.groupOf[corev1.ResourcePods]
		if countsPods {
			d.groups[pods] = []portion{{corev1.ResourcePods, int64(ps.Count)}}
		}
		var nowhere []corev1.ResourceName
		ask := func(name corev1.ResourceName, v int64) {
			g, covered := q.spec.groupOf[name]
			switch {
			case covered && name == corev1.ResourcePods:
			case covered:
				d.groups[g] = append(d.groups[g], portion{name, v})
			case v != 0:
				nowhere = append(nowhere, name)
			}
		}
		shared := ps.Shared
		if ps.Count == 0 {
			shared = nil
		}
		for name, v := range ps.PerPod {
			ask(name, saturatingAdd(saturatingMul(v, int64(ps.Count)), shared[name]))
		}
		for name, v := range shared {
			if _, also := ps.PerPod[name]; !also {
				ask(name, v)
			}
		}
		if len(nowhere) > 0 {
			return nil, reason.New(reason.NoMatchingFlavor, "ClusterQueue %s has no quota for %s%s",
				q.name, slices.MinFunc(nowhere, compareResources), q.covers())
		}
		for _, asks := range d.groups {
			slices.SortFunc(asks, func(a, b portion) int { return compareResources(a.resource, b.resource) })
		}
		sets = append(sets, d)
	}
	return sets, nil
}

// covers says which resources the ClusterQueue has quota for, as the end of a
// sentence.
func (q *clusterQueue) covers() string {
	if len(q.spec.groupOf) == 0 {
		return ""
	}
	var names []string
	for _, name := range slices.SortedFunc(maps.Keys(q.spec.groupOf), compareResources) {
		names = append(names, string(name))
	}
	return " (it covers " + strings.Join(names, ", ") + ")"
}

package quota

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

// Request is what one job asks of its queue.
type Request struct {
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
	// Template decides which flavors the pods may use, by its tolerations,
	// node selector and required node affinity; nil is a pod without any.
	Template *corev1.PodSpec
}

// Assignment is the flavors that a job would get, and what they would charge.
type Assignment struct {
	ClusterQueue string
	// Flavors names, for each pod set in the request's order, the flavor of
	// each resource.
	Flavors []map[corev1.ResourceName]string
	// PodSetUsage is what each pod set, all its pods together, takes of the
	// resources in Flavors, "pods" included where it is covered.
	PodSetUsage []Requests
	// Usage is the charge: the sum over the pod sets, by cell.
	Usage Usage
}

// Assign says whether the whole job fits its queue now, and in which flavors;
// it charges nothing. The Reason says why not, in one of the classes
// QueueNotFound, QueueInactive, NamespaceMismatch, Misconfigured,
// NoMatchingFlavor, ExceedsMaxQuota and WaitingForQuota. It is ExceedsMaxQuota
// only where the job would not fit the queue with no other job in it.
func (t *Tree) Assign(r Request) (*Assignment, *reason.Reason) {
	c, no := t.queueFor(r)
	if no != nil {
		return nil, no
	}
	sets, no := demands(c, r)
	if no != nil {
		return nil, no
	}
	a, now := t.fit(c, sets, t.used[c.name])
	if now == nil {
		return a, nil
	}
	// Waiting helps only a job that the empty queue would take.
	if _, ever := t.fit(c, sets, nil); ever != nil {
		if ever.short == nil {
			return nil, ever.ineligible()
		}
		return nil, ever.exceeds(r.Queue.Name)
	}
	return nil, now.waits(r.Queue.Name)
}

// queueFor finds the ClusterQueue that may admit the request, sizes aside.
func (t *Tree) queueFor(r Request) (*clusterQueue, *reason.Reason) {
	lq, ok := t.localQueues[r.Queue]
	if !ok {
		return nil, reason.New(reason.QueueNotFound, "LocalQueue %s does not exist", r.Queue)
	}
	c, ok := t.clusterQueues[lq.clusterQueue]
	if !ok {
		return nil, reason.New(reason.QueueNotFound, "ClusterQueue %s does not exist", lq.clusterQueue)
	}
	if lq.stopPolicy != kueue.None {
		return nil, reason.New(reason.QueueInactive, "LocalQueue %s is stopped (%s)", r.Queue, lq.stopPolicy)
	}
	if cond, why := t.inactive(c); cond != "" {
		return nil, reason.New(reason.QueueInactive, "ClusterQueue %s is not active: %s", c.name, why)
	}
	if !c.selector.Matches(labels.Set(r.NamespaceLabels)) {
		return nil, reason.New(reason.NamespaceMismatch,
			"namespace %s is not selected by ClusterQueue %s", r.Queue.Namespace, c.name)
	}
	return c, nil
}

// demand is what one pod set asks of the resource groups.
type demand struct {
	podSet PodSet
	// groups holds, for each resource group of the ClusterQueue, what the pod
	// set asks of it; nil where it asks nothing.
	groups []Requests
}

// demands splits the requests of each pod set over the resource groups. A
// resource that no group covers is refused, unless nothing is asked of it.
func demands(c *clusterQueue, r Request) ([]demand, *reason.Reason) {
	sets := make([]demand, 0, len(r.PodSets))
	for _, ps := range r.PodSets {
		if ps.Count < 0 {
			return nil, reason.New(reason.Misconfigured, "pod set %s has %d pods", ps.Name, ps.Count)
		}
		total := ps.PerPod.Times(ps.Count)
		if _, covered := c.groupOf[corev1.ResourcePods]; covered {
			total[corev1.ResourcePods] = int64(ps.Count)
		}
		d := demand{podSet: ps, groups: make([]Requests, len(c.groups))}
		for _, name := range sortedResources(maps.Keys(total)) {
			v := total[name]
			g, covered := c.groupOf[name]
			if !covered {
				if v == 0 {
					continue
				}
				return nil, reason.New(reason.NoMatchingFlavor,
					"resource %s unavailable in ClusterQueue %s", name, c.name)
			}
			if d.groups[g] == nil {
				d.groups[g] = Requests{}
			}
			d.groups[g][name] = v
		}
		sets = append(sets, d)
	}
	return sets, nil
}

// fit gives every pod set, in order, the first flavor of each group that still
// takes all it asks of the group, beside what is used and what the pod sets
// before it took. Which flavor is first is the admin's choice, so nothing is
// traded between pod sets.
func (t *Tree) fit(c *clusterQueue, sets []demand, used Usage) (*Assignment, *misfit) {
	a := &Assignment{
		ClusterQueue: c.name,
		Flavors:      make([]map[corev1.ResourceName]string, len(sets)),
		PodSetUsage:  make([]Requests, len(sets)),
		Usage:        Usage{},
	}
	for i, d := range sets {
		a.Flavors[i] = map[corev1.ResourceName]string{}
		a.PodSetUsage[i] = Requests{}
		for g, asked := range d.groups {
			if asked == nil {
				continue
			}
			name, miss := t.fitGroup(c, &d.podSet, g, asked, used, a.Usage)
			if miss != nil {
				if len(c.groups[g].flavors) == 1 {
					miss.countLaterSets(g, sets[i+1:])
				}
				return nil, miss
			}
			for res, v := range asked {
				a.Flavors[i][res] = name
				a.PodSetUsage[i][res] = v
				if v > 0 {
					cell := FlavorResource{name, res}
					a.Usage[cell] = saturatingAdd(a.Usage[cell], v)
				}
			}
		}
	}
	return a, nil
}

// fitGroup returns the first flavor of group g that a pod set may use and that
// has room for all it asks, or why each of them is out of question.
func (t *Tree) fitGroup(c *clusterQueue, ps *PodSet, g int, asked Requests, used, before Usage) (string, *misfit) {
	miss := &misfit{clusterQueue: c.name, podSet: ps.Name}
	for _, fq := range c.groups[g].flavors {
		if why := ineligible(ps.Template, t.flavors[fq.name]); why != "" {
			miss.refused = append(miss.refused, why)
			continue
		}
		short := shortages(fq, asked, used, before)
		if len(short) == 0 {
			return fq.name, nil
		}
		miss.short = append(miss.short, short)
	}
	miss.flavors = len(c.groups[g].flavors)
	return "", miss
}

// shortages lists the resources of which the flavor has too little, in the
// order of sortedResources.
func shortages(fq flavorQuotas, asked Requests, used, before Usage) []shortage {
	var short []shortage
	for name, v := range asked {
		cell := FlavorResource{fq.name, name}
		nominal := fq.quotas[name].nominal
		need := saturatingAdd(before[cell], v)
		// A queue in debt, its quota lowered under running jobs, has nothing
		// free, and still takes a pod set that asks for zero.
		free := max(0, nominal-used[cell])
		if need > free {
			short = append(short, shortage{cell: cell, need: need, free: free, nominal: nominal})
		}
	}
	sortShortages(short)
	return short
}

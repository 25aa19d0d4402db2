package quota

import "slices"

// MayPreempt says whether the policies of a ClusterQueue let its jobs ask any
// others to leave.
func (t *Tree) MayPreempt(cq string) bool {
	q := t.clusterQueues[cq]
	return q != nil && (!off(q.spec.preemption.within) || !off(q.spec.preemption.reclaim))
}

// PreemptsFirst says whether a job of a ClusterQueue rather has others leave than
// take a later flavor (flavorFungibility.whenCanPreempt).
func (t *Tree) PreemptsFirst(cq string) bool {
	q := t.clusterQueues[cq]
	return q != nil && !q.spec.fungibility.nextOverPreemption
}

// HasOthers says whether a ClusterQueue lists other flavors for the resources of
// this one.
func (t *Tree) HasOthers(cq, flavor string) bool {
	q := t.clusterQueues[cq]
	return q != nil && slices.ContainsFunc(q.spec.groups, func(g resourceGroup) bool {
		return len(g.flavors) > 1 && slices.Contains(g.flavors, flavor)
	})
}

// Preemptible says whether jobs of a ClusterQueue may be asked to leave for others: of
// it, or of any in its tree of Cohorts that takes back what it has lent.
func (t *Tree) Preemptible(cq string) bool {
	q := t.existing(cq)
	if q == nil {
		return false
	}
	if !off(q.spec.preemption.within) {
		return true
	}
	root := q.root()
	for _, other := range t.clusterQueues {
		if other != q && other.exists && other.root() == root && !off(other.spec.preemption.reclaim) {
			return true
		}
	}
	return false
}

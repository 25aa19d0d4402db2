package quota

// MayPreempt says whether the policies of a ClusterQueue let its jobs ask any
// others to leave.
func (t *Tree) MayPreempt(cq string) bool {
	q := t.clusterQueues[cq]
	return q != nil && (!off(q.spec.preemption.within) || !off(q.spec.preemption.reclaim))
}

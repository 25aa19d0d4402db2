package quota

import corev1 "k8s.io/api/core/v1"

// Reach is how much of each resource the jobs of a ClusterQueue can have together while
// nobody else has any: in all its flavors, with what it can borrow. It is empty for a
// ClusterQueue that does not exist.
func (t *Tree) Reach(cq string) map[corev1.ResourceName]int64 {
	sums := map[corev1.ResourceName]amount{}
	if q := t.existing(cq); q != nil {
		for fr, c := range q.cells {
			if c.listed {
				sums[fr.Resource] = sums[fr.Resource].plus(c.potential())
			}
		}
	}
	out := make(map[corev1.ResourceName]int64, len(sums))
	for name, sum := range sums {
		out[name] = sum.value()
	}
	return out
}

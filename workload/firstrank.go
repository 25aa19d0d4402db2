package workload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/workload/identity"
)

// FirstRank is that of a pod set of so many pods, of which some may be missing: 0 if
// those that there are cannot be numbered one after the other. nodes are those of the
// set's slots, nil if they are not known. Where the missing ones may be the first or the
// last, most pods are on the nodes of their slots, or numbers begin as low as can be.
func FirstRank(pods []*corev1.Pod, count int32, nodes []string) int32 {
	if len(pods) == 0 {
		return 0
	}
	var ranks []int32
	for _, pod := range pods {
		ranks = append(ranks, identity.RankOf(pod))
	}
	slices.Sort(ranks)
	low, last := ranks[0], ranks[len(ranks)-1]
	if low == 0 || last-low >= count || len(slices.Compact(ranks)) < len(pods) {
		return 0
	}
	best, most := int32(0), -1
	for first := max(1, last-count+1); first <= low; first++ {
		there := 0
		for _, pod := range pods {
			if i := int(identity.RankOf(pod) - first); i < len(nodes) && nodes[i] == pod.Spec.NodeName {
				there++
			}
		}
		if there > most {
			best, most = first, there
		}
	}
	return best
}

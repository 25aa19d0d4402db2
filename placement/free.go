package placement

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-gpu/muster/placement/fragmentation"
)

// Free is how many GPUs of the nodes are free, and how many of them the pods that are
// asked for lately are expected not to be able to use; see fragmentation.Mix. Nodes that
// take no pods now, as those that are not ready, do not count, nor do GPUs that pods claim as devices.
func (m *Mix) Free(nodes []fwk.NodeInfo) (free int64, fragmented float64) {
	mixture, all := m.now(), demand{}
	for _, node := range nodes {
		if takesNoPods(node.Node()) {
			continue
		}
		gpus := all.freeGPUs(node, m.isGPU)
		if gpus <= 0 {
			continue
		}
		free += gpus
		fragmented += mixture.Fragment(remainderOn(node, mixture.of(node)).free(gpus))
	}
	return free, fragmented / fragmentation.Whole
}

package scheduling

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// nodeSizes is how many GPUs each node has, free or not.
type nodeSizes struct {
	gpus map[string]int64
	// largest is the most of them; stale says that it is to be worked out again.
	largest int64
	stale   bool
}

func (n *nodeSizes) set(node *corev1.Node) {
	gpus := workload.GPUs(node.Status.Allocatable)
	if have, known := n.gpus[node.Name]; known && have == gpus {
		return
	}
	n.gpus[node.Name], n.stale = gpus, true
}

func (n *nodeSizes) remove(name string) {
	delete(n.gpus, name)
	n.stale = true
}

// most is the number of GPUs of the largest node.
func (n *nodeSizes) most() int64 {
	if n.stale {
		n.largest, n.stale = 0, false
		for _, gpus := range n.gpus {
			n.largest = max(n.largest, gpus)
		}
	}
	return n.largest
}

// sized takes in how many GPUs a node has.
func (l *Ledger) sized(node *corev1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes.set(node)
}

// lastingly is the reason of a job that waits for quota and has a pod that is
// larger than any node: quota would not help it. Otherwise it is nil.
func (l *Ledger) lastingly(e *entry) *reason.Reason {
	if len(l.nodes.gpus) == 0 {
		return nil
	}
	for i := range e.job.PodSets {
		ps := &e.job.PodSets[i]
		if n := ps.AdvertisedGPUs(l.isDevice); ps.Count > 0 && n > l.nodes.most() {
			return reason.New(reason.ExceedsCluster, "needs %s on one node; the largest node has %d", amount(n, 1), l.nodes.most())
		}
	}
	return nil
}

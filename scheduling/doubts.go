package scheduling

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	// noteGPUs is the event of a node of whose GPUs something is said that cannot be.
	noteGPUs = "GPUsInDoubt"
	// doubtsEvery is the shortest time between two looks at all nodes.
	doubtsEvery = 10 * time.Second
)

// tellDoubts tells nodes in what the sources of their GPUs cannot be believed, once for
// each thing. Pods are placed there nevertheless.
func (r *reporter) tellDoubts() error {
	now := r.clock.Now()
	if now.Sub(r.doubtsAt) < doubtsEvery {
		return nil
	}
	nodes, err := r.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	r.doubtsAt = now
	told := map[string]string{}
	for _, node := range nodes {
		doubt := r.doubtOf(node, now)
		if doubt == "" {
			continue
		}
		if told[node.Name] = doubt; r.doubts[node.Name] != doubt {
			r.recorder.Event(node, corev1.EventTypeWarning, noteGPUs, doubt)
		}
	}
	r.doubts = told
	return nil
}

// doubtOf is what cannot be believed of a node's GPUs, and for what it does not count;
// empty if there is nothing.
func (r *reporter) doubtOf(node *corev1.Node, now time.Time) string {
	if known, ok := r.gpus.Node(node); ok && known.Doubt != "" {
		return known.Doubt + "; that does not count where pods are placed"
	}
	return r.gpuNodes.get(node.Name).clockDoubt(now)
}

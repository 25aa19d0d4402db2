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
		known, ok := r.gpus.Node(node)
		if !ok || known.Doubt == "" {
			continue
		}
		if told[node.Name] = known.Doubt; r.doubts[node.Name] != known.Doubt {
			r.recorder.Event(node, corev1.EventTypeWarning, noteGPUs, known.Doubt+"; that does not count where pods are placed")
		}
	}
	r.doubts = told
	return nil
}

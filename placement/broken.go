package placement

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// broken words that nodes which may take pods of the class have GPUs that are not given
// out, because they are unhealthy: what a node has of them is its capacity then, and what
// pods can have is less.
func (s *classSearch) broken() string {
	if s.demand.gpus == 0 {
		return ""
	}
	screen := s.screen()
	var gpus int64
	nodes := 0
	for _, info := range s.nodes {
		node := info.Node()
		if node == nil || !screen.lets(node) {
			continue
		}
		if n := s.demand.brokenOn(node); n > 0 {
			gpus += n
			nodes++
		}
	}
	switch {
	case nodes == 0:
		return ""
	case gpus == 1:
		return "; 1 node has a GPU that is unhealthy"
	case nodes == 1:
		return fmt.Sprintf("; 1 node has %d GPUs that are unhealthy", gpus)
	default:
		return fmt.Sprintf("; %d nodes have GPUs that are unhealthy, %d in all", nodes, gpus)
	}
}

// brokenOn is how many GPUs of the demand's own names the node has and does not give out.
func (d *demand) brokenOn(node *v1.Node) (n int64) {
	for i := range d.scalars {
		if s := &d.scalars[i]; s.gpu {
			capacity, allocatable := node.Status.Capacity[s.name], node.Status.Allocatable[s.name]
			n += max(0, capacity.Value()-allocatable.Value())
		}
	}
	return n
}

package inventory

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/placement/islands"
)

// published is the GPUs that somebody says a node has.
type published struct {
	// by is who, with a verb.
	by string
	// node is nil where there are no GPUs.
	node *Node
	// whole is how many are not known to be cut up.
	whole int
	// doubted is the same node, which advertises another number of GPUs, so many.
	doubted    *Node
	advertised int64
}

// beside is the node where it advertises GPUs too, or none.
func (p *published) beside(capacity v1.ResourceList) *Node {
	quantity := capacity[gpu.NVIDIA]
	advertised := quantity.Value()
	if advertised == 0 || advertised == int64(p.node.Shape.Devices()) || advertised == int64(p.whole) || p.node.Doubt != "" {
		return p.node
	}
	if p.doubted == nil || p.advertised != advertised {
		doubted := *p.node
		doubted.Doubt = fmt.Sprintf("its %s %d GPUs, and it advertises %d", p.by, p.node.Shape.Devices(), advertised)
		p.doubted, p.advertised = &doubted, advertised
	}
	return p.doubted
}

// same says that the other node is known to be the same.
func (n *Node) same(other *Node) bool {
	return n.Shape == other.Shape && n.Doubt == other.Doubt && slices.Equal(n.UUIDs, other.UUIDs)
}

// shapes are all that there are: nodes that are alike share one.
type shapes []*islands.Shape

// shared is the shape that is known and the same, or else this one.
func (s *shapes) shared(shape *islands.Shape) *islands.Shape {
	for _, known := range *s {
		if known.Same(shape) {
			return known
		}
	}
	*s = append(*s, shape)
	return shape
}

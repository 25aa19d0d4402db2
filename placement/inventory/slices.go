package inventory

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/muster-gpu/muster/api/gpu"
)

// Slices reads the GPUs of nodes from ResourceSlices.
type Slices struct {
	products *Products

	mu sync.Mutex
	// slices are those of a node, by their names.
	slices map[string]map[string]*resourceapi.ResourceSlice
	// nodes is what was read of them.
	nodes  map[string]*published
	shapes shapes
}

// NewSlices knows no node yet. What slices do not say, whether there are NVLinks, is
// that of the products.
func NewSlices(products *Products) *Slices {
	return &Slices{products: products, slices: map[string]map[string]*resourceapi.ResourceSlice{}, nodes: map[string]*published{}}
}

// Replace takes one slice for another, of which either may be nil: there was none, or
// there is none any more. Slices of other drivers, and of no node, do not count.
func (s *Slices) Replace(before, after *resourceapi.ResourceSlice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if node, ok := nodeOf(before); ok {
		delete(s.slices[node], before.Name)
		if len(s.slices[node]) == 0 {
			delete(s.slices, node)
		}
		delete(s.nodes, node)
	}
	if node, ok := nodeOf(after); ok {
		if s.slices[node] == nil {
			s.slices[node] = map[string]*resourceapi.ResourceSlice{}
		}
		s.slices[node][after.Name] = after
		delete(s.nodes, node)
	}
}

// nodeOf is the node of a slice of GPUs, false for any other.
func nodeOf(slice *resourceapi.ResourceSlice) (string, bool) {
	if slice == nil || slice.Spec.Driver != gpu.Driver || slice.Spec.NodeName == nil {
		return "", false
	}
	return *slice.Spec.NodeName, true
}

// Node is what the slices of the node say, false if there are none with GPUs, or
// more GPUs than can be told apart.
func (s *Slices) Node(node *v1.Node) (*Node, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.slices[node.Name]) == 0 {
		return nil, false
	}
	p, known := s.nodes[node.Name]
	if !known {
		p = &published{by: "ResourceSlices have", node: s.read(s.slices[node.Name])}
		if p.node != nil {
			p.whole = p.node.Shape.Devices()
		}
		s.nodes[node.Name] = p
	}
	if p.node == nil {
		return nil, false
	}
	return p.beside(node.Status.Capacity), true
}

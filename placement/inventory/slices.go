package inventory

import (
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-gpu/muster/placement/islands"
)

// Driver is the name of NVIDIA's driver for dynamic resource allocation of GPUs.
const Driver = "gpu.nvidia.com"

// Slices reads the GPUs of nodes from ResourceSlices.
type Slices struct {
	products *Products

	mu sync.Mutex
	// slices are those of a node, by their names.
	slices map[string]map[string]*resourceapi.ResourceSlice
	// nodes is what was read of them, nil where there are no GPUs.
	nodes map[string]*Node
	// shapes are all that there are: nodes that are alike share one.
	shapes []*islands.Shape
}

// NewSlices follows the informer of ResourceSlices, which must not run yet. What
// slices do not say, whether there are NVLinks, is that of the products.
func NewSlices(informer cache.SharedIndexInformer, products *Products) (*Slices, error) {
	s := &Slices{products: products, slices: map[string]map[string]*resourceapi.ResourceSlice{}, nodes: map[string]*Node{}}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.replace(nil, o) },
		UpdateFunc: s.replace,
		DeleteFunc: func(o any) { s.replace(o, nil) },
	})
	if err != nil {
		return nil, fmt.Errorf("watching ResourceSlices: %w", err)
	}
	return s, nil
}

// replace takes one slice for another, of which either may be none.
func (s *Slices) replace(before, after any) {
	if gone, ok := before.(cache.DeletedFinalStateUnknown); ok {
		before = gone.Obj
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if slice, node, ok := ofNode(before); ok {
		delete(s.slices[node], slice.Name)
		if len(s.slices[node]) == 0 {
			delete(s.slices, node)
		}
		delete(s.nodes, node)
	}
	if slice, node, ok := ofNode(after); ok {
		if s.slices[node] == nil {
			s.slices[node] = map[string]*resourceapi.ResourceSlice{}
		}
		s.slices[node][slice.Name] = slice
		delete(s.nodes, node)
	}
}

// ofNode is a slice of GPUs, and its node.
func ofNode(o any) (slice *resourceapi.ResourceSlice, node string, ok bool) {
	slice, ok = o.(*resourceapi.ResourceSlice)
	if !ok || slice.Spec.Driver != Driver || slice.Spec.NodeName == nil {
		return nil, "", false
	}
	return slice, *slice.Spec.NodeName, true
}

// Node is what the slices of the node say, false if there are none with GPUs, or
// more GPUs than can be told apart.
func (s *Slices) Node(node *v1.Node) (*Node, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.slices[node.Name]) == 0 {
		return nil, false
	}
	n, known := s.nodes[node.Name]
	if !known {
		n = s.read(s.slices[node.Name])
		s.nodes[node.Name] = n
	}
	return n, n != nil
}

// shared is the shape that is known and the same, or else this one.
func (s *Slices) shared(shape *islands.Shape) *islands.Shape {
	for _, known := range s.shapes {
		if known.Same(shape) {
			return known
		}
	}
	s.shapes = append(s.shapes, shape)
	return shape
}

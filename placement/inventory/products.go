package inventory

import (
	"fmt"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/placement/islands"
)

// Labels that NVIDIA's GPU feature discovery puts on nodes.
const (
	productLabel = "nvidia.com/gpu.product"
	countLabel   = "nvidia.com/gpu.count"
)

const gpuResource v1.ResourceName = "nvidia.com/gpu"

// Products goes by the name of the product and the number of GPUs, as labels say.
type Products struct {
	// arrangements are those of products for which it is configured.
	arrangements map[string]islands.Arrangement

	mu    sync.Mutex
	nodes map[kind]*Node
}

// kind is what the GPUs of nodes that are alike have in common.
type kind struct {
	product string
	n       int
}

// NewProducts has some products arranged in another way than they mostly are; the
// keys are values of the label nvidia.com/gpu.product.
func NewProducts(arrangements map[string]islands.Arrangement) *Products {
	return &Products{arrangements: arrangements, nodes: map[kind]*Node{}}
}

// Node is what the labels of the node say, false if it has no GPUs, or more than
// can be told apart, or if the product is not known.
func (p *Products) Node(node *v1.Node) (*Node, bool) {
	capacity := node.Status.Capacity[gpuResource]
	k := kind{node.Labels[productLabel], int(capacity.Value())}
	// Less may be advertised than there is, where some GPUs are cut up or broken.
	// More is where they are shared.
	if n, err := strconv.Atoi(node.Labels[countLabel]); err == nil {
		if n < k.n {
			return nil, false
		}
		k.n = n
	}
	arrangement, ok := p.arrangement(k.product)
	if !ok || k.n == 0 || k.n > islands.MaxDevices {
		return nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.nodes[k]
	if !ok {
		n = &Node{}
		var err error
		if n.Shape, err = arrangement.Shape(k.n); err != nil {
			n.Doubt = fmt.Sprintf("%s: %v", k.product, err)
			if n.Shape, err = islands.Alike.Shape(k.n); err != nil {
				return nil, false
			}
		}
		p.nodes[k] = n
	}
	return n, true
}

// arrangement is that of a product, false if it is not known.
func (p *Products) arrangement(product string) (islands.Arrangement, bool) {
	if a, ok := p.arrangements[product]; ok {
		return a, true
	}
	return islands.OfProduct(product)
}

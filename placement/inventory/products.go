package inventory

import (
	"fmt"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/placement/islands"
)

// Labels that NVIDIA's GPU feature discovery puts on nodes.
const (
	productLabel = "nvidia.com/gpu.product"
	countLabel   = "nvidia.com/gpu.count"
)

// Products goes by the name of the product and the number of GPUs, as labels say.
type Products struct {
	// arrangements are those of products for which it is configured.
	arrangements map[string]islands.Arrangement

	mu    sync.Mutex
	nodes map[kind]*Node
	known map[string]arranged
}

// arranged is what is known of a product.
type arranged struct {
	islands.Arrangement
	ok bool
}

// kind is what the GPUs of nodes that are alike have in common.
type kind struct {
	product string
	n       int
	// mixed: some are cut up, and others are not.
	mixed bool
}

// NewProducts has some products arranged in another way than they mostly are; the
// keys are values of the label nvidia.com/gpu.product.
func NewProducts(arrangements map[string]islands.Arrangement) *Products {
	return &Products{arrangements: arrangements, nodes: map[kind]*Node{}, known: map[string]arranged{}}
}

// Node is what the labels of the node say, false if it has no GPUs, or more than
// can be told apart, or if the product is not known.
func (p *Products) Node(node *v1.Node) (*Node, bool) {
	capacity := node.Status.Capacity[gpu.NVIDIA]
	k := kind{node.Labels[productLabel], int(capacity.Value()), false}
	for name, quantity := range node.Status.Capacity {
		k.mixed = k.mixed || (gpu.Is(name) && !gpu.Whole(name) && !quantity.IsZero() && k.n > 0)
	}
	// Less may be advertised than there is, where some GPUs are cut up or broken.
	// More is where they are shared.
	if n, err := strconv.Atoi(node.Labels[countLabel]); err == nil {
		if n < k.n {
			return nil, false
		}
		k.n = n
	}
	if k.n <= 0 || k.n > islands.MaxDevices {
		return nil, false
	}
	arrangement, ok := p.arrangement(k.product)
	if !ok {
		return nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.nodes[k]
	if !ok {
		n = newNode(k.product, arrangement, k.n)
		if k.mixed {
			n.Doubt = "it advertises whole GPUs and slices of others, and nobody says which are whole"
		}
		p.nodes[k] = n
	}
	return n, true
}

// newNode has the GPUs of a product, all alike if it has no such number of them.
func newNode(product string, a islands.Arrangement, gpus int) *Node {
	n := &Node{}
	var err error
	if n.Shape, err = a.Shape(gpus); err == nil {
		return n
	}
	n.Doubt = fmt.Sprintf("%s: %v", product, err)
	n.Shape, err = islands.Alike.Shape(gpus)
	utilruntime.Must(err)
	return n
}

// mostProducts bounds how many products are remembered.
const mostProducts = 256

// arrangement is that of a product, false if it is not known.
func (p *Products) arrangement(product string) (islands.Arrangement, bool) {
	if a, ok := p.arrangements[product]; ok {
		return a, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a, found := p.known[product]
	if !found {
		a.Arrangement, a.ok = islands.OfProduct(product)
		if len(p.known) == mostProducts {
			clear(p.known)
		}
		p.known[product] = a
	}
	return a.Arrangement, a.ok
}

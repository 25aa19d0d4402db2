package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/placement/islands"
)

// Reports has the GPUs of nodes as their GPUNodes tell of them. A GPU's index is its
// place by minor number: who gives out GPUs by what Reports says goes by their UUIDs.
type Reports struct {
	products *Products

	mu     sync.Mutex
	nodes  map[string]*published
	shapes shapes
}

// NewReports knows no node yet. What GPUNodes do not say, whether there are NVLinks or
// which of them are double, is that of the products.
func NewReports(products *Products) *Reports {
	return &Reports{products: products, nodes: map[string]*published{}}
}

// Set takes in which GPUs and slices of GPUs a node has now; nil forgets the node.
func (r *Reports) Set(node string, devices []v1alpha1.GPUDevice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.read(devices)
	if now == nil {
		delete(r.nodes, node)
		return
	}
	if before := r.nodes[node]; before == nil || before.whole != now.whole || !before.node.same(now.node) {
		r.nodes[node] = now
	}
}

// Node is what the GPUNode of the node says, false if there is none with GPUs, or if it
// has more of them than can be told apart, or some without a number of their own.
func (r *Reports) Node(node *v1.Node) (*Node, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.nodes[node.Name]
	if p == nil {
		return nil, false
	}
	return p.beside(node.Status.Capacity), true
}

// read has the GPUs in the order of their minor numbers.
func (r *Reports) read(devices []v1alpha1.GPUDevice) *published {
	var gpus []v1alpha1.GPUDevice
	cut := map[int32]bool{}
	for _, d := range devices {
		if d.Profile == "" {
			gpus = append(gpus, d)
		} else {
			cut[d.Minor] = true
		}
	}
	slices.SortStableFunc(gpus, func(a, b v1alpha1.GPUDevice) int { return cmp.Compare(a.Minor, b.Minor) })
	indices := map[int32]int{}
	n, p := &Node{}, &published{by: "GPUNode has"}
	var known []device
	for i, d := range gpus {
		indices[d.Minor] = i
		n.UUIDs = append(n.UUIDs, d.UUID)
		k := device{uuid: d.UUID, product: d.Product, pcieRoot: d.PCIRoot}
		if d.NUMANode != nil {
			k.numa = new(int64(*d.NUMANode))
		}
		known = append(known, k)
		if !cut[d.Minor] {
			p.whole++
		}
	}
	if len(gpus) == 0 || len(gpus) > islands.MaxDevices || gpus[0].Minor < 0 || len(indices) < len(gpus) {
		return nil
	}
	linked, doubt := r.products.linked(known)
	n.Doubt = doubt
	if told, doubt := nvlinks(gpus, indices, linked); told != nil {
		n.Doubt = cmp.Or(n.Doubt, doubt)
		linked = append(told, slices.DeleteFunc(linked, func(j islands.Join) bool { return j.Link <= islands.NVLink })...)
	}
	shape, err := islands.New(len(gpus), append(join(known), linked...)...)
	if err != nil {
		return nil
	}
	n.Shape = r.shapes.shared(shape)
	p.node = n
	return p
}

// nvlinks are the NVLinks that GPUs say they have, nil if none says anything. What peers
// say goes before the names of islands, in which some reach others only through others.
// A link that only one end knows is none. Of those that the product has single is not
// said which they are.
func nvlinks(gpus []v1alpha1.GPUDevice, indices map[int32]int, ofProduct []islands.Join) (told []islands.Join, doubt string) {
	named := map[string]islands.Set{}
	for i, d := range gpus {
		if d.Island != "" {
			named[d.Island] |= islands.SetOf(i)
		}
		for _, minor := range d.NVLinkPeers {
			k, there := indices[minor]
			if !there || k == i {
				continue
			}
			if !slices.Contains(gpus[k].NVLinkPeers, d.Minor) {
				// It is joined to itself alone: something is said all the same.
				doubt = fmt.Sprintf("GPU %d has an NVLink to GPU %d, which has none to it", d.Minor, minor)
				told = append(told, islands.Join{Link: islands.NVLinks, Devices: islands.SetOf(i)})
				continue
			}
			pair := islands.Join{Link: islands.NVLinks, Devices: islands.SetOf(i, k)}
			if slices.Contains(ofProduct, islands.Join{Link: islands.NVLink, Devices: pair.Devices}) {
				pair.Link = islands.NVLink
			}
			told = append(told, pair)
		}
	}
	if told != nil {
		return told, doubt
	}
	for _, set := range named {
		told = append(told, islands.Join{Link: islands.NVLinks, Devices: set})
	}
	return told, ""
}

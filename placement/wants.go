package placement

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"
)

// want is how much of one resource each pod of a class asks for, and what nodes have
// of it: milli-CPUs, bytes, or numbers.
type want struct {
	name v1.ResourceName
	each int64
	gpu  bool
	// nodes is the number of nodes that have less than that free, and most is what
	// the best of them has.
	nodes int
	most  int64
	// total and largest are what nodes have, free or not, together and each.
	total, largest int64
}

// wants are the resources that a pod asks for, the place among a node's pods last.
func (d *demand) wants() []want {
	wants := make([]want, 0, 4+len(d.scalars))
	for _, w := range []want{
		{name: v1.ResourceCPU, each: d.milliCPU},
		{name: v1.ResourceMemory, each: d.memory},
		{name: v1.ResourceEphemeralStorage, each: d.ephemeral},
	} {
		if w.each > 0 {
			wants = append(wants, w)
		}
	}
	for _, s := range d.scalars {
		wants = append(wants, want{name: s.name, each: s.quantity, gpu: s.gpu})
	}
	return append(wants, want{name: v1.ResourcePods, each: 1})
}

// of is how much of the resource is in r.
func (w *want) of(r fwk.Resource) int64 {
	switch w.name {
	case v1.ResourceCPU:
		return r.GetMilliCPU()
	case v1.ResourceMemory:
		return r.GetMemory()
	case v1.ResourceEphemeralStorage:
		return r.GetEphemeralStorage()
	case v1.ResourcePods:
		return int64(r.GetAllowedPodNumber())
	}
	return r.GetScalarResources()[w.name]
}

// tell counts a node that has too little of the resource free.
func (w *want) tell(node fwk.NodeInfo) {
	used := w.of(node.GetRequested())
	if w.name == v1.ResourcePods {
		used = int64(len(node.GetPods()))
	}
	if free := max(0, w.of(node.GetAllocatable())-used); free < w.each {
		w.nodes++
		w.most = max(w.most, free)
	}
}

// size counts what a node has of the resource.
func (w *want) size(node fwk.NodeInfo) {
	n := w.of(node.GetAllocatable())
	w.total += n
	w.largest = max(w.largest, n)
}

// insufficient words, as NodeResourcesFit does, that nodes have too little.
func (w *want) insufficient() string {
	if w.name == v1.ResourcePods {
		return "Too many pods"
	}
	return fmt.Sprintf("Insufficient %s (%s needed, at most %s free)", w.name, w.quantity(w.each), w.about(w.most))
}

// quantity writes an amount as manifests do.
func (w *want) quantity(n int64) string {
	switch w.name {
	case v1.ResourceCPU:
		return resource.NewMilliQuantity(n, resource.DecimalSI).String()
	case v1.ResourceMemory, v1.ResourceEphemeralStorage:
		return resource.NewQuantity(n, resource.BinarySI).String()
	}
	return fmt.Sprint(n)
}

// about is quantity for what nodes have, whose bytes are seldom round: it leaves out
// what is less than a tenth of a gibibyte.
func (w *want) about(n int64) string {
	const gibi = 1 << 30
	bytes := w.name == v1.ResourceMemory || w.name == v1.ResourceEphemeralStorage
	if !bytes || n < gibi || n%gibi == 0 {
		return w.quantity(n)
	}
	return fmt.Sprintf("%d.%dGi", n/gibi, n%gibi*10/gibi)
}

// amount is a quantity with the name of what it is of.
func (w *want) amount(n int64) string {
	switch w.name {
	case v1.ResourceCPU:
		if n == 1000 {
			return "1 CPU"
		}
		return w.quantity(n) + " CPUs"
	case v1.ResourceMemory, v1.ResourceEphemeralStorage:
		return fmt.Sprintf("%s of %s", w.quantity(n), w.name)
	}
	return fmt.Sprintf("%s %s", w.quantity(n), w.name)
}

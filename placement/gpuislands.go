package placement

import (
	"cmp"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/placement/inventory"
	"github.com/muster-gpu/muster/placement/islands"
)

// Enforcement is who chooses the GPUs that a pod gets on its node.
type Enforcement string

const (
	// EnforceDRA: the scheduler, for pods that claim GPUs (dynamic resource
	// allocation).
	EnforceDRA Enforcement = "dra"
	// EnforceAnnotation: the scheduler writes on each pod which GPUs it is to get, and
	// a device plugin that reads GPUsAnnotation gives it those.
	EnforceAnnotation Enforcement = "annotation"
	// Predict: somebody else. Only what would be possible counts.
	Predict Enforcement = "predict"
)

// Islands is which GPUs of nodes are close to each other, and which of them pods
// get. It is safe for concurrent use.
type Islands struct {
	source      inventory.Source
	enforcement Enforcement
	classes     sets.Set[string]

	mu sync.Mutex
	// chosen are the GPUs of pods that do not have them written on them yet.
	chosen map[types.UID]chosenGPUs
}

// NewIslands goes by what the source knows of nodes. The classes are the DeviceClasses
// of whole GPUs of NVIDIA.
func NewIslands(source inventory.Source, enforcement Enforcement, classes sets.Set[string]) *Islands {
	return &Islands{source: source, enforcement: enforcement, classes: classes, chosen: map[types.UID]chosenGPUs{}}
}

// fit is how well so many pods of the demand go onto the islands of a node of
// whose GPUs so many are free. Where nothing is known of it, or more GPUs are free
// than it has, all are as far from each other as can be. The zero Fit for pods without
// whole GPUs, and of nil, which knows nothing of any node.
func (i *Islands) fit(node fwk.NodeInfo, free int64, d *demand, pods int) islands.Fit {
	if i == nil || !d.wholeGPUs() {
		return islands.Fit{}
	}
	n := int(d.gpus)
	unknown := islands.Fit{Possible: islands.Machine, Sure: islands.Machine}
	if n < 2 {
		unknown = islands.Fit{}
	}
	gpus, ok := i.known(node.Node())
	if !ok {
		return unknown
	}
	if set, exact := i.free(node, gpus); exact && int64(set.Len()) == free {
		if f, ok := gpus.Shape.Fit(set, n, pods); ok {
			return f
		}
	}
	if f, ok := gpus.Shape.Likely(int(free), n, pods); ok {
		return f
	}
	return unknown
}

// free is which GPUs of the node are free, false where that is not known. GPUs for
// pods that are still to be bound are chosen as they will be then.
func (i *Islands) free(node fwk.NodeInfo, gpus *inventory.Node) (free islands.Set, exact bool) {
	if n, ok := node.(*deviceNode); ok && n.gpus != nil && i.enforcement == EnforceDRA {
		return n.free, true
	}
	if i.enforcement != EnforceAnnotation {
		return 0, false
	}
	n := gpus.Shape.Devices()
	if node.GetAllocatable().GetScalarResources()[gpu.NVIDIA] != int64(n) {
		// Some are broken or cut up, and nobody says which.
		return 0, false
	}
	free = islands.First(n)
	var coming []int
	for _, info := range node.GetPods() {
		count := int(info.CalculateResource().Resource.GetScalarResources()[gpu.NVIDIA])
		if count == 0 {
			continue
		}
		pod := info.GetPod()
		set, known := i.of(pod, gpus)
		switch {
		case known && set.Len() == count && set&^free == 0:
			free &^= set
		case known || pod.Status.StartTime != nil:
			// Another one has given it GPUs, or others than it was to get.
			return 0, false
		default:
			coming = append(coming, count)
		}
	}
	slices.SortFunc(coming, func(a, b int) int { return cmp.Compare(b, a) })
	for _, count := range coming {
		c, ok := gpus.Shape.Choose(free, count)
		if !ok {
			return 0, false
		}
		free &^= c.Devices
	}
	return free, true
}

// bestDevices tells which GPUs of the node a pod with n GPUs is best given, of those
// of which no device is taken. False if it does not matter, or if there are too few.
func (i *Islands) bestDevices(node *v1.Node, taken func(structured.DeviceID) bool, n int) (gpus *inventory.Node, best islands.Set, ok bool) {
	gpus, ok = i.known(node)
	if !ok || gpus.Shape.Uniform() {
		return nil, 0, false
	}
	free := islands.First(gpus.Shape.Devices())
	for _, d := range gpus.Devices() {
		if taken(d.ID) {
			free &^= islands.SetOf(d.GPU)
		}
	}
	c, ok := gpus.Shape.Choose(free, n)
	return gpus, c.Devices, ok
}

// known is what is known of the node now. For a moment nothing is of one that has more
// GPUs than others before.
func (i *Islands) known(node *v1.Node) (*inventory.Node, bool) {
	gpus, ok := i.source.Node(node)
	return gpus, ok && gpus.Shape.Ready()
}

// wholeGPUs tells whether the demand is for whole GPUs that are known one by one.
func (d *demand) wholeGPUs() bool {
	return d.gpus > 0 && d.gpuName() == gpu.NVIDIA && d.scalarGPUs() == 1
}

// scalarGPUs is the number of resource names that are GPUs.
func (d *demand) scalarGPUs() (n int) {
	for i := range d.scalars {
		if d.scalars[i].gpu {
			n++
		}
	}
	return n
}

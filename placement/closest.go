package placement

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/placement/fragmentation"
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

// GPUsAnnotation has the GPUs of a pod with EnforceAnnotation: their indices on the
// node, from the lowest, separated by commas. UUIDsAnnotation has their UUIDs in
// the same order, if these are known.
const (
	GPUsAnnotation  = "muster.dev/gpus"
	UUIDsAnnotation = "muster.dev/gpu-uuids"
)

// Islands is which GPUs of nodes are close to each other, and which of them pods
// get. It is safe for concurrent use.
type Islands struct {
	source      inventory.Source
	enforcement Enforcement
	classes     sets.Set[string]

	mu sync.Mutex
	// chosen are the GPUs of pods that do not have them written on them yet.
	chosen map[types.UID]islands.Set
}

// NewIslands goes by what the source knows of nodes. The classes are the DeviceClasses
// of whole GPUs of NVIDIA.
func NewIslands(source inventory.Source, enforcement Enforcement, classes sets.Set[string]) *Islands {
	return &Islands{source: source, enforcement: enforcement, classes: classes, chosen: map[types.UID]islands.Set{}}
}

// fit is how well so many pods with n GPUs each go onto the islands of a node of
// whose GPUs so many are free. Where nothing is known of it, or more GPUs are free
// than it has, all are as far from each other as can be.
func (i *Islands) fit(node fwk.NodeInfo, free int64, n, pods int) islands.Fit {
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
		set, known := i.of(pod)
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

// of are the GPUs that were chosen for the pod. What is written on a pod that is not
// in the API, such as a hold, is its author's wish and does not count.
func (i *Islands) of(pod *v1.Pod) (islands.Set, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	written, ok := pod.Annotations[GPUsAnnotation]
	chosen, choosing := i.chosen[pod.UID]
	switch {
	case choosing && written == chosen.String():
		// It is bound, and has been read since.
		delete(i.chosen, pod.UID)
		return chosen, true
	case choosing:
		return chosen, true
	case !ok || pod.ResourceVersion == "":
		return 0, false
	}
	// What cannot be read is no GPU: fewer than the pod has.
	set, _ := islands.ParseSet(written)
	return set, true
}

// Choose chooses the GPUs that the pod is to get on the node, and keeps them from
// others until Forget is called or they have been read on the pod. False if the
// node itself chooses, or if it is not known which of its GPUs are free.
func (i *Islands) Choose(pod *v1.Pod, node fwk.NodeInfo) bool {
	if i.enforcement != EnforceAnnotation {
		return false
	}
	d, err := demandOfPod(pod, func(name v1.ResourceName) bool { return name == gpu.NVIDIA })
	if err != nil || d.gpus == 0 {
		return false
	}
	gpus, ok := i.known(node.Node())
	if !ok {
		return false
	}
	free, exact := i.free(node, gpus)
	if !exact {
		return false
	}
	c, ok := gpus.Shape.Choose(free, int(d.gpus))
	if !ok {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.chosen[pod.UID] = c.Devices
	return true
}

// BestDevices tells which GPUs of the node a pod with n GPUs is best given, of those
// of which no device is taken. False if it does not matter, or if there are too few.
func (i *Islands) BestDevices(node *v1.Node, taken func(inventory.DeviceID) bool, n int) (gpus *inventory.Node, best islands.Set, ok bool) {
	gpus, ok = i.known(node)
	if !ok || gpus.Shape.Uniform() {
		return nil, 0, false
	}
	free := islands.First(gpus.Shape.Devices())
	for id, index := range gpus.Devices() {
		if taken(id) {
			free &^= islands.SetOf(index)
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

// Forget gives up what was chosen for the pod.
func (i *Islands) Forget(pod types.UID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.chosen, pod)
}

// Annotations is what is written on the pod when it is bound to the node: the GPUs
// that were chosen for it. What its author has written there is taken away. Nil if
// there is nothing to write.
func (i *Islands) Annotations(pod *v1.Pod, node *v1.Node) map[string]string {
	if i.enforcement != EnforceAnnotation {
		return nil
	}
	i.mu.Lock()
	set, ok := i.chosen[pod.UID]
	i.mu.Unlock()
	_, authors := pod.Annotations[GPUsAnnotation]
	_, authorsUUIDs := pod.Annotations[UUIDsAnnotation]
	if !ok && !authors && !authorsUUIDs {
		return nil
	}
	out := map[string]string{GPUsAnnotation: set.String()}
	var uuids []string
	if gpus, known := i.source.Node(node); known && gpus.UUIDs != nil {
		for index := range set.Indices() {
			uuids = append(uuids, gpus.UUIDs[index])
		}
	}
	if len(uuids) > 0 || authorsUUIDs {
		out[UUIDsAnnotation] = strings.Join(uuids, ",")
	}
	return out
}

// Score says how well pods go onto a node. The zero value is that of any node, where
// nothing makes a difference.
type Score struct {
	// Link is the worst between two GPUs of one pod, if all goes well.
	Link islands.Link
	// Score is that of the GPUs that are left.
	fragmentation.Score
	// Sure is the Link in any case, and Breaks what is taken away from other free
	// GPUs, as of islands.Fit.
	Sure   islands.Link
	Breaks uint32
}

// Compare orders the better first, as of slices.SortFunc: the closest GPUs, as far as
// it is known that there are any; then the most useful rest; and of equal ones
// again the closest, as far as that is known, and the least broken islands.
func (s Score) Compare(other Score) int {
	return cmp.Or(
		cmp.Compare(s.Link, other.Link),
		s.Score.Compare(other.Score),
		cmp.Compare(s.Sure, other.Sure),
		cmp.Compare(s.Breaks, other.Breaks))
}

// scored adds what is known of the islands of the node to the score of the rest.
// Nil knows nothing.
func (i *Islands) scored(s fragmentation.Score, node fwk.NodeInfo, free int64, d *demand, pods int) Score {
	if i == nil || !d.wholeGPUs() {
		return Score{Score: s}
	}
	f := i.fit(node, free, int(d.gpus), pods)
	return Score{Link: f.Possible, Score: s, Sure: f.Sure, Breaks: f.Breaks}
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

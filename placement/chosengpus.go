package placement

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/placement/inventory"
	"github.com/muster-gpu/muster/placement/islands"
)

// GPUsAnnotation has the GPUs of a pod with EnforceAnnotation: their indices on the
// node, from the lowest, separated by commas. UUIDsAnnotation has their UUIDs in
// the same order, if these are known.
const (
	GPUsAnnotation  = "muster.dev/gpus"
	UUIDsAnnotation = "muster.dev/gpu-uuids"
)

// chosenGPUs are the GPUs of a pod by their indices, and by their UUIDs when they were
// chosen, as UUIDsAnnotation has them.
type chosenGPUs struct {
	devices islands.Set
	uuids   string
}

// uuidsOf are the UUIDs of GPUs of the node, as UUIDsAnnotation has them.
func uuidsOf(gpus *inventory.Node, set islands.Set) string {
	var uuids []string
	for index := range set.Indices() {
		if index < len(gpus.UUIDs) {
			uuids = append(uuids, gpus.UUIDs[index])
		}
	}
	return strings.Join(uuids, ",")
}

// of are the GPUs of its node that were chosen for the pod. What is written on a pod that
// is not in the API, such as a hold, is its author's wish and does not count.
func (i *Islands) of(pod *v1.Pod, gpus *inventory.Node) (islands.Set, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	written, ok := pod.Annotations[GPUsAnnotation]
	chosen, choosing := i.chosen[pod.UID]
	switch {
	case choosing && written == chosen.devices.String():
		// It is bound, and has been read since.
		delete(i.chosen, pod.UID)
	case choosing:
	case !ok || pod.ResourceVersion == "":
		return 0, false
	default:
		// What cannot be read is no GPU: fewer than the pod has.
		chosen.devices, _ = islands.ParseSet(written)
		chosen.uuids = pod.Annotations[UUIDsAnnotation]
	}
	if chosen.uuids != "" && gpus.UUIDs != nil && chosen.uuids != uuidsOf(gpus, chosen.devices) {
		// The node has other GPUs than it had then, and others have these indices.
		return 0, true
	}
	return chosen.devices, true
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
	i.chosen[pod.UID] = chosenGPUs{c.Devices, uuidsOf(gpus, c.Devices)}
	return true
}

// Forget gives up what was chosen for the pod.
func (i *Islands) Forget(pod types.UID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.chosen, pod)
}

// Annotations is what is written on the pod when it is bound: the GPUs that were chosen
// for it. What its author has written there is taken away. Nil if
// there is nothing to write.
func (i *Islands) Annotations(pod *v1.Pod) map[string]string {
	if i.enforcement != EnforceAnnotation {
		return nil
	}
	i.mu.Lock()
	chosen, ok := i.chosen[pod.UID]
	i.mu.Unlock()
	_, authors := pod.Annotations[GPUsAnnotation]
	_, authorsUUIDs := pod.Annotations[UUIDsAnnotation]
	if !ok && !authors && !authorsUUIDs {
		return nil
	}
	out := map[string]string{GPUsAnnotation: chosen.devices.String()}
	if chosen.uuids != "" || authorsUUIDs {
		out[UUIDsAnnotation] = chosen.uuids
	}
	return out
}

package placement

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/placement/inventory"
	"github.com/muster-gpu/muster/placement/islands"
)

// DeviceOrder is the devices of a scheduler, of which those GPUs of each node are listed
// first that a pod is best given: DynamicResources takes the first that suit. It is
// used by one goroutine.
type DeviceOrder struct {
	fwk.SharedDRAManager
	slices orderedSlices
}

var _ fwk.SharedDRAManager = &DeviceOrder{}

// NewDeviceOrder orders the devices by the islands of the mix. Without any, and where
// these are not enforced with devices, the order stays as it is.
func NewDeviceOrder(of fwk.SharedDRAManager, mix *Mix) *DeviceOrder {
	return &DeviceOrder{of, orderedSlices{ResourceSliceLister: of.ResourceSlices(), of: of, mix: mix}}
}

// ResourceSlices lists the slices in the order of the pod that Begin was told of.
func (d *DeviceOrder) ResourceSlices() fwk.ResourceSliceLister { return &d.slices }

// Begin has devices listed in the order of a pod, until end is called.
func (d *DeviceOrder) Begin(pod *v1.Pod) (end func()) {
	if near := d.slices.mix.islands; near != nil && near.enforcement == EnforceDRA {
		d.slices.gpus = d.gpus(pod, near)
	}
	return func() { d.slices.gpus = 0 }
}

// gpus is how many GPUs are still to be allocated for the pod.
func (d *DeviceOrder) gpus(pod *v1.Pod, near *Islands) (n int) {
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue
		}
		claim, err := d.ResourceClaims().Get(pod.Namespace, *name)
		if err != nil || claim.Status.Allocation != nil {
			continue
		}
		n += int(near.ClaimedGPUs(&claim.Spec))
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	if quantity, ok := requests[gpu.NVIDIA]; ok && d.DeviceClassResolver().GetDeviceClass(gpu.NVIDIA) != nil {
		n += int(quantity.Value())
	}
	return n
}

// orderedSlices lists slices with the GPUs first that a pod is best given.
type orderedSlices struct {
	fwk.ResourceSliceLister
	of  fwk.SharedDRAManager
	mix *Mix
	// gpus is how many GPUs the pod asks for, 0 while there is none.
	gpus int
	// last are the slices as they were ordered last, by name.
	last map[string]orderedSlice
}

// orderedSlice is a slice with the best GPUs first.
type orderedSlice struct {
	of, ordered *resourceapi.ResourceSlice
	gpus        *inventory.Node
	best        islands.Set
}

// ListWithDeviceTaintRules returns the scheduler's slices. Those of which the order is
// another one are copies.
func (s *orderedSlices) ListWithDeviceTaintRules() ([]*resourceapi.ResourceSlice, error) {
	all, err := s.ResourceSliceLister.ListWithDeviceTaintRules()
	if err != nil || s.gpus == 0 {
		return all, err
	}
	allocated, err := s.of.ResourceClaims().ListAllAllocatedDevices()
	if err != nil {
		// Claims have changed meanwhile. Any order is right.
		return all, nil
	}
	all = slices.Clone(all)
	var node v1.Node
	for i, slice := range all {
		if slice.Spec.Driver != gpu.Driver || slice.Spec.NodeName == nil || len(slice.Spec.Devices) < 2 {
			continue
		}
		node.ObjectMeta = metav1.ObjectMeta{Name: *slice.Spec.NodeName}
		gpus, best, ok := s.mix.islands.bestDevices(&node, allocated.Has, s.gpus)
		if !ok {
			continue
		}
		last := s.last[slice.Name]
		if last.of != slice || last.gpus != gpus || last.best != best {
			last = order(slice, gpus, best)
			s.remember(last, len(all))
		}
		all[i] = last.ordered
	}
	return all, nil
}

// remember keeps a slice in its order; of those that are gone, no more than there are
// others.
func (s *orderedSlices) remember(o orderedSlice, slices int) {
	if s.last == nil || len(s.last) > 2*slices {
		s.last = map[string]orderedSlice{}
	}
	s.last[o.of.Name] = o
}

// order puts the best GPUs of a node first.
func order(slice *resourceapi.ResourceSlice, gpus *inventory.Node, best islands.Set) orderedSlice {
	ordered := *slice
	ordered.Spec.Devices = slices.Clone(slice.Spec.Devices)
	later := func(d resourceapi.Device) int {
		if index, ok := gpus.Index(structured.MakeDeviceID(slice.Spec.Driver, slice.Spec.Pool.Name, d.Name)); ok && best.Has(index) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(ordered.Spec.Devices, func(a, b resourceapi.Device) int { return cmp.Compare(later(a), later(b)) })
	return orderedSlice{slice, &ordered, gpus, best}
}

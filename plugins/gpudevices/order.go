package gpudevices

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/placement/inventory"
	"github.com/muster-gpu/muster/placement/islands"
)

// orderedSlices lists slices with the GPUs first that a pod is best given.
type orderedSlices struct {
	fwk.ResourceSliceLister
	claims fwk.ResourceClaimTracker
	mix    *placement.Mix
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
	near := s.mix.Islands()
	if err != nil || s.gpus == 0 || near == nil {
		return all, err
	}
	allocated, err := s.claims.ListAllAllocatedDevices()
	if err != nil {
		// Claims have changed meanwhile. Any order is right.
		return all, nil
	}
	all = slices.Clone(all)
	taken := func(id inventory.DeviceID) bool {
		return allocated.Has(structured.MakeDeviceID(id.Driver, id.Pool, id.Device))
	}
	for i, slice := range all {
		if slice.Spec.Driver != gpu.Driver || slice.Spec.NodeName == nil || len(slice.Spec.Devices) < 2 {
			continue
		}
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: *slice.Spec.NodeName}}
		gpus, best, ok := near.BestDevices(node, taken, s.gpus)
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
		id := inventory.DeviceID{Driver: slice.Spec.Driver, Pool: slice.Spec.Pool.Name, Device: d.Name}
		if index, ok := gpus.Index(id); ok && best.Has(index) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(ordered.Spec.Devices, func(a, b resourceapi.Device) int { return cmp.Compare(later(a), later(b)) })
	return orderedSlice{slice, &ordered, gpus, best}
}

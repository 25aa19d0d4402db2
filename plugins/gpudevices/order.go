package gpudevices

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/placement/inventory"
)

// orderedSlices lists slices with the GPUs first that a pod is best given.
type orderedSlices struct {
	fwk.ResourceSliceLister
	claims fwk.ResourceClaimTracker
	mix    *placement.Mix
	// gpus is how many GPUs the pod asks for, 0 while there is none.
	gpus int
}

// ListWithDeviceTaintRules returns the scheduler's slices. Those of which the order is
// another one are copies.
func (s *orderedSlices) ListWithDeviceTaintRules() ([]*resourceapi.ResourceSlice, error) {
	all, err := s.ResourceSliceLister.ListWithDeviceTaintRules()
	islands := s.mix.Islands()
	if err != nil || s.gpus == 0 || islands == nil {
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
		best, ok := islands.BestDevices(node, taken, s.gpus)
		if !ok {
			continue
		}
		ordered := *slice
		ordered.Spec.Devices = slices.Clone(slice.Spec.Devices)
		slices.SortStableFunc(ordered.Spec.Devices, func(a, b resourceapi.Device) int {
			switch x, y := best(device(slice, a)), best(device(slice, b)); {
			case x && !y:
				return -1
			case y && !x:
				return 1
			}
			return 0
		})
		all[i] = &ordered
	}
	return all, nil
}

func device(slice *resourceapi.ResourceSlice, d resourceapi.Device) inventory.DeviceID {
	return inventory.DeviceID{Driver: slice.Spec.Driver, Pool: slice.Spec.Pool.Name, Device: d.Name}
}

package placement

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"
)

// devices are the scheduler's devices and ResourceClaims, with those laid over
// them that a trial has made and allocated. The scheduler's own are never
// written to.
type devices struct {
	fwk.SharedDRAManager
	tracker *claimTracker
}

func newDevices(base fwk.SharedDRAManager, consumable bool) *devices {
	return &devices{base, &claimTracker{
		ResourceClaimTracker: base.ResourceClaims(),
		made:                 map[string]*resourceapi.ResourceClaim{},
		allocated:            map[types.UID]*resourceapi.ResourceClaim{},
		absent:               map[types.UID]*v1.Pod{},
		consumable:           consumable,
	}}
}

func (d *devices) ResourceClaims() fwk.ResourceClaimTracker { return d.tracker }

// claimTracker is used on the scheduling goroutine alone.
type claimTracker struct {
	fwk.ResourceClaimTracker
	// made are claims by namespace/name, for templates.
	made map[string]*resourceapi.ResourceClaim
	// allocated are claims of either kind that have got devices.
	allocated map[types.UID]*resourceapi.ResourceClaim
	// pools are the nodes whose GPUs are counted, by the pools of these.
	pools map[string]*nodeDevices
	// absent are pods that count as gone: devices that only they have are free.
	absent map[types.UID]*v1.Pod
	// consumable: devices may be shared by their capacity.
	consumable bool
	// record takes down how to undo a change.
	record func(undo func())
}

// lay adds a claim that a template stands for.
func (t *claimTracker) lay(claim *resourceapi.ResourceClaim) {
	key := claim.Namespace + "/" + claim.Name
	t.record(func() { delete(t.made, key) })
	t.made[key] = claim
}

// Get shows a claim as it will be once the pods placed before are bound. One
// that the scheduler is allocating for another pod counts as allocated.
func (t *claimTracker) Get(namespace, name string) (*resourceapi.ResourceClaim, error) {
	claim, ok := t.made[namespace+"/"+name]
	if !ok {
		var err error
		if claim, err = t.ResourceClaimTracker.Get(namespace, name); err != nil {
			return nil, err
		}
	}
	if allocated, ok := t.allocated[claim.UID]; ok {
		return allocated, nil
	}
	if claim.Status.Allocation == nil {
		if pending := t.ResourceClaimTracker.GetPendingAllocation(claim.UID); pending != nil {
			claim = claim.DeepCopy()
			claim.Status.Allocation = pending
		}
	}
	return claim, nil
}

// GetPendingAllocation returns none: Get shows such a claim as allocated.
func (t *claimTracker) GetPendingAllocation(types.UID) *resourceapi.AllocationResult { return nil }

// SignalClaimPendingAllocation is called by Reserve.
func (t *claimTracker) SignalClaimPendingAllocation(uid types.UID, allocated *resourceapi.ResourceClaim) error {
	t.record(func() {
		delete(t.allocated, uid)
		t.count(allocated, false)
	})
	t.allocated[uid] = allocated
	t.count(allocated, true)
	return nil
}

// ListAllAllocatedDevices adds the trial's to the scheduler's.
func (t *claimTracker) ListAllAllocatedDevices() (sets.Set[structured.DeviceID], error) {
	found, err := t.ResourceClaimTracker.ListAllAllocatedDevices()
	if err != nil {
		return nil, err
	}
	t.setFree(found)
	for _, claim := range t.allocated {
		for _, r := range claim.Status.Allocation.Devices.Results {
			if !ptr.Deref(r.AdminAccess, false) {
				found.Insert(structured.MakeDeviceID(r.Driver, r.Pool, r.Device))
			}
		}
	}
	return found, nil
}

// setFree takes those devices out that only absent pods have.
func (t *claimTracker) setFree(allocated sets.Set[structured.DeviceID]) {
	for _, pod := range t.absent {
		for name := range resourceclaim.PodClaims(pod) {
			claim, err := t.ResourceClaimTracker.Get(pod.Namespace, name)
			if err != nil || claim.Status.Allocation == nil || t.allocated[claim.UID] != nil || slices.ContainsFunc(claim.Status.ReservedFor, t.isThere) {
				continue
			}
			for _, r := range claim.Status.Allocation.Devices.Results {
				if !ptr.Deref(r.AdminAccess, false) {
					allocated.Delete(structured.MakeDeviceID(r.Driver, r.Pool, r.Device))
				}
			}
		}
	}
}

func (t *claimTracker) isThere(consumer resourceapi.ResourceClaimConsumerReference) bool {
	return t.absent[consumer.UID] == nil
}

// absent has a pod count as gone, or not any more. Nil has no devices.
func (c *claims) absent(pod *v1.Pod, gone bool) {
	switch {
	case c == nil || c.devices == nil:
	case gone:
		c.devices.tracker.absent[pod.UID] = pod
	default:
		delete(c.devices.tracker.absent, pod.UID)
	}
}

// GatherAllocatedState adds the trial's devices and shares of devices to the
// scheduler's.
func (t *claimTracker) GatherAllocatedState() (*structured.AllocatedState, error) {
	found, err := t.ResourceClaimTracker.GatherAllocatedState()
	if err != nil {
		return nil, err
	}
	t.setFree(found.AllocatedDevices)
	for _, claim := range t.allocated {
		for _, r := range claim.Status.Allocation.Devices.Results {
			id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
			switch {
			case ptr.Deref(r.AdminAccess, false):
			case t.consumable && r.ShareID != nil:
				found.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
				if r.ConsumedCapacity != nil {
					found.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
				}
			default:
				found.AllocatedDevices.Insert(id)
			}
		}
	}
	return found, nil
}

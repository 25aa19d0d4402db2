package placement

import (
	"fmt"
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
	// order is the devices as the plugin that gives them to pods sees them.
	order *DeviceOrder
}

func newDevices(base fwk.SharedDRAManager, nodes fwk.NodeInfoLister, consumable bool, mix *Mix) *devices {
	d := &devices{SharedDRAManager: base, tracker: &claimTracker{
		ResourceClaimTracker: base.ResourceClaims(),
		nodes:                nodes,
		made:                 map[string]*resourceapi.ResourceClaim{},
		allocated:            map[types.UID]*resourceapi.ResourceClaim{},
		absent:               map[types.UID]*v1.Pod{},
		consumable:           consumable,
	}}
	d.order = NewDeviceOrder(d, mix)
	return d
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
	// nodes are the snapshot's.
	nodes fwk.NodeInfoLister
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
	if err := t.setFree(found); err != nil {
		return nil, err
	}
	for _, claim := range t.allocated {
		for _, r := range claim.Status.Allocation.Devices.Results {
			if !ptr.Deref(r.AdminAccess, false) {
				found.Insert(structured.MakeDeviceID(r.Driver, r.Pool, r.Device))
			}
		}
	}
	return found, nil
}

// setFree takes those devices out that only absent pods have. Where other pods that had
// them too are on no node any more, only their controller has not heard of that yet.
func (t *claimTracker) setFree(allocated sets.Set[structured.DeviceID]) error {
	isAbsent := func(c resourceapi.ResourceClaimConsumerReference) bool { return t.absent[c.UID] != nil }
	var pods sets.Set[types.UID]
	for _, pod := range t.absent {
		for name := range resourceclaim.PodClaims(pod) {
			claim, err := t.ResourceClaimTracker.Get(pod.Namespace, name)
			if err != nil || claim.Status.Allocation == nil || t.allocated[claim.UID] != nil {
				continue
			}
			if others := slices.DeleteFunc(slices.Clone(claim.Status.ReservedFor), isAbsent); len(others) > 0 {
				if pods == nil {
					if pods, err = t.pods(); err != nil {
						return err
					}
				}
				if !haveGone(others, pods) {
					continue
				}
			}
			for _, r := range claim.Status.Allocation.Devices.Results {
				if !ptr.Deref(r.AdminAccess, false) {
					allocated.Delete(structured.MakeDeviceID(r.Driver, r.Pool, r.Device))
				}
			}
		}
	}
	return nil
}

// haveGone says that all consumers are pods, and none of these.
func haveGone(consumers []resourceapi.ResourceClaimConsumerReference, pods sets.Set[types.UID]) bool {
	return !slices.ContainsFunc(consumers, func(c resourceapi.ResourceClaimConsumerReference) bool {
		return c.APIGroup != "" || c.Resource != "pods" || pods.Has(c.UID)
	})
}

// pods are those that are on nodes or absent.
func (t *claimTracker) pods() (sets.Set[types.UID], error) {
	nodes, err := t.nodes.List()
	if err != nil {
		return nil, fmt.Errorf("listing the snapshot's nodes: %w", err)
	}
	pods := sets.KeySet(t.absent)
	for _, node := range nodes {
		for _, info := range node.GetPods() {
			pods.Insert(info.GetPod().UID)
		}
	}
	return pods, nil
}

// leftBehind is how many devices are allocated to pods alone that are on no node any more.
// They count as taken, because a pod that is bound gets them only once they are given
// back: a moment after the pods have gone, by another controller.
func (t *claimTracker) leftBehind() (n int, err error) {
	claims, err := t.List()
	if err != nil {
		return 0, fmt.Errorf("listing ResourceClaims: %w", err)
	}
	pods, err := t.pods()
	if err != nil {
		return 0, err
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil || len(claim.Status.ReservedFor) == 0 || !haveGone(claim.Status.ReservedFor, pods) {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			if !ptr.Deref(r.AdminAccess, false) {
				n++
			}
		}
	}
	return n, nil
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
	if err := t.setFree(found.AllocatedDevices); err != nil {
		return nil, err
	}
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

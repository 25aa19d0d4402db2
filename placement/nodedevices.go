package placement

import (
	"errors"
	"maps"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/placement/inventory"
	"github.com/muster-gpu/muster/placement/islands"
)

// nodeDevices are the GPUs that a node has as devices and does not advertise, and which
// of them are free on a trial.
type nodeDevices struct {
	// gpus is nil where there are none.
	gpus      *inventory.Node
	all, free islands.Set
}

// deviceNode shows the GPUs that a node has as devices as if it advertised them, so
// that they are counted like others. Devices that a pod's claim rules out count too:
// what a node lets in is for Filter to say, which is not shown this.
type deviceNode struct {
	fwk.NodeInfo
	*nodeDevices
	allocatable fwk.Resource
}

func (n *deviceNode) GetAllocatable() fwk.Resource { return n.allocatable }

func (n *deviceNode) GetRequested() fwk.Resource {
	return withGPUs(n.NodeInfo.GetRequested(), n.all.Len()-n.free.Len())
}

// bare is a node as the plugins know it.
func bare(node fwk.NodeInfo) fwk.NodeInfo {
	if n, ok := node.(*deviceNode); ok {
		return n.NodeInfo
	}
	return node
}

// someGPUs are resources with another number of GPUs.
type someGPUs struct {
	fwk.Resource
	scalars map[v1.ResourceName]int64
}

func (r *someGPUs) GetScalarResources() map[v1.ResourceName]int64 { return r.scalars }

func withGPUs(r fwk.Resource, gpus int) fwk.Resource {
	scalars := maps.Clone(r.GetScalarResources())
	if scalars == nil {
		scalars = map[v1.ResourceName]int64{}
	}
	scalars[gpu.NVIDIA] = int64(gpus)
	return &someGPUs{r, scalars}
}

// showDevices has GPUs that are devices counted on the trial's nodes, with what is
// allocated of them now and by the trial. Nodes are left out of which it is not known
// how many they have: where parts of GPUs are devices too, or those of another driver.
func (t *trial) showDevices() error {
	allocated, err := t.claims.devices.tracker.ListAllAllocatedDevices()
	if err != nil {
		return err
	}
	others, anywhere, err := t.claims.devices.others()
	if err != nil {
		return err
	}
	pools := map[string]*nodeDevices{}
	nodes := make([]fwk.NodeInfo, len(t.nodes))
	for i, node := range t.nodes {
		nodes[i] = node
		if node.Node() == nil || node.GetAllocatable().GetScalarResources()[gpu.NVIDIA] > 0 {
			continue
		}
		devices := &nodeDevices{}
		switch known, ok := t.islands.source.Node(node.Node()); {
		case ok && known.HasDevices():
			if !known.WholeDevices() {
				continue
			}
			devices.gpus, devices.all = known, islands.First(known.Shape.Devices())
			for _, d := range known.Devices() {
				pools[d.ID.Pool.String()] = devices
			}
		case anywhere || others.Has(node.Node().Name):
			continue
		}
		devices.free = devices.all
		nodes[i] = &deviceNode{node, devices, withGPUs(node.GetAllocatable(), devices.all.Len())}
	}
	for id := range allocated {
		pools[id.Pool.String()].take(id, true)
	}
	t.nodes, t.claims.devices.tracker.pools = nodes, pools
	return nil
}

// others are the nodes that have devices of other drivers than NVIDIA's for GPUs;
// anywhere says that there are devices of no one node.
func (d *devices) others() (nodes sets.Set[string], anywhere bool, err error) {
	all, err := d.ResourceSlices().ListWithDeviceTaintRules()
	nodes = sets.New[string]()
	for _, slice := range all {
		switch {
		case slice.Spec.NodeName == nil:
			anywhere = true
		case slice.Spec.Driver != gpu.Driver:
			nodes.Insert(*slice.Spec.NodeName)
		}
	}
	return nodes, anywhere, err
}

// take has a device taken, or free again. Nil has none.
func (d *nodeDevices) take(id structured.DeviceID, taken bool) {
	if d == nil {
		return
	}
	index, ok := d.gpus.Index(id)
	switch {
	case !ok:
	case taken:
		d.free &^= islands.SetOf(index)
	default:
		d.free |= islands.SetOf(index)
	}
}

// count has the devices of an allocated claim taken in the trial's picture of nodes, or
// free again.
func (t *claimTracker) count(claim *resourceapi.ResourceClaim, taken bool) {
	for _, r := range claim.Status.Allocation.Devices.Results {
		if !ptr.Deref(r.AdminAccess, false) {
			t.pools[r.Pool].take(structured.MakeDeviceID(r.Driver, r.Pool, r.Device), taken)
		}
	}
}

// ClaimedGPUs is how many whole GPUs a claim asks for in any case: alternatives, and
// all that there are, are no number.
func (i *Islands) ClaimedGPUs(spec *resourceapi.ResourceClaimSpec) (n int64) {
	for _, request := range spec.Devices.Requests {
		exact := request.Exactly
		if exact == nil || !i.classes.Has(exact.DeviceClassName) || ptr.Deref(exact.AdminAccess, false) {
			continue
		}
		if exact.AllocationMode == resourceapi.DeviceAllocationModeExactCount || exact.AllocationMode == "" {
			n += max(1, exact.Count)
		}
	}
	return n
}

// gpusOf is how many GPUs the pod still claims for itself: those that it shares with
// others, or has already, do not count. Nil islands count none.
func (c *claims) gpusOf(pod *v1.Pod, i *Islands) (n int64) {
	if c == nil || c.devices == nil || i == nil {
		return 0
	}
	for k := range pod.Spec.ResourceClaims {
		claim := &pod.Spec.ResourceClaims[k]
		if claim.ResourceClaimTemplateName == nil {
			continue
		}
		name, _, err := resourceclaim.Name(pod, claim)
		switch {
		case errors.Is(err, resourceclaim.ErrClaimNotFound):
			// What is wrong with the template is for the plan to say.
			if template, err := c.templates.ResourceClaimTemplates(pod.Namespace).Get(*claim.ResourceClaimTemplateName); err == nil {
				n += i.ClaimedGPUs(&template.Spec.Spec)
			}
		case err == nil && name != nil:
			if made, err := c.devices.tracker.Get(pod.Namespace, *name); err == nil && made.Status.Allocation == nil {
				n += i.ClaimedGPUs(&made.Spec)
			}
		}
	}
	return n
}

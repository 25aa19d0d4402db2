package placement

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// GPUDevices is the name of the plugin that may stand in profiles for DynamicResources.
const GPUDevices = "GPUDevices"

// isDevice tells whether devices may stand behind an extended resource: on nodes that
// do not advertise it the scheduler makes a claim for it. Nil claims know of none.
func (c *claims) isDevice(name v1.ResourceName) bool {
	return c != nil && c.devices != nil && c.devices.DeviceClassResolver().GetDeviceClass(name) != nil
}

// usedBy tells whether what the pod claims must be planned, its extended resources
// included.
func (c *claims) usedBy(pod *v1.Pod) bool { return usesClaims(pod) || len(c.extended(pod)) > 0 }

// extended are the resources of the pod behind which there may be devices.
func (c *claims) extended(pod *v1.Pod) (names []v1.ResourceName) {
	if c == nil || c.devices == nil {
		return nil
	}
	for name, quantity := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if !quantity.IsZero() && c.isDevice(name) {
			names = append(names, name)
		}
	}
	return names
}

// awaitsDevices tells whether the pod is a hold that will take devices of the node for
// an extended resource. For pods of the API that are being bound the scheduler has
// taken them already.
func (c *claims) awaitsDevices(pod *v1.Pod, node fwk.NodeInfo) bool {
	if pod.ResourceVersion != "" {
		return false
	}
	for _, name := range c.extended(pod) {
		if node.GetAllocatable().GetScalarResources()[name] == 0 {
			return true
		}
	}
	return false
}

// demandOf is what a pod asks for, the GPUs that it claims included.
func (t *trial) demandOf(pod *framework.PodInfo) demand {
	d := t.claims.demandOf(pod.CalculateResource().Resource, t.isGPU)
	d.claim(t.claims.gpusOf(pod.Pod, t.islands))
	return d
}

// demandOf is a demand that knows behind which resources there may be devices.
func (c *claims) demandOf(request fwk.Resource, isGPU func(v1.ResourceName) bool) demand {
	d := demandOf(request, isGPU)
	for i := range d.scalars {
		d.scalars[i].device = c.isDevice(d.scalars[i].name)
	}
	return d
}

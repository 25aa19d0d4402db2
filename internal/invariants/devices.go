package invariants

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	gpuapi "github.com/muster-gpu/muster/api/gpu"
)

// seeSlice counts the GPUs that a node has as devices. Parts of GPUs do not count.
func (c *Checker) seeSlice(o *resourceapi.ResourceSlice, gone bool) {
	if o.Spec.Driver != gpuapi.Driver || o.Spec.NodeName == nil {
		return
	}
	n := c.node(*o.Spec.NodeName)
	devices := maps.Clone(n.devices)
	delete(devices, o.Name)
	if !gone {
		if devices == nil {
			devices = map[string]int64{}
		}
		for _, d := range o.Spec.Devices {
			if kind := d.Attributes["type"].StringValue; kind == nil || *kind == "gpu" {
				devices[o.Name]++
			}
		}
	}
	n.devices = devices
	if n.exists {
		c.resize(n, *o.Spec.NodeName, false)
	}
}

// limit is what pods may take of the node. Where it advertises no GPUs, those count
// that are devices.
func (n *node) limit() amounts[corev1.ResourceName] {
	limit := maps.Clone(n.allocatable)
	if _, advertised := limit[gpuapi.NVIDIA]; !advertised && n.exists {
		for _, devices := range n.devices {
			limit.add(gpuapi.NVIDIA, *resource.NewQuantity(devices, resource.DecimalSI))
		}
	}
	return limit
}

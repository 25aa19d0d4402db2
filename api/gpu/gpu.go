// Package gpu knows which resources are GPUs. It decides nothing.
package gpu

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// NVIDIA is the resource of which one unit is one whole GPU of NVIDIA, where a node
// does not share its GPUs out under this name.
const NVIDIA corev1.ResourceName = "nvidia.com/gpu"

// Driver is the name of NVIDIA's driver for dynamic resource allocation of GPUs, and of
// its DeviceClass of whole GPUs.
const Driver = "gpu.nvidia.com"

// resources are the extended resources of which one unit is one GPU, or one
// slice of a GPU that is handed out like one. A name that ends in '*' stands
// for every resource with that prefix. Resources that count parts of a GPU
// (memory, millicores, tiles) are not GPUs.
var resources = []string{
	string(NVIDIA),
	"nvidia.com/gpu.shared",
	"nvidia.com/mig-*",
	"amd.com/gpu",
	"gpu.intel.com/i915",
	"gpu.intel.com/xe",
}

// Names are the names of all GPU resources. One that ends in '*' stands for every
// resource with that prefix.
func Names() []string { return slices.Clone(resources) }

// Is says that one unit of the resource is one GPU.
func Is(name corev1.ResourceName) bool {
	return slices.ContainsFunc(resources, func(known string) bool {
		if prefix, open := strings.CutSuffix(known, "*"); open {
			return strings.HasPrefix(string(name), prefix)
		}
		return string(name) == known
	})
}

// Whole says that one unit of the resource is one whole GPU, so that "8 GPUs"
// says all about eight of them; slices are better called by their names.
func Whole(name corev1.ResourceName) bool {
	return Is(name) && !strings.HasPrefix(string(name), "nvidia.com/mig-") && name != "nvidia.com/gpu.shared"
}

package placement

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-gpu/muster/api/gpu"
)

// demand is what one pod of a class asks of a node.
type demand struct {
	milliCPU, memory, ephemeral int64
	scalars                     []scalar
	// gpus is the number of GPUs, over all resource names.
	gpus int64
}

type scalar struct {
	name     v1.ResourceName
	quantity int64
	gpu      bool
	// device: nodes that advertise none of it may have it as devices. Where these are
	// not counted nobody but Filter says how many are free.
	device bool
}

// unknown says that the resource may be there as devices that are not counted.
func (s *scalar) unknown(allocatable fwk.Resource) bool {
	if _, counted := allocatable.(*someGPUs); counted && s.name == gpu.NVIDIA {
		return false
	}
	return s.device && allocatable.GetScalarResources()[s.name] == 0
}

// unknownGPUs says that GPUs of the demand may be there as devices.
func (d *demand) unknownGPUs(allocatable fwk.Resource) bool {
	return slices.ContainsFunc(d.scalars, func(s scalar) bool { return s.gpu && s.unknown(allocatable) })
}

func demandOf(request fwk.Resource, isGPU func(v1.ResourceName) bool) demand {
	d := demand{
		milliCPU:  request.GetMilliCPU(),
		memory:    request.GetMemory(),
		ephemeral: request.GetEphemeralStorage(),
	}
	for name, quantity := range request.GetScalarResources() {
		if quantity <= 0 {
			continue
		}
		d.scalars = append(d.scalars, scalar{name: name, quantity: quantity, gpu: isGPU(name)})
		if isGPU(name) {
			d.gpus += quantity
		}
	}
	slices.SortFunc(d.scalars, func(a, b scalar) int { return strings.Compare(string(a.name), string(b.name)) })
	return d
}

// claim adds GPUs that the pod gets as devices alone: which nodes have them otherwise
// is nothing to it.
func (d *demand) claim(gpus int64) {
	if gpus == 0 {
		return
	}
	d.gpus += gpus
	at := slices.IndexFunc(d.scalars, func(s scalar) bool { return s.name == gpu.NVIDIA })
	if at < 0 {
		d.scalars = append(d.scalars, scalar{name: gpu.NVIDIA, gpu: true, device: true})
		at = len(d.scalars) - 1
	}
	d.scalars[at].quantity += gpus
}

// compare orders the most demanding first: what is hardest to place chooses
// while most nodes are still empty.
func (d *demand) compare(other *demand) int {
	return cmp.Or(
		cmp.Compare(other.gpus, d.gpus),
		cmp.Compare(other.milliCPU, d.milliCPU),
		cmp.Compare(other.memory, d.memory))
}

// room is how many more pods fit between what is allocatable and what pods
// pods have requested, at most limit. A resource that is not asked for does
// not count, even if it is overcommitted, as in the NodeResourcesFit plugin.
func (d *demand) room(allocatable, requested fwk.Resource, pods, limit int) int {
	n, _ := d.roomAndGPUs(allocatable, requested, pods, limit)
	return n
}

// roomAndGPUs is room with the free GPUs that the demand's own resource names
// have. Where there is no room the GPUs may be too few.
func (d *demand) roomAndGPUs(allocatable, requested fwk.Resource, pods, limit int) (room int, gpus int64) {
	n := int64(min(limit, allocatable.GetAllowedPodNumber()-pods))
	n = fit(n, d.milliCPU, allocatable.GetMilliCPU()-requested.GetMilliCPU())
	n = fit(n, d.memory, allocatable.GetMemory()-requested.GetMemory())
	n = fit(n, d.ephemeral, allocatable.GetEphemeralStorage()-requested.GetEphemeralStorage())
	for i := range d.scalars {
		if n <= 0 {
			return 0, gpus
		}
		s := &d.scalars[i]
		if s.unknown(allocatable) {
			continue
		}
		free := allocatable.GetScalarResources()[s.name] - requested.GetScalarResources()[s.name]
		n = fit(n, s.quantity, free)
		if s.gpu {
			gpus += free
		}
	}
	return int(max(n, 0)), gpus
}

// roomBeside is room once a pod of another demand is there too, -1 if there is
// none for that one.
func (d *demand) roomBeside(other *demand, allocatable, requested fwk.Resource, pods, limit int) int {
	if other.room(allocatable, requested, pods, 1) == 0 {
		return -1
	}
	n := int64(min(limit, allocatable.GetAllowedPodNumber()-pods-1))
	n = fit(n, d.milliCPU, allocatable.GetMilliCPU()-requested.GetMilliCPU()-other.milliCPU)
	n = fit(n, d.memory, allocatable.GetMemory()-requested.GetMemory()-other.memory)
	n = fit(n, d.ephemeral, allocatable.GetEphemeralStorage()-requested.GetEphemeralStorage()-other.ephemeral)
	for i := range d.scalars {
		s := &d.scalars[i]
		if s.unknown(allocatable) {
			continue
		}
		free := allocatable.GetScalarResources()[s.name] - requested.GetScalarResources()[s.name]
		for k := range other.scalars {
			if other.scalars[k].name == s.name {
				free -= other.scalars[k].quantity
			}
		}
		n = fit(n, s.quantity, free)
	}
	return int(max(n, 0))
}

// gpuRoom is room with nothing but the GPUs counted, for a demand that has GPUs.
func (d *demand) gpuRoom(allocatable, requested fwk.Resource, limit int) int {
	n := int64(limit)
	for i := range d.scalars {
		if s := &d.scalars[i]; s.gpu && !s.unknown(allocatable) {
			n = fit(n, s.quantity, allocatable.GetScalarResources()[s.name]-requested.GetScalarResources()[s.name])
		}
	}
	return int(max(n, 0))
}

// fit bounds n by how many times quantity goes into free.
func fit(n, quantity, free int64) int64 {
	if quantity <= 0 {
		return n
	}
	return min(n, free/quantity)
}

// gpusOf sums the GPUs that the demand's own resource names have on a node:
// those of other models are no use to it. A demand without GPUs counts all.
func (d *demand) gpusOf(r fwk.Resource, isGPU func(v1.ResourceName) bool) int64 {
	scalars := r.GetScalarResources()
	var n int64
	if d.gpus > 0 {
		for i := range d.scalars {
			if d.scalars[i].gpu {
				n += scalars[d.scalars[i].name]
			}
		}
		return n
	}
	for name, quantity := range scalars {
		if isGPU(name) {
			n += quantity
		}
	}
	return n
}

//go:build cgo

package nvml

import (
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-gpu/muster/agent/device"
)

// unitsOf is a GPU and its slices. What was known of them stays.
func (d *Driver) unitsOf(gpu nvml.Device) ([]*unit, error) {
	uuid, ret := gpu.GetUUID()
	if ret != nvml.SUCCESS {
		return nil, failure("nvmlDeviceGetUUID", ret)
	}
	whole := d.known(uuid, gpu, gpu)
	if whole == nil {
		whole = newUnit(gpu, gpu)
		about, err := d.describe(whole, uuid)
		if err != nil {
			return nil, err
		}
		whole.device = about
	}
	slices, err := d.slicesOf(whole)
	if err != nil {
		return nil, err
	}
	return append([]*unit{whole}, slices...), nil
}

func newUnit(handle, gpu nvml.Device) *unit {
	return &unit{handle: handle, gpu: gpu}
}

// known is the unit of that UUID as it was, with a handle that may be another one; nil if
// there was none. A handle stays good as long as its device is there, so one that has
// changed is of a device that came back, of which nothing else is believed.
func (d *Driver) known(uuid string, handle, gpu nvml.Device) *unit {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.units[uuid]
	if u == nil || u.handle != handle || u.gpu != gpu {
		return nil
	}
	return u
}

// describe is what a whole GPU is.
func (d *Driver) describe(u *unit, uuid string) (device.Device, error) {
	about := device.Device{UUID: uuid, Minor: -1, GPUInstance: -1, ComputeInstance: -1, Share: device.Whole, NUMANode: -1}
	minor, ok, err := ask(d, &u.listing, "nvmlDeviceGetMinorNumber", u.gpu.GetMinorNumber)
	if err != nil {
		return about, err
	}
	if ok {
		about.Minor = minor
	}
	if about.Product, _, err = ask(d, &u.listing, "nvmlDeviceGetName", u.gpu.GetName); err != nil {
		return about, err
	}
	memory, _, err := ask(d, &u.listing, "nvmlDeviceGetMemoryInfo", u.gpu.GetMemoryInfo)
	if err != nil {
		return about, err
	}
	about.MemoryBytes = memory.Total
	pci, ok, err := ask(d, &u.listing, "nvmlDeviceGetPciInfo", u.gpu.GetPciInfo)
	if err != nil {
		return about, err
	}
	if ok {
		about.NUMANode, about.PCIRoot = place(d.pci, textOf(pci.BusId[:]))
	}
	return about, nil
}

// slicesOf are the slices of a GPU.
func (d *Driver) slicesOf(whole *unit) ([]*unit, error) {
	mode, ok, err := ask(d, &whole.listing, "nvmlDeviceGetMigMode", func() (int, nvml.Return) {
		now, _, ret := whole.gpu.GetMigMode()
		return now, ret
	})
	if err != nil || !ok || mode != nvml.DEVICE_MIG_ENABLE {
		return nil, err
	}
	most, ok, err := ask(d, &whole.listing, "nvmlDeviceGetMaxMigDeviceCount", whole.gpu.GetMaxMigDeviceCount)
	if err != nil || !ok || !d.has("nvmlDeviceGetMigDeviceHandleByIndex") {
		return nil, err
	}
	var all []*unit
	for i := range most {
		handle, ret := whole.gpu.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			// There are as many as were cut.
			continue
		}
		uuid, ret := handle.GetUUID()
		if ret != nvml.SUCCESS {
			continue
		}
		slice := d.known(uuid, handle, whole.gpu)
		if slice == nil {
			slice = newUnit(handle, whole.gpu)
			if slice.device, err = d.describeSlice(slice, whole.device, uuid, most); err != nil {
				return nil, err
			}
		}
		all = append(all, slice)
	}
	return all, nil
}

// describeSlice is what a slice is, of a GPU that has at most so many.
func (d *Driver) describeSlice(u *unit, whole device.Device, uuid string, most int) (device.Device, error) {
	about := whole
	about.UUID, about.Parent, about.Peers, about.Island = uuid, whole.UUID, nil, ""
	var err error
	if about.GPUInstance, _, err = ask(d, &u.listing, "nvmlDeviceGetGpuInstanceId", u.handle.GetGpuInstanceId); err != nil {
		return about, err
	}
	if about.ComputeInstance, _, err = ask(d, &u.listing, "nvmlDeviceGetComputeInstanceId", u.handle.GetComputeInstanceId); err != nil {
		return about, err
	}
	name, _, err := ask(d, &u.listing, "nvmlDeviceGetName", u.handle.GetName)
	if err != nil {
		return about, err
	}
	// As "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
	if _, profile, found := strings.Cut(name, " MIG "); found {
		about.Profile = profile
	}
	attributes, ok, err := ask(d, &u.listing, "nvmlDeviceGetAttributes", u.handle.GetAttributes)
	if err != nil {
		return about, err
	}
	about.Share = device.Share{Parts: 1, Of: int64(max(most, 1))}
	if ok {
		// Several compute instances may have the slices of one GPU instance.
		about.Share.Parts = int64(max(1, min(int(attributes.ComputeInstanceSliceCount), most)))
		about.MemoryBytes = attributes.MemorySizeMB << 20
	}
	return about, nil
}

// textOf is a string of C.
func textOf(chars []int8) string {
	var b strings.Builder
	for _, c := range chars {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}

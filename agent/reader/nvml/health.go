//go:build cgo

package nvml

import (
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-gpu/muster/agent/device"
)

// recoveries are what the driver asks for, by the numbers of
// NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; 0 is nothing.
var recoveries = map[uint64]string{
	1: "a reset of the GPU", 2: "a reboot of the node", 3: "the GPU's peers to be drained", 4: "the GPU to be drained and reset",
}

// Health implements reader.Driver. A slice is as its GPU is.
func (d *Driver) Health(uuid string) (device.Health, error) {
	return about(d, uuid, d.health)
}

func (d *Driver) health(u *unit) (device.Health, error) {
	var h device.Health
	say := func(format string, values ...any) { h.Reasons = append(h.Reasons, fmt.Sprintf(format, values...)) }

	type rows struct{ pending, failed bool }
	remapped, ok, err := ask(d, &u.memory, "nvmlDeviceGetRemappedRows", func() (rows, nvml.Return) {
		_, _, pending, failed, ret := u.gpu.GetRemappedRows()
		return rows{pending, failed}, ret
	})
	if err != nil {
		return device.Health{}, err
	}
	if ok && remapped.failed {
		say("rows of its memory could not be remapped")
	}
	if ok && remapped.pending {
		say("rows of its memory wait for a reset to be remapped")
	}
	errors, ok, err := ask(d, &u.memory, "nvmlDeviceGetTotalEccErrors", func() (uint64, nvml.Return) {
		return u.gpu.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	})
	if err != nil {
		return device.Health{}, err
	}
	if ok && errors > 0 {
		say("%d errors of its memory since the driver was loaded could not be corrected", errors)
	}
	action, ok, err := ask(d, &u.memory, "nvmlDeviceGetFieldValues", func() (uint64, nvml.Return) {
		values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
		if ret := u.gpu.GetFieldValues(values); ret != nvml.SUCCESS {
			return 0, ret
		}
		// A driver that does not know the field says so in it alone.
		if nvml.Return(values[0].NvmlReturn) != nvml.SUCCESS {
			return 0, nvml.SUCCESS
		}
		return uint64(binary.NativeEndian.Uint32(values[0].Value[:4])), nvml.SUCCESS
	})
	if err != nil {
		return device.Health{}, err
	}
	if ok && action != 0 {
		asked, known := recoveries[action]
		if !known {
			asked = fmt.Sprintf("recovery action %d", action)
		}
		say("the driver asks for %s", asked)
	}
	h.XIDs = d.xids.of(cmp.Or(u.device.Parent, u.device.UUID))
	for _, number := range serious(h.XIDs) {
		say("the driver has reported Xid %d", number)
	}
	return h, nil
}

//go:build cgo

package nvml

import (
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-gpu/muster/agent/device"
)

// Processes implements reader.Driver. A process that computes and draws is one.
func (d *Driver) Processes(uuid string) ([]device.Process, error) {
	return about(d, uuid, d.processes)
}

func (d *Driver) processes(u *unit) ([]device.Process, error) {
	seen := map[uint32]int{}
	var all []device.Process
	for _, list := range []struct {
		function string
		call     func() ([]nvml.ProcessInfo, nvml.Return)
	}{
		{"nvmlDeviceGetComputeRunningProcesses", u.handle.GetComputeRunningProcesses},
		{"nvmlDeviceGetGraphicsRunningProcesses", u.handle.GetGraphicsRunningProcesses},
		{"nvmlDeviceGetMPSComputeRunningProcesses", u.handle.GetMPSComputeRunningProcesses},
	} {
		if u.memory.off[list.function] || !d.has(list.function) {
			continue
		}
		found, ret := list.call()
		switch ret {
		case nvml.SUCCESS:
		case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND:
			u.memory.lacks(list.function)
			continue
		default:
			// Half a list would be fewer processes than there are.
			return nil, failure(list.function, ret)
		}
		for _, p := range found {
			memory := p.UsedGpuMemory
			if memory == math.MaxUint64 {
				memory = 0
			}
			if at, known := seen[p.Pid]; known {
				all[at].MemoryBytes = max(all[at].MemoryBytes, memory)
				continue
			}
			seen[p.Pid] = len(all)
			all = append(all, device.Process{PID: p.Pid, MemoryBytes: memory})
		}
	}
	return all, nil
}

package holders

import (
	"regexp"

	"github.com/muster-gpu/muster/agent/device"
)

// draGPU is the name that NVIDIA's driver for resource claims gives a whole GPU, by its
// minor number.
var draGPU = regexp.MustCompile(`^gpu-([0-9]{1,4})$`)

// Resolve finds the device that an allocation is of. uuids are those of devices of
// claims, as their ResourceSlices say; whole GPUs are found by their names too, so
// that they have holders while the API server is away. It is false if there is no such
// device, or if it cannot be said which one it is.
func Resolve(id ID, devices []device.Device, uuids map[ID]string) (device.Device, bool) {
	if uuid := uuids[id]; uuid != "" {
		id = ID{UUID: uuid, Minor: -1, GPUInstance: -1}
	} else if name := draGPU.FindStringSubmatch(id.Device); name != nil {
		id = ID{Minor: number(name[1]), GPUInstance: -1}
	}
	for _, d := range devices {
		if id.UUID != "" && d.UUID == id.UUID || id.UUID == "" && id.Minor >= 0 && d.Minor == id.Minor && d.GPUInstance == id.GPUInstance {
			return d, true
		}
	}
	return device.Device{}, false
}

package reader

import (
	"errors"

	"github.com/muster-gpu/muster/agent/device"
)

// Driver is what knows the GPUs of this node. Calls cannot be called off, and may not
// return; a Poller never makes two at a time for one GPU and its slices, but for
// several GPUs, beside Devices.
type Driver interface {
	// Devices are the GPUs and slices that are there now, each slice after its GPU.
	Devices() ([]device.Device, error)
	// Sample is what has been measured on a device since the last call for it.
	// Processes is filled in by the Poller. A device without a signal of activity, as
	// a MIG slice of an Ampere, has a Failure and no error.
	Sample(uuid string) (device.Sample, error)
	// Processes are those that have a context on a device. It is the dearest call.
	Processes(uuid string) ([]device.Process, error)
	// Health is how a device is.
	Health(uuid string) (device.Health, error)
	// Close gives the driver back, so that it can be replaced. Calls after it fail.
	Close() error
}

var (
	// ErrLost: the driver cannot reach the device. It is asked again after a minute.
	ErrLost = errors.New("the driver has lost the device")
	// ErrRestart: the driver was unloaded or replaced under the program, which must
	// end and start anew to load it again.
	ErrRestart = errors.New("the driver was unloaded or replaced")
)

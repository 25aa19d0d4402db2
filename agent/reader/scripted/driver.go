package scripted

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/muster-gpu/muster/agent/device"
	"github.com/muster-gpu/muster/agent/reader"
)

var _ reader.Driver = (*Driver)(nil)

// Driver has devices that do what Set says. It is safe for concurrent use.
type Driver struct {
	mu sync.Mutex
	// changed wakes the calls that hang.
	changed *sync.Cond
	devices []device.Device
	does    map[string]doing
	// listing is that the list of devices hangs.
	listing bool
	// failing is why there are no devices.
	failing error
	closed  bool
	calls   map[string]int
}

type doing struct {
	activity Activity
	since    time.Time
}

// New has these devices, unused.
func New(devices ...device.Device) *Driver {
	d := &Driver{devices: devices, does: map[string]doing{}, calls: map[string]int{}}
	d.changed = sync.NewCond(&d.mu)
	return d
}

// Set has a device do something from now on. The same again changes nothing.
func (d *Driver) Set(uuid string, a Activity) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.does[uuid].activity != a {
		d.does[uuid] = doing{activity: a, since: time.Now()}
		d.changed.Broadcast()
	}
}

// SetDevices replaces the devices.
func (d *Driver) SetDevices(devices ...device.Device) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.devices = devices
}

// HangList has calls of Devices hang, or return again.
func (d *Driver) HangList(hang bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listing = hang
	d.changed.Broadcast()
}

// Calls is how often a call was made, as "Sample GPU-0" or "Devices".
func (d *Driver) Calls(call string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[call]
}

// Devices implements reader.Driver.
func (d *Driver) Devices() ([]device.Device, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls["Devices"]++
	for d.listing && !d.closed {
		d.changed.Wait()
	}
	if d.closed {
		return nil, errClosed
	}
	if len(d.devices) == 0 && d.failing != nil {
		return nil, d.failing
	}
	return slices.Clone(d.devices), nil
}

// Sample implements reader.Driver.
func (d *Driver) Sample(uuid string) (device.Sample, error) {
	k, err := d.call("Sample", uuid)
	return k.sample(), err
}

// Processes implements reader.Driver.
func (d *Driver) Processes(uuid string) ([]device.Process, error) {
	k, err := d.call("Processes", uuid)
	return k.processes(), err
}

// Health implements reader.Driver.
func (d *Driver) Health(uuid string) (device.Health, error) {
	_, err := d.call("Health", uuid)
	return device.Health{}, err
}

// Close implements reader.Driver.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.changed.Broadcast()
	return nil
}

var errClosed = errors.New("the driver is closed")

// call is one about a device, which returns when it does not hang any more.
func (d *Driver) call(name, uuid string) (kind, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[name+" "+uuid]++
	for {
		does := d.does[uuid]
		k := does.activity.at(time.Since(does.since))
		switch {
		case d.closed:
			return none, errClosed
		case k == hang:
			d.changed.Wait()
		case k == lost || !slices.ContainsFunc(d.devices, func(x device.Device) bool { return x.UUID == uuid }):
			return none, fmt.Errorf("%s of %s: %w", name, uuid, reader.ErrLost)
		default:
			return k, nil
		}
	}
}

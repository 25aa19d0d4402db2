//go:build cgo

package nvml

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-gpu/muster/agent/device"
	"github.com/muster-gpu/muster/agent/reader"
)

var _ reader.Driver = (*Driver)(nil)

// Driver asks NVIDIA's driver.
type Driver struct {
	library nvml.Interface
	// pci is the folder of PCI devices.
	pci  string
	xids *xids

	// mu is not held over a call of the library.
	mu     sync.Mutex
	loaded bool
	closed bool
	// listed says that devices could be listed once.
	listed bool
	units  map[string]*unit
	lacks  map[string]bool
	// out counts the calls that have not returned, and back is closed when none is out
	// of a driver that is closed.
	out  int
	back chan struct{}
}

// unit is one GPU or slice, and what is remembered of it. Calls about one GPU and its
// slices come one after the other.
type unit struct {
	device device.Device
	// handle is that of the slice, and gpu that of the whole GPU.
	handle, gpu nvml.Device

	// listing is of the calls that list devices, which nothing of the below is used by.
	listing memory

	// mu is held while anything is asked about the unit.
	mu     sync.Mutex
	memory memory
	gpm    gpm
	// seen is the time of the last of the driver's samples that was taken, in
	// microseconds.
	seen uint64
}

// pciDevices is where Linux has them.
const pciDevices = "/sys/bus/pci/devices"

// New loads the library at that path, or where the loader finds it if that is "", when
// devices are listed.
func New(library string) *Driver {
	var options []nvml.LibraryOption
	if library != "" {
		options = append(options, nvml.WithLibraryPath(library))
	}
	return &Driver{library: nvml.New(options...), pci: pciDevices, xids: newXIDs(), units: map[string]*unit{}, lacks: map[string]bool{}, back: make(chan struct{})}
}

var errClosed = errors.New("the driver was given back")

// enter is the begin of a call, unless the driver was given back; leave is its end.
func (d *Driver) enter() (leave func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed
	}
	d.out++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.out--
		if d.closed && d.out == 0 {
			close(d.back)
		}
	}, nil
}

// load loads the library, if it is not.
func (d *Driver) load() error {
	d.mu.Lock()
	loaded := d.loaded
	d.mu.Unlock()
	if loaded {
		return nil
	}
	switch ret := d.library.Init(); ret {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return errors.New("NVIDIA's library libnvidia-ml.so.1 cannot be loaded: there is no driver, or the container has none of it")
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return errors.New("NVIDIA's driver is not loaded")
	default:
		return failure("nvmlInit", ret)
	}
	d.mu.Lock()
	d.loaded = true
	d.mu.Unlock()
	return nil
}

// Devices implements reader.Driver. A GPU that the driver does not find any more stays
// in the list, so that it is known to be lost.
func (d *Driver) Devices() ([]device.Device, error) {
	leave, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := d.load(); err != nil {
		return nil, err
	}
	count, ret := d.library.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, d.gone(failure("nvmlDeviceGetCount", ret), ret)
	}
	var found []*unit
	var last error
	var lastRet nvml.Return
	for i := range count {
		handle, ret := d.library.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			last, lastRet = failure("nvmlDeviceGetHandleByIndex", ret), ret
			if errors.Is(last, reader.ErrRestart) {
				return nil, last
			}
			continue
		}
		units, err := d.unitsOf(handle)
		if err != nil {
			last, lastRet = err, nvml.ERROR_UNKNOWN
			continue
		}
		found = append(found, units...)
	}
	if len(found) == 0 && last != nil {
		return nil, d.gone(last, lastRet)
	}
	d.connect(found)
	devices, left := d.keep(found, last != nil)
	for _, u := range left {
		u.drop()
	}
	d.xids.follow(d, found)
	return devices, nil
}

// gone is ErrRestart where nothing is found any more that was: access to devices that
// is lost comes back with a new container only.
func (d *Driver) gone(err error, ret nvml.Return) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listed && (ret == nvml.ERROR_UNKNOWN || ret == nvml.ERROR_OPERATING_SYSTEM || ret == nvml.ERROR_NO_PERMISSION) {
		return errors.Join(err, reader.ErrRestart)
	}
	return err
}

// keep remembers the units, and returns their devices, and those that have gone. Some are
// missing if GPUs that are there could not be read.
func (d *Driver) keep(found []*unit, missing bool) (devices []device.Device, left []*unit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listed = true
	next := map[string]*unit{}
	for _, u := range found {
		next[u.device.UUID] = u
	}
	for _, u := range found {
		devices = append(devices, u.device)
	}
	for uuid, u := range d.units {
		switch {
		case next[uuid] != nil:
		case missing:
			next[uuid] = u
			devices = append(devices, u.device)
		default:
			left = append(left, u)
		}
	}
	d.units = next
	slices.SortStableFunc(devices, func(a, b device.Device) int { return a.Minor - b.Minor })
	return devices, left
}

// drop frees what a unit has of the library's, unless a call about it is out.
func (u *unit) drop() {
	if u.mu.TryLock() {
		u.gpm.free()
		u.mu.Unlock()
	}
}

// about calls something about the unit of that UUID, of which it holds the lock.
func about[T any](d *Driver, uuid string, call func(*unit) (T, error)) (T, error) {
	var none T
	leave, err := d.enter()
	if err != nil {
		return none, err
	}
	defer leave()
	d.mu.Lock()
	u := d.units[uuid]
	d.mu.Unlock()
	if u == nil {
		return none, fmt.Errorf("device %s: %w", uuid, reader.ErrLost)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return call(u)
}

// patience is how long Close waits for calls that are out; most take milliseconds.
const patience = time.Second

// Close implements reader.Driver. While calls are out the library is not unloaded: they
// would return to nowhere. Those that hang are not waited for.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	loaded, out := d.loaded, d.out
	d.closed = true
	units := d.units
	d.mu.Unlock()
	close(d.xids.stop)
	if out > 0 {
		select {
		case <-d.back:
		case <-time.After(patience):
			return errors.New("calls have not returned, so the end of the program gives the driver back")
		}
	}
	if !loaded {
		return nil
	}
	d.xids.free()
	for _, u := range units {
		u.drop()
	}
	if ret := d.library.Shutdown(); ret != nvml.SUCCESS {
		return failure("nvmlShutdown", ret)
	}
	return nil
}

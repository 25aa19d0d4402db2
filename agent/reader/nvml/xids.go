//go:build cgo

package nvml

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// ofPrograms are errors that a program makes, and that say nothing of the GPU: those
// that NVIDIA's device plugin passes over.
var ofPrograms = map[uint64]bool{13: true, 31: true, 43: true, 45: true, 68: true, 109: true}

// serious are those of the errors that are not of programs, sorted.
func serious(counts map[uint64]uint64) []uint64 {
	var all []uint64
	for number := range counts {
		if !ofPrograms[number] {
			all = append(all, number)
		}
	}
	slices.Sort(all)
	return all
}

const (
	// eventWait is how long one look for events takes.
	eventWait = 500 * time.Millisecond
	// eventRest is how long is rested when looking fails.
	eventRest = time.Minute
)

// xids counts the errors that the driver reports, by the UUIDs of the GPUs. Those from
// before the devices were listed first are not known.
type xids struct {
	mu     sync.Mutex
	counts map[string]map[uint64]uint64

	// setup is held while GPUs are added, and at the end.
	setup sync.Mutex
	// followed are the GPUs of which errors are told.
	followed map[string]bool
	set      nvml.EventSet
	stop     chan struct{}
	ended    chan struct{}
}

func newXIDs() *xids {
	return &xids{counts: map[string]map[uint64]uint64{}, followed: map[string]bool{}, stop: make(chan struct{})}
}

// of is how often each error was reported of a GPU.
func (x *xids) of(gpu string) map[uint64]uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.counts[gpu])
}

// follow has the errors of GPUs told that are new. Where the driver tells of none, there
// are none.
func (x *xids) follow(d *Driver, units []*unit) {
	for _, function := range []string{"nvmlEventSetCreate", "nvmlEventSetFree", "nvmlEventSetWait", "nvmlDeviceRegisterEvents", "nvmlDeviceGetSupportedEventTypes"} {
		if !d.has(function) {
			return
		}
	}
	x.setup.Lock()
	defer x.setup.Unlock()
	select {
	case <-x.stop:
		return
	default:
	}
	if x.set == nil {
		set, ret := d.library.EventSetCreate()
		if ret != nvml.SUCCESS {
			return
		}
		x.set = set
		x.ended = make(chan struct{})
		go x.watch()
	}
	for _, u := range units {
		uuid := u.device.UUID
		if u.device.Parent != "" || x.followed[uuid] {
			continue
		}
		supported, ret := u.gpu.GetSupportedEventTypes()
		if wanted := supported & nvml.EventTypeXidCriticalError; ret == nvml.SUCCESS && wanted != 0 {
			ret = u.gpu.RegisterEvents(wanted, x.set)
		}
		x.followed[uuid] = ret == nvml.SUCCESS
	}
}

// watch counts until the end.
func (x *xids) watch() {
	defer close(x.ended)
	for {
		select {
		case <-x.stop:
			return
		default:
		}
		event, ret := x.set.Wait(uint32(eventWait.Milliseconds()))
		switch {
		case ret == nvml.SUCCESS && event.EventType == nvml.EventTypeXidCriticalError:
			x.count(event)
		case ret == nvml.SUCCESS, ret == nvml.ERROR_TIMEOUT:
		default:
			select {
			case <-x.stop:
				return
			case <-time.After(eventRest):
			}
		}
	}
}

func (x *xids) count(event nvml.EventData) {
	uuid, ret := event.Device.GetUUID()
	if ret != nvml.SUCCESS {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.counts[uuid] == nil {
		x.counts[uuid] = map[uint64]uint64{}
	}
	x.counts[uuid][event.EventData]++
}

// free waits until counting has stopped, and gives the set back.
func (x *xids) free() {
	x.setup.Lock()
	defer x.setup.Unlock()
	if x.set == nil {
		return
	}
	<-x.ended
	x.set.Free()
}

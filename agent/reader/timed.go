package reader

import (
	"time"

	"github.com/muster-gpu/muster/agent/device"
)

// Call is one call into a driver that has come back, or is out.
type Call struct {
	// Name is "devices", "sample", "processes" or "health".
	Name string
	// Took is how long it took.
	Took time.Duration
	Err  error
}

// Watcher is told of the calls into a driver, from several goroutines.
type Watcher interface {
	Began(name string)
	Ended(Call)
}

// Timed is that driver, and tells of each call.
func Timed(driver Driver, watcher Watcher) Driver { return timed{driver, watcher} }

type timed struct {
	Driver
	watcher Watcher
}

func (t timed) Devices() ([]device.Device, error) {
	return tell(t.watcher, "devices", t.Driver.Devices)
}

func (t timed) Sample(uuid string) (device.Sample, error) {
	return tell(t.watcher, "sample", func() (device.Sample, error) { return t.Driver.Sample(uuid) })
}

func (t timed) Processes(uuid string) ([]device.Process, error) {
	return tell(t.watcher, "processes", func() ([]device.Process, error) { return t.Driver.Processes(uuid) })
}

func (t timed) Health(uuid string) (device.Health, error) {
	return tell(t.watcher, "health", func() (device.Health, error) { return t.Driver.Health(uuid) })
}

func tell[T any](w Watcher, name string, call func() (T, error)) (result T, err error) {
	began := time.Now()
	w.Began(name)
	// A call that panics is told of too.
	defer func() { w.Ended(Call{Name: name, Took: time.Since(began), Err: err}) }()
	return safely(call)
}

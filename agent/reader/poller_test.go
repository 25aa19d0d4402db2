package reader_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-gpu/muster/agent/device"
	"github.com/muster-gpu/muster/agent/reader"
	"github.com/muster-gpu/muster/agent/reader/scripted"
)

const tick = 15 * time.Second

// gpus are whole GPUs, GPU-0 and so on.
func gpus(n int) []device.Device {
	var all []device.Device
	for i := range n {
		all = append(all, device.Device{UUID: fmt.Sprint("GPU-", i), Share: device.Whole})
	}
	return all
}

func does(t *testing.T, text string) scripted.Activity {
	t.Helper()
	a, err := scripted.ParseActivity(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// node is a driver and its poller, whose GPUs are all held.
type node struct {
	*scripted.Driver
	poller *reader.Poller
	held   map[string]bool
}

func newNode(devices ...device.Device) *node {
	n := &node{Driver: scripted.New(devices...), held: map[string]bool{}}
	for _, d := range devices {
		n.held[d.UUID] = true
	}
	n.poller = reader.NewPoller(n.Driver, reader.DefaultPeriods())
	return n
}

// poll polls, waits for the tick to end, and gives the readings by device.
func (n *node) poll() (map[string]reader.Reading, error) {
	end := time.Now().Add(tick)
	readings, err := n.poller.Poll(context.Background(), n.held)
	by := map[string]reader.Reading{}
	for _, r := range readings {
		by[r.Device.UUID] = r
	}
	time.Sleep(time.Until(end))
	return by, err
}

// callsOut is how many goroutines are in a call into a driver. Of all goroutines the
// process has more or less: the runtime has some of its own.
func callsOut() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return strings.Count(string(stacks), "created by github.com/muster-gpu/muster/agent/reader.(*line).start ")
}

func TestADeviceThatHangsIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(gpus(8)...)
		for i := range 8 {
			n.Set(fmt.Sprint("GPU-", i), does(t, "busy"))
		}
		if _, err := n.poll(); err != nil {
			t.Fatal(err)
		}
		n.Set("GPU-3", does(t, "hang"))
		for i := range 100 {
			start := time.Now()
			readings, err := n.poller.Poll(context.Background(), n.held)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > reader.DefaultPeriods().Deadline {
				t.Fatalf("poll %d took %s", i, took)
			}
			for _, r := range readings {
				if failed := r.Sample.Failure != ""; failed != (r.Device.UUID == "GPU-3") {
					t.Fatalf("poll %d: %s: failure %q", i, r.Device.UUID, r.Sample.Failure)
				}
				if sick := !r.Health.Healthy(); sick != (r.Device.UUID == "GPU-3" && i >= 4) {
					t.Fatalf("poll %d: %s: healthy is %t", i, r.Device.UUID, !sick)
				}
			}
			time.Sleep(tick)
		}
		synctest.Wait()
		if out := callsOut(); out != 1 {
			t.Errorf("%d goroutines wait for the driver", out)
		}
		if calls := n.Calls("Sample GPU-3") + n.Calls("Health GPU-3"); calls > 4 {
			t.Errorf("%d calls about the device that hangs", calls)
		}
		n.Set("GPU-3", does(t, "busy"))
		synctest.Wait()
		readings, err := n.poll()
		if r := readings["GPU-3"]; err != nil || r.Sample.Failure != "" || !r.Health.Healthy() {
			t.Errorf("when the call has returned: %+v, %v", r, err)
		}
	})
}

// Who asks the agent to end, as an upgrade of the driver does, does not wait for the deadline.
func TestAPollThatIsCalledOffReturnsAtOnce(t *testing.T) {
	for name, hangs := range map[string]func(*node){
		"while a device hangs":        func(n *node) { n.Set("GPU-0", does(t, "hang")) },
		"while the list of them does": func(n *node) { n.HangList(true) },
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(gpus(2)...)
			hangs(n)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			_, _ = n.poller.Poll(ctx, n.held)
			if took := time.Since(start); took != time.Second {
				t.Errorf("%s: it took %s", name, took)
			}
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSlicesAreReadWithTheirGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(device.Device{UUID: "GPU-0"}, device.Device{UUID: "MIG-a", Parent: "GPU-0"}, device.Device{UUID: "MIG-b", Parent: "GPU-0"}, device.Device{UUID: "GPU-1"})
		n.Set("MIG-a", does(t, "hang"))
		for range 3 {
			readings, _ := n.poll()
			failed := map[string]bool{}
			for uuid, r := range readings {
				failed[uuid] = r.Sample.Failure != ""
			}
			if !failed["MIG-a"] || !failed["MIG-b"] || failed["GPU-1"] {
				t.Fatalf("failed: %v", failed)
			}
		}
		if calls := n.Calls("Sample MIG-b") + n.Calls("Health MIG-b"); calls != 0 {
			t.Errorf("%d calls about a slice while one is out about its GPU", calls)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestProcessesAreLookedForSeldomAndWhereSomebodyMayBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(gpus(2)...)
		n.held = map[string]bool{"GPU-0": true}
		n.Set("GPU-0", does(t, "idle"))
		for range 40 {
			readings, err := n.poll()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(device.Is(1), readings["GPU-0"].Sample.Processes); diff != "" {
				t.Fatalf("processes (-want +got):\n%s", diff)
			}
			if readings["GPU-1"].Sample.Processes.Known {
				t.Fatal("the processes of a GPU that nobody holds are known")
			}
		}
		want := map[string]int{"Sample GPU-0": 40, "Sample GPU-1": 40, "Processes GPU-0": 20, "Processes GPU-1": 0, "Health GPU-0": 10, "Devices": 10}
		got := map[string]int{}
		for call := range want {
			got[call] = n.Calls(call)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("calls in ten minutes (-want +got):\n%s", diff)
		}
		n.held = nil
		for range 4 {
			n.poll()
		}
		if readings, _ := n.poll(); readings["GPU-0"].Sample.Processes.Known {
			t.Error("an old count of processes is taken for a new one")
		}
	})
}

func TestALostDeviceIsAskedOnceAMinuteUntilItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(gpus(2)...)
		n.poll()
		n.Set("GPU-0", does(t, "lost"))
		before := n.Calls("Sample GPU-0") + n.Calls("Health GPU-0")
		for range 40 {
			readings, err := n.poll()
			if r := readings["GPU-0"]; err != nil || r.Sample.Failure == "" || !r.Health.Lost {
				t.Fatalf("%+v, %v", r, err)
			}
			if r := readings["GPU-1"]; r.Sample.Failure != "" || r.Health.Lost {
				t.Fatalf("the other one: %+v", r)
			}
		}
		if calls := n.Calls("Sample GPU-0") + n.Calls("Health GPU-0") - before; calls > 11 {
			t.Errorf("%d calls in ten minutes", calls)
		}
		n.Set("GPU-0", does(t, "busy"))
		var readings map[string]reader.Reading
		for range 5 {
			readings, _ = n.poll()
		}
		if r := readings["GPU-0"]; r.Sample.Failure != "" || r.Health.Lost {
			t.Errorf("when it is back: %+v", r)
		}
	})
}

func TestAListOfDevicesThatHangsLeavesTheLastOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(gpus(2)...)
		n.poll()
		n.HangList(true)
		var err error
		for range 20 {
			start := time.Now()
			var readings []reader.Reading
			readings, err = n.poller.Poll(context.Background(), n.held)
			if len(readings) != 2 || readings[1].Sample.Failure != "" {
				t.Fatalf("%+v", readings)
			}
			if took := time.Since(start); took > 0 {
				t.Fatalf("the devices of the last list wait for the next one, for %s", took)
			}
			time.Sleep(tick)
		}
		if err == nil || !strings.Contains(err.Error(), "listing devices: no answer for ") {
			t.Errorf("error %v", err)
		}
		if calls := n.Calls("Devices"); calls != 2 {
			t.Errorf("the list was asked for %d times, want twice", calls)
		}
		n.SetDevices(gpus(3)...)
		n.HangList(false)
		n.poll()
		if readings, err := n.poll(); err != nil || len(readings) != 3 {
			t.Errorf("when the list is back: %+v, %v", readings, err)
		}
	})
}

func TestADriverThatHangsFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(gpus(1)...)
		n.HangList(true)
		for range 3 {
			if readings, err := n.poll(); err == nil || len(readings) != 0 {
				t.Fatalf("%+v, %v", readings, err)
			}
		}
		n.HangList(false)
		synctest.Wait()
		if readings, err := n.poll(); err != nil || len(readings) != 1 {
			t.Errorf("when the list is back: %+v, %v", readings, err)
		}
	})
}

// odd is a driver of which some calls are replaced.
type odd struct {
	*scripted.Driver
	devices func() ([]device.Device, error)
	sample  func(uuid string) (device.Sample, error)
}

func (o odd) Devices() ([]device.Device, error) {
	if o.devices != nil {
		return o.devices()
	}
	return o.Driver.Devices()
}

func (o odd) Sample(uuid string) (device.Sample, error) {
	if o.sample != nil && uuid == "GPU-0" {
		return o.sample(uuid)
	}
	return o.Driver.Sample(uuid)
}

func TestWhatADriverMayDo(t *testing.T) {
	tests := map[string]struct {
		driver odd
		// failure of GPU-0, and what the error says.
		failure string
		is      error
		says    string
		devices int
	}{
		"a call panics": {
			driver: odd{sample: func(string) (device.Sample, error) { panic("slice bounds out of range") }}, devices: 2,
			failure: "the driver's reader panicked: slice bounds out of range",
		},
		"a call fails": {
			driver: odd{sample: func(string) (device.Sample, error) { return device.Sample{}, errors.New("no permission") }}, devices: 2,
			failure: "no permission",
		},
		"there is no signal for a device": {
			driver: odd{sample: func(string) (device.Sample, error) { return device.Sample{Failure: "no counters for slices"}, nil }}, devices: 2,
			failure: "no counters for slices",
		},
		"the driver was replaced": {
			driver: odd{sample: func(string) (device.Sample, error) {
				return device.Sample{}, fmt.Errorf("sampling: %w", reader.ErrRestart)
			}},
			failure: "sampling: the driver was unloaded or replaced", is: reader.ErrRestart, says: "unloaded", devices: 2,
		},
		"there is no driver": {
			driver: odd{devices: func() ([]device.Device, error) { return nil, errors.New("libnvidia-ml.so.1 is not there") }},
			says:   "listing devices: libnvidia-ml.so.1 is not there",
		},
		"the list panics": {
			driver: odd{devices: func() ([]device.Device, error) { panic("nil") }},
			says:   "listing devices: the driver's reader panicked",
		},
		"there is no GPU": {
			driver: odd{devices: func() ([]device.Device, error) { return nil, nil }},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.driver.Driver = scripted.New(gpus(2)...)
			readings, err := reader.NewPoller(test.driver, reader.DefaultPeriods()).Poll(t.Context(), nil)
			if len(readings) != test.devices {
				t.Fatalf("%d devices, want %d", len(readings), test.devices)
			}
			for _, r := range readings {
				want := ""
				if r.Device.UUID == "GPU-0" {
					want = test.failure
				}
				if r.Sample.Failure != want {
					t.Errorf("%s: failure %q, want %q", r.Device.UUID, r.Sample.Failure, want)
				}
			}
			if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("error %v, want %q", err, test.says)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("error %v is not %v", err, test.is)
			}
		})
	}
}

func TestADeviceThatIsGoneIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(gpus(2)...)
		n.poll()
		n.SetDevices(gpus(1)...)
		for range 6 {
			n.poll()
		}
		if readings, err := n.poll(); err != nil || len(readings) != 1 {
			t.Errorf("%+v, %v", readings, err)
		}
	})
}

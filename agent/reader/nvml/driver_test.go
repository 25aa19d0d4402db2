//go:build cgo

package nvml

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-gpu/muster/agent/device"
	"github.com/muster-gpu/muster/agent/reader"
)

func TestGPUsAndSlicesAreListedWithWhereTheyAre(t *testing.T) {
	folder := t.TempDir()
	at := filepath.Join(folder, "devices", "pci0000:17", "0000:1a:00.0")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "numa_node"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(at, filepath.Join(folder, "0000:1a:00.0")); err != nil {
		t.Fatal(err)
	}
	script(t, "gpus 3", "nvlink 1", "slices.2 2")
	d := New(libraryPath)
	d.pci = folder
	t.Cleanup(func() { d.Close() })
	got, err := d.Devices()
	if err != nil {
		t.Fatal(err)
	}
	whole := func(uuid string, minor int, peers ...string) device.Device {
		return device.Device{
			UUID: uuid, Minor: minor, Product: "NVIDIA H200", MemoryBytes: 141 << 30, GPUInstance: -1, ComputeInstance: -1,
			Share: device.Whole, NUMANode: -1, Island: "GPU-0", Peers: peers,
		}
	}
	first := whole("GPU-0", 4, "GPU-1", "GPU-2")
	first.NUMANode, first.PCIRoot = 1, "pci0000:17"
	slice := func(uuid string, instance int, profile string, parts int64) device.Device {
		return device.Device{
			UUID: uuid, Parent: "GPU-2", Minor: 6, Product: "NVIDIA H200", MemoryBytes: 18 << 30, GPUInstance: instance,
			Profile: profile, Share: device.Share{Parts: parts, Of: 7}, NUMANode: -1,
		}
	}
	want := []device.Device{
		first, whole("GPU-1", 5, "GPU-0", "GPU-2"), whole("GPU-2", 6, "GPU-0", "GPU-1"),
		slice("MIG-2-0", 7, "1g.18gb", 1), slice("MIG-2-1", 8, "2g.18gb", 2),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	script(t, "gpus 2", "nvlink 1")
	if got, err = d.Devices(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"GPU-1"}, got[0].Peers); diff != "" || len(got) != 2 {
		t.Errorf("peers when one has gone (-want +got):\n%s", diff)
	}
}

// sampled fails the test if a device cannot be sampled.
func sampled(t *testing.T, d *Driver, uuid string) device.Sample {
	t.Helper()
	s, err := d.Sample(uuid)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestActivityIsMeasuredByTheBestThatThereIs(t *testing.T) {
	common := device.Sample{Codec: device.Is(0), Power: device.Is(75), PowerLimit: device.Is(700), Temperature: device.Is(41), MemoryUsedBytes: 4096}
	lines := []string{"gpus 3", "used.0 4096", "used.1 4096", "used.2 4096", "gpm.1 0", "gpm.2 0", "fail.nvmlDeviceGetSamples.2 3",
		"graphics_util.0 97", "sm_util.0 85", "nvdec.0 12", "busy.0 30", "busy.1 90", "rate.2 64", "decoder.2 50", "encoder.1 7"}
	counted := []device.Gauge{device.Is(0.1), device.Is(0.3), device.Is(0.64)}
	codecs := []float64{0, 0.07, 0.5}
	d := start(t, lines...)
	for i, uuid := range []string{"GPU-0", "GPU-1", "GPU-2"} {
		want := common
		want.Busy, want.Codec = counted[i], device.Is(codecs[i])
		if diff := cmp.Diff(want, sampled(t, d, uuid)); diff != "" {
			t.Errorf("%s at first (-want +got):\n%s", uuid, diff)
		}
	}
	time.Sleep(gpmApart)
	script(t, append(lines, "fail.nvmlDeviceGetSamples.2 0")...)
	for i, uuid := range []string{"GPU-0", "GPU-1", "GPU-2"} {
		want := common
		want.Busy, want.Codec = counted[i], device.Is(codecs[i])
		switch {
		case i == 0 && !old:
			want.Busy, want.SM, want.Codec = device.Is(0.97), device.Is(0.85), device.Is(0.12)
		case i < 2:
			// The driver has no newer samples, so its counter is looked at.
			want.Busy = device.Is(0)
		}
		if diff := cmp.Diff(want, sampled(t, d, uuid)); diff != "" {
			t.Errorf("%s later (-want +got):\n%s", uuid, diff)
		}
	}
}

// TestAnOldLibrary runs the tests that can do without GPM on a library that lacks it.
func TestAnOldLibrary(t *testing.T) {
	if old {
		t.Skip("it is the old one")
	}
	command := exec.Command(os.Args[0], "-test.run", "^(TestActivity|TestSlices|TestErrors)")
	command.Env = append(os.Environ(), oldVariable+"=1")
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestSlicesAreMeasuredByGPMOrNotAtAll(t *testing.T) {
	d := start(t, "gpus 1", "slices.0 2", "graphics_util.0.1 40", "sm_util.0.1 20", "rate.0 99", "busy.0 99")
	for range 2 {
		time.Sleep(gpmApart)
		sampled(t, d, "MIG-0-0")
		sampled(t, d, "MIG-0-1")
	}
	time.Sleep(gpmApart)
	s := sampled(t, d, "MIG-0-1")
	switch {
	case old && (s.Failure == "" || s.Busy.Known):
		t.Errorf("of an old GPU: %+v", s)
	case !old && (s.Failure != "" || s.Busy != device.Is(0.4) || s.SM != device.Is(0.2) || s.Power.Known):
		t.Errorf("%+v", s)
	}
}

func TestErrorsAreWhatTheyAreToTheReader(t *testing.T) {
	for name, tc := range map[string]struct {
		line string
		is   error
		says string
	}{
		"a GPU that fell off the bus":          {"fail.nvmlDeviceGetUtilizationRates.0 15", reader.ErrLost, ""},
		"a GPU that needs a reset":             {"fail.nvmlDeviceGetPowerUsage.0 16", reader.ErrLost, ""},
		"a driver that is unloaded":            {"fail.nvmlDeviceGetMemoryInfo.0 9", reader.ErrRestart, ""},
		"a driver that was replaced":           {"fail.nvmlDeviceGetMemoryInfo.0 18", reader.ErrRestart, ""},
		"a counter that may not be read":       {"fail.nvmlDeviceGetUtilizationRates.0 4", nil, "nvmlDeviceGetUtilizationRates: error 4"},
		"a counter that the device has not":    {"fail.nvmlDeviceGetUtilizationRates.0 3", nil, "the driver has no signal of activity for such a device"},
		"a temperature that cannot be read":    {"fail.nvmlDeviceGetTemperature.0 999", nil, ""},
		"a power limit that is not known here": {"fail.nvmlDeviceGetEnforcedPowerLimit.0 13", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			all := []string{"gpus 1", "gpm.0 0", "fail.nvmlDeviceGetSamples.0 3"}
			d := start(t, all...)
			script(t, append(all, tc.line)...)
			s, err := d.Sample("GPU-0")
			if !errors.Is(err, tc.is) || s.Failure != tc.says {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}

func TestErrorsOfTheListAreWhatTheyAreToTheReader(t *testing.T) {
	script(t, "fail.nvmlInit_v2 9")
	d := New(libraryPath)
	if _, err := d.Devices(); err == nil || errors.Is(err, reader.ErrRestart) {
		t.Errorf("without a driver: %v", err)
	}
	script(t, "gpus 2")
	if all, err := d.Devices(); err != nil || len(all) != 2 {
		t.Fatalf("when it is loaded: %v, %v", all, err)
	}
	script(t, "gpus 2", "fail.nvmlDeviceGetHandleByIndex_v2.1 15")
	if all, err := d.Devices(); err != nil || len(all) != 2 {
		t.Errorf("a GPU that is lost is not in the list: %v, %v", all, err)
	}
	script(t, "gpus 2", "fail.nvmlDeviceGetHandleByIndex_v2 999")
	if _, err := d.Devices(); !errors.Is(err, reader.ErrRestart) {
		t.Errorf("access to all GPUs was lost: %v", err)
	}
	script(t, "fail.nvmlDeviceGetCount_v2 1")
	if _, err := d.Devices(); !errors.Is(err, reader.ErrRestart) {
		t.Errorf("a driver that was unloaded: %v", err)
	}
	script(t)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.Devices(); !errors.Is(err, errClosed) {
		t.Errorf("after it was given back: %v", err)
	}
	if _, err := New(filepath.Join(t.TempDir(), "libnvidia-ml.so.1")).Devices(); err == nil || !strings.Contains(err.Error(), "cannot be loaded") {
		t.Errorf("without a library: %v", err)
	}
}

func TestOfAGPUThatHangsTheOthersKnowNothing(t *testing.T) {
	d := start(t, "gpus 2", "compute.1 1")
	script(t, "gpus 2", "compute.1 1", "hang.0 1")
	back := make(chan error, 1)
	go func() { _, err := d.Sample("GPU-0"); back <- err }()
	for range 3 {
		sampled(t, d, "GPU-1")
		if list, err := d.Processes("GPU-1"); err != nil || len(list) != 1 {
			t.Errorf("processes: %v, %v", list, err)
		}
	}
	select {
	case err := <-back:
		t.Fatalf("the call has returned: %v", err)
	default:
	}
	script(t, "gpus 2")
	if err := <-back; err != nil {
		t.Errorf("the call that hung: %v", err)
	}
}

func TestADriverWithACallOutIsNotUnloaded(t *testing.T) {
	script(t, "gpus 2", "hang.1 1")
	d, back := New(libraryPath), make(chan error, 1)
	go func() { _, err := d.Devices(); back <- err }()
	for d.calls() == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := d.Close(); err == nil || !strings.Contains(err.Error(), "calls have not returned") {
		t.Errorf("given back with a call out: %v", err)
	}
	script(t, "gpus 2")
	<-back
}

func TestACallThatReturnsIsWaitedForBeforeTheDriverIsGivenBack(t *testing.T) {
	d := start(t, "gpus 2")
	script(t, "gpus 2", "hang.0 1")
	back, closed := make(chan error, 1), make(chan error, 1)
	go func() { _, err := d.Sample("GPU-0"); back <- err }()
	for d.calls() == 0 {
		time.Sleep(time.Millisecond)
	}
	go func() { closed <- d.Close() }()
	for !d.given() {
		time.Sleep(time.Millisecond)
	}
	script(t, "gpus 2")
	if err := <-closed; err != nil {
		t.Errorf("given back: %v", err)
	}
	if err := <-back; err != nil {
		t.Errorf("the call that was out: %v", err)
	}
}

// given says that Close has been called.
func (d *Driver) given() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// calls is how many are out.
func (d *Driver) calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.out
}

func TestAProcessIsListedOnce(t *testing.T) {
	d := start(t, "gpus 1", "compute.0 2", "graphics.0 3")
	got, err := d.Processes("GPU-0")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]device.Process{{PID: 100, MemoryBytes: 4096}, {PID: 101, MemoryBytes: 4096}, {PID: 102}}, got); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
	script(t, "gpus 1", "compute.0 2", "fail.nvmlDeviceGetGraphicsRunningProcesses_v3 999")
	if list, err := d.Processes("GPU-0"); err == nil {
		t.Errorf("half a list is believed: %v", list)
	}
}

func TestWhatIsWrongWithAGPU(t *testing.T) {
	for name, tc := range map[string]struct{ line, want string }{
		"nothing":                               {"recovery.0 0", ""},
		"rows that could not be remapped":       {"unmapped.0 1", "rows of its memory could not be remapped"},
		"rows that wait":                        {"pending.0 1", "rows of its memory wait for a reset to be remapped"},
		"errors that could not be corrected":    {"ecc.0 3", "3 errors of its memory since the driver was loaded could not be corrected"},
		"a reset that is asked for":             {"recovery.0 1", "the driver asks for a reset of the GPU"},
		"a recovery that is not known here":     {"recovery.0 9", "the driver asks for recovery action 9"},
		"a field that the driver does not know": {"field.0 3\nrecovery.0 1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := start(t, "gpus 1", tc.line).Health("GPU-0")
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(h.Reasons, "; "); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestErrorsThatTheDriverReportsAreCounted(t *testing.T) {
	d := start(t, "gpus 2")
	report := func(line string) device.Health {
		t.Helper()
		script(t, "gpus 2", line)
		number := strings.TrimPrefix(line, "xid ")
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			h, err := d.Health("GPU-0")
			if err != nil {
				t.Fatal(err)
			}
			for xid := range h.XIDs {
				if number == "31" && xid == 31 || number == "79" && xid == 79 {
					return h
				}
			}
		}
		t.Fatalf("%s is not counted", line)
		return device.Health{}
	}
	if h := report("xid 31"); !h.Healthy() {
		t.Errorf("an error of a program: %+v", h)
	}
	h := report("xid 79")
	if diff := cmp.Diff(device.Health{Reasons: []string{"the driver has reported Xid 79"}, XIDs: map[uint64]uint64{31: 1, 79: 1}}, h); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if h, err := d.Health("GPU-1"); err != nil || !h.Healthy() || !slices.Equal(serious(h.XIDs), nil) {
		t.Errorf("another GPU: %+v, %v", h, err)
	}
}

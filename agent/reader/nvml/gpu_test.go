//go:build cgo

package nvml

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-gpu/muster/agent/device"
)

// The check of a machine with GPUs: reportVariable is the file that it writes, and
// loadVariable a shell command that keeps the first GPU busy, if there is one.
const (
	reportVariable = "MUSTER_TEST_GPU"
	loadVariable   = "MUSTER_TEST_GPU_LOAD"
)

// costs are the times of calls of one kind.
type costs []time.Duration

func (c *costs) time(call func() error) error {
	began := time.Now()
	err := call()
	*c = append(*c, time.Since(began))
	return err
}

func (c costs) String() string {
	slices.Sort(c)
	return fmt.Sprintf("min %s, median %s, max %s of %d", c[0], c[len(c)/2], c[len(c)-1], len(c))
}

// TestOnAGPU reads the GPUs of this machine, and says what it has found and what the
// calls cost.
func TestOnAGPU(t *testing.T) {
	path := os.Getenv(reportVariable)
	if path == "" {
		t.Skip("run it by make test-gpu, on a machine with a GPU of NVIDIA")
	}
	var report strings.Builder
	say := func(format string, values ...any) {
		t.Logf(format, values...)
		fmt.Fprintf(&report, format+"\n", values...)
	}
	defer func() {
		if err := os.WriteFile(path, []byte(report.String()), 0o644); err != nil {
			t.Error(err)
		}
	}()
	d := New("")
	var listing costs
	var devices []device.Device
	err := listing.time(func() (err error) { devices, err = d.Devices(); return err })
	if err != nil {
		say("no GPU: %v", err)
		t.Skip(err)
	}
	defer d.Close()
	say("loading and listing: %s", listing)
	for _, about := range devices {
		say("%+v", about)
		d.look(t, about, say)
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	say("CPU time of all: %s", time.Duration(usage.Utime.Nano()+usage.Stime.Nano()))
	if load := os.Getenv(loadVariable); load != "" && len(devices) > 0 {
		d.underLoad(t, devices[0], load, say)
	}
}

// look asks about a device again and again.
func (d *Driver) look(t *testing.T, about device.Device, say func(string, ...any)) {
	t.Helper()
	var samples, processes, health costs
	for range 20 {
		var s device.Sample
		if err := samples.time(func() (err error) { s, err = d.Sample(about.UUID); return err }); err != nil {
			t.Fatal(err)
		}
		if len(samples) == 20 {
			say("  the last sample: %+v", s)
		}
		time.Sleep(2 * gpmApart)
	}
	for range 5 {
		if err := processes.time(func() error { _, err := d.Processes(about.UUID); return err }); err != nil {
			t.Error(err)
		}
		var h device.Health
		if err := health.time(func() (err error) { h, err = d.Health(about.UUID); return err }); err != nil {
			t.Error(err)
		}
		if len(health) == 1 {
			say("  health: %+v", h)
		}
	}
	say("  samples: %s", samples)
	say("  lists of processes: %s", processes)
	say("  health: %s", health)
}

// underLoad keeps a GPU busy for a while, and sees that this is seen, and its end too.
func (d *Driver) underLoad(t *testing.T, about device.Device, load string, say func(string, ...any)) {
	t.Helper()
	command := exec.Command("sh", "-c", load)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	becomes := func(what string, is func(device.Sample, int) bool) {
		t.Helper()
		var s device.Sample
		var list []device.Process
		began := time.Now()
		for time.Since(began) < time.Minute {
			var err error
			if s, err = d.Sample(about.UUID); err != nil {
				t.Fatal(err)
			}
			if list, err = d.Processes(about.UUID); err != nil {
				t.Fatal(err)
			}
			if is(s, len(list)) {
				say("%s after %s: %+v, %d processes", what, time.Since(began).Round(time.Millisecond), s, len(list))
				return
			}
			time.Sleep(time.Second)
		}
		t.Errorf("not %s: %+v, %d processes", what, s, len(list))
	}
	becomes("busy", func(s device.Sample, processes int) bool { return s.Busy.AtLeast(0.5) && processes > 0 })
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGTERM)
	_ = command.Wait()
	becomes("idle", func(s device.Sample, processes int) bool { return s.Busy.Below(0.01) && processes == 0 })
}

package agent

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/muster-gpu/muster/agent/device"
	"github.com/muster-gpu/muster/agent/holders"
	"github.com/muster-gpu/muster/agent/reader/scripted"
	"github.com/muster-gpu/muster/agent/verdict"
	"github.com/muster-gpu/muster/api/v1alpha1"
)

// allocated are the GPU-seconds that were counted, for whomever.
func (n *node) allocated() (seconds float64) {
	for _, s := range n.agent.Spent() {
		seconds += s.Allocated.Seconds()
	}
	return seconds
}

// condition is what the last status says of a condition: "" where it is true.
func (n *node) condition(kind string) string {
	c := meta.FindStatusCondition(n.wrote[len(n.wrote)-1].Conditions, kind)
	switch {
	case c == nil:
		return "it is not there"
	case c.Status == "True":
		return ""
	}
	return c.Message
}

func TestTheTimeOfAPodCountsBeforeTheAPIServerHasToldOfItToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, gpus(1)...)
		n.does("GPU-0", "busy")
		pod := holders.Pod{Namespace: "ml", Name: "gpu-0"}
		owner := n.owners[pod]
		for _, told := range []bool{false, true, false, true} {
			delete(n.owners, pod)
			if told {
				n.owners[pod] = owner
			}
			n.run(15 * time.Minute)
		}
		if got, want := n.allocated(), (time.Hour - 15*time.Second).Seconds(); got != want {
			t.Errorf("%v s are counted, want %v", got, want)
		}
	})
}

func TestTheClockOfTheNodeMayBeSetByAYear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, gpus(2)...)
		n.does("GPU-0", "busy")
		n.does("GPU-1", "idle")
		const year = 365 * 24 * time.Hour
		for _, n.set = range []time.Duration{0, year, -year, 0} {
			if err := n.run(30 * time.Minute); err != nil {
				t.Fatal(err)
			}
			if got := n.says(); got["gpu-0"] != v1alpha1.GPUActive || got["gpu-1"] != v1alpha1.GPUIdle {
				t.Errorf("the clock is %s ahead: %v", n.set, got)
			}
		}
		if got, want := n.allocated(), 2*(2*time.Hour-15*time.Second).Seconds(); got != want {
			t.Errorf("%v s are counted, want %v", got, want)
		}
		if writes := len(n.wrote); writes > 130 {
			t.Errorf("%d writes in two hours", writes)
		}
	})
}

func TestAGPUThatDisappearsIsMissedAndTheOthersCountOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, gpus(2)...)
		n.does("GPU-0", "busy")
		n.does("GPU-1", "busy")
		n.run(10 * time.Minute)
		n.driver.SetDevices(gpus(1)...)
		n.run(10 * time.Minute)
		if said := n.condition(v1alpha1.GPUNodeHoldersKnown); !strings.Contains(said, "1 devices that pods hold are not among the driver's, as GPU-1") {
			t.Errorf("it is said of it: %q", said)
		}
		before := n.allocated()
		n.run(10 * time.Minute)
		if got := n.allocated() - before; got != 600 {
			t.Errorf("%v s are counted of the GPU that is left, want 600", got)
		}
		n.driver.SetDevices(gpus(2)...)
		n.run(10 * time.Minute)
		if said := n.condition(v1alpha1.GPUNodeHoldersKnown); said != "" {
			t.Errorf("when it is back: %q", said)
		}
		if got := n.says(); got["gpu-1"] != v1alpha1.GPUActive {
			t.Errorf("when it is back: %v", got)
		}
	})
}

// nothing is a driver that lists no devices.
type nothing struct {
	*scripted.Driver
	err error
}

func (d nothing) Devices() ([]device.Device, error) { return nil, d.err }

func TestANodeWithoutADriverOrWithoutAGPUSaysSo(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{errors.New("NVIDIA's driver is not loaded"), "listing devices: NVIDIA's driver is not loaded"},
		{nil, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, gpus(1)...)
			n.list = nil
			sources := n.sources()
			sources.Driver = nothing{n.driver, test.err}
			n.agent = New("node-1", sources, verdict.DefaultSettings(), n)
			n.run(5 * time.Minute)
			if said := n.condition(v1alpha1.GPUNodeDriverReady); said != test.want {
				t.Errorf("of the driver it is said %q, want %q", said, test.want)
			}
			if devices := n.wrote[len(n.wrote)-1].Summary.Devices; devices != 0 {
				t.Errorf("there are %d devices", devices)
			}
		})
	}
}

func TestAPodThatIsGoneIsNotSaidLongerThanThreeLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, gpus(2)...)
		n.run(5 * time.Minute)
		delete(n.owners, holders.Pod{Namespace: "ml", Name: "gpu-1"})
		n.list = n.list[:1]
		for lists := 1; lists <= 3; lists++ {
			n.run(15 * time.Second)
			held := 0
			for _, d := range n.agent.Devices() {
				held += len(d.Holders)
			}
			if want := map[int]int{1: 2, 2: 2, 3: 1}[lists]; held != want {
				t.Errorf("after %d lists without it %d GPUs are held, want %d", lists, held, want)
			}
		}
	})
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/agent/device"
	"github.com/muster-gpu/muster/agent/holders"
	"github.com/muster-gpu/muster/agent/reader/scripted"
	"github.com/muster-gpu/muster/agent/verdict"
	"github.com/muster-gpu/muster/api/v1alpha1"
)

// node is everything around an Agent, as a test has it.
type node struct {
	t      testing.TB
	driver *scripted.Driver
	agent  *Agent
	// list and down are what the kubelet says.
	list   []holders.Allocation
	down   error
	owners map[holders.Pod]Owner
	// wrote are the statuses that were written, and failing what writes fail with.
	wrote   []v1alpha1.GPUNodeStatus
	failing error
	began   time.Time
	// set is how far ahead the node's clock is.
	set time.Duration
}

func (n *node) List(context.Context) ([]holders.Allocation, bool, error) {
	if n.down != nil {
		return nil, false, n.down
	}
	return n.list, true, nil
}

func (n *node) Write(_ context.Context, _ string, status v1alpha1.GPUNodeStatus) error {
	if n.failing == nil {
		n.wrote = append(n.wrote, status)
	}
	return n.failing
}

// newNode has these devices, each held by a pod of its name.
func newNode(t testing.TB, devices ...device.Device) *node {
	n := &node{t: t, driver: scripted.New(devices...), owners: map[holders.Pod]Owner{}, began: time.Now()}
	for _, d := range devices {
		pod := holders.Pod{Namespace: "ml", Name: strings.ToLower(d.UUID)}
		n.list = append(n.list, holders.Allocation{ID: holders.ID{UUID: d.UUID, Minor: -1, GPUInstance: -1}, Pod: pod, Containers: []string{"x"}, Share: device.Whole})
		n.owners[pod] = Owner{UID: "uid-" + pod.Name, Started: n.began, Running: true, Kind: "TrainJob", Name: pod.Name, WorkloadUID: pod.Name, Queue: "research"}
	}
	n.agent = New("node-1", n.sources(), verdict.DefaultSettings(), n)
	return n
}

func (n *node) sources() Sources {
	return Sources{
		Driver: n.driver, Kubelet: n,
		Owner: func(p holders.Pod) (Owner, bool) { o, known := n.owners[p]; return o, known },
		UUIDs: func() map[holders.ID]string { return nil },
	}
}

func (n *node) does(uuid, text string) {
	n.t.Helper()
	a, err := scripted.ParseActivity(text)
	if err != nil {
		n.t.Fatal(err)
	}
	n.driver.Set(uuid, a)
}

// run ticks for that long, and gives the last error of any tick.
func (n *node) run(long time.Duration) (last error) {
	for end := time.Now().Add(long); time.Now().Before(end); {
		next := time.Now().Add(15 * time.Second)
		if err := n.agent.Tick(n.t.Context(), verdict.Instant{Elapsed: time.Since(n.began), Wall: time.Now().Add(n.set)}); err != nil {
			last = err
		}
		time.Sleep(time.Until(next))
	}
	return last
}

// says is the verdict on each holder in the last status, by its pod.
func (n *node) says() map[string]v1alpha1.GPUVerdict {
	verdicts := map[string]v1alpha1.GPUVerdict{}
	for _, d := range n.wrote[len(n.wrote)-1].Devices {
		for _, h := range d.Holders {
			verdicts[h.Pod] = h.Verdict
		}
	}
	return verdicts
}

func gpus(n int) []device.Device {
	var all []device.Device
	for i := range n {
		all = append(all, device.Device{UUID: fmt.Sprint("GPU-", i), Minor: i, GPUInstance: -1, NUMANode: -1, Share: device.Whole})
	}
	return all
}

func TestTheGPUsOfANodeAreJudgedEachByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, gpus(6)...)
		for i, activity := range []string{"busy", "idle", "stalled", "ghost", "idle-after=20m", "hang"} {
			n.does(fmt.Sprint("GPU-", i), activity)
		}
		if err := n.run(2 * time.Hour); err != nil {
			t.Fatal(err)
		}
		want := map[string]v1alpha1.GPUVerdict{"gpu-0": "active", "gpu-1": "idle", "gpu-2": "stalled", "gpu-3": "idle", "gpu-4": "idle", "gpu-5": "unknown"}
		if diff := cmp.Diff(want, n.says()); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
		n.does("GPU-5", "busy")
		if err := n.run(2 * time.Minute); err != nil {
			t.Fatal(err)
		}
		if got := n.says()["gpu-5"]; got != v1alpha1.GPUActive {
			t.Errorf("the GPU that has hung is %s", got)
		}
		spent := n.agent.Spent()[verdict.Account{Namespace: "ml", Queue: "research", Kind: "TrainJob"}]
		if sum := spent.Active + spent.Idle + spent.Stalled + spent.Unknown; sum != spent.Allocated || spent.Allocated == 0 {
			t.Errorf("the parts of %+v are %d", spent, sum)
		}
		n.driver.Close()
	})
}

func TestANodeOnWhichNothingChangesIsWrittenOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, gpus(8)...)
		for i := range 8 {
			n.does(fmt.Sprint("GPU-", i), "busy")
		}
		n.run(5 * time.Minute)
		before := len(n.wrote)
		if err := n.run(time.Hour); err != nil {
			t.Fatal(err)
		}
		if writes := len(n.wrote) - before; writes > 60 || writes < 40 {
			t.Errorf("%d writes in an hour", writes)
		}
	})
}

func TestAKubeletThatIsAwayFreesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, gpus(1)...)
		n.does("GPU-0", "busy")
		n.run(5 * time.Minute)
		pod := holders.Pod{Namespace: "ml", Name: "gpu-0"}
		runs := n.owners[pod]
		ended := runs
		ended.Running = false
		n.down, n.owners[pod] = errors.New("no such socket"), ended
		if err := n.run(time.Hour); err == nil {
			t.Error("nothing is said of the kubelet")
		}
		if diff := cmp.Diff(map[string]v1alpha1.GPUVerdict{"gpu-0": "active"}, n.says()); diff != "" {
			t.Errorf("while the kubelet does not answer (-want +got):\n%s", diff)
		}
		n.down, n.list, n.owners[pod] = nil, nil, runs
		n.run(5 * time.Minute)
		if diff := cmp.Diff(map[string]v1alpha1.GPUVerdict{"gpu-0": "active"}, n.says()); diff != "" {
			t.Errorf("while the pod runs and is not listed (-want +got):\n%s", diff)
		}
		n.owners[pod] = ended
		n.run(5 * time.Minute)
		if diff := cmp.Diff(map[string]v1alpha1.GPUVerdict{}, n.says()); diff != "" {
			t.Errorf("when it has gone (-want +got):\n%s", diff)
		}
	})
}

func TestWhatIsWrongIsInTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, gpus(1)...)
		n.does("GPU-0", "busy")
		n.list = append(n.list, holders.Allocation{ID: holders.ID{UUID: "GPU-9", Minor: -1, GPUInstance: -1}, Pod: holders.Pod{Namespace: "ml", Name: "stray"}, Share: device.Whole})
		n.driver.HangList(true)
		conditions := func() map[string]string {
			said := map[string]string{}
			for _, c := range n.wrote[len(n.wrote)-1].Conditions {
				said[c.Type] = c.Message
				if c.Status == metav1.ConditionTrue {
					said[c.Type] = "yes"
				}
			}
			return said
		}
		n.run(time.Minute)
		want := map[string]string{v1alpha1.GPUNodeDriverReady: "listing devices: no answer for 5s", v1alpha1.GPUNodeHoldersKnown: "2 devices that pods hold are not among the driver's, as GPU-0"}
		if diff := cmp.Diff(want, conditions()); diff != "" {
			t.Errorf("conditions (-want +got):\n%s", diff)
		}
		n.driver.HangList(false)
		n.list = n.list[:1]
		n.run(3 * time.Minute)
		want = map[string]string{v1alpha1.GPUNodeDriverReady: "yes", v1alpha1.GPUNodeHoldersKnown: "yes"}
		if diff := cmp.Diff(want, conditions()); diff != "" {
			t.Errorf("conditions when all is well (-want +got):\n%s", diff)
		}
	})
}

func TestAnHourWithoutAnAPIServerLosesNoSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, gpus(1)...)
		n.does("GPU-0", "busy")
		n.run(10 * time.Minute)
		n.failing = errors.New("no route to host")
		if err := n.run(time.Hour); err == nil {
			t.Error("nothing is said of the API server")
		}
		n.failing = nil
		if err := n.run(10 * time.Minute); err != nil {
			t.Fatal(err)
		}
		spent := n.agent.Spent()[verdict.Account{Namespace: "ml", Queue: "research", Kind: "TrainJob"}]
		if got, want := spent.Active.Seconds(), (80*time.Minute - 15*time.Second).Seconds(); got != want {
			t.Errorf("%v s are counted, want %v", got, want)
		}
	})
}

func TestAPodThatTheAPIServerHasNotToldOfIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, gpus(1)...)
		n.does("GPU-0", "idle")
		clear(n.owners)
		if err := n.run(time.Hour); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]v1alpha1.GPUVerdict{"gpu-0": "unknown"}, n.says()); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
	})
}

func TestHalfOfASliceCountsAsHalfOfASlice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, device.Device{UUID: "MIG-a", Parent: "GPU-0", Share: device.Share{Parts: 2, Of: 7}, GPUInstance: 1, NUMANode: -1})
		n.does("MIG-a", "busy")
		n.list[0].Share = device.Share{Parts: 1, Of: 2}
		if err := n.run(time.Hour + 15*time.Second); err != nil {
			t.Fatal(err)
		}
		spent := n.agent.Spent()[verdict.Account{Namespace: "ml", Queue: "research", Kind: "TrainJob"}]
		if got, want := spent.Allocated.Seconds(), 3600.0/7; got > want || got < want-0.01 {
			t.Errorf("%v s, want %v", got, want)
		}
	})
}

package app

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/muster-gpu/muster/agent/holders"
)

// kubelet lists what it is told.
type kubelet struct {
	list atomic.Pointer[[]*podresources.PodResources]
}

func (k *kubelet) List(context.Context) ([]holders.Allocation, bool, error) {
	var list []*podresources.PodResources
	if l := k.list.Load(); l != nil {
		list = *l
	}
	all, err := holders.Allocations(list, nil)
	return all, true, err
}

// day is an agent of a node with eight GPUs, each shared by two pods, and what is around it.
type day struct {
	t       *testing.T
	app     *App
	server  *server
	kubelet *kubelet
	// generation counts how often the pods were replaced.
	generation int
}

func jobUID(name string) types.UID { return types.UID("uid-" + name) }

// replace has other pods hold the GPUs.
func (d *day) replace() {
	d.generation++
	d.server.clear()
	var list []*podresources.PodResources
	half := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	for i := range 16 {
		namespace, job := fmt.Sprint("team-", i%4), fmt.Sprintf("job-%d-%d", d.generation, i)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: job + "-0", UID: types.UID("uid-" + job + "-0"), CreationTimestamp: metav1.Now(),
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job, UID: jobUID(job), Controller: new(true)}},
			},
			Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "x", Resources: corev1.ResourceRequirements{Requests: half, Limits: half}}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
				{Name: "x", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}},
			}},
		}
		d.server.set(pod)
		list = append(list, &podresources.PodResources{Namespace: namespace, Name: pod.Name, Containers: []*podresources.ContainerResources{
			{Name: "x", Devices: []*podresources.ContainerDevices{{ResourceName: "nvidia.com/gpu", DeviceIds: []string{fmt.Sprintf("GPU-%d::%d", i/2, i%2)}}}},
		}})
	}
	d.kubelet.list.Store(&list)
}

// size is what grows when something is kept for ever.
type size struct{ heap, goroutines, series int }

func (d *day) size() size {
	d.t.Helper()
	synctest.Wait()
	var s size
	families, err := d.app.registry.Gather()
	if err != nil {
		d.t.Fatal(err)
	}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "muster_") {
			s.series += len(f.GetMetric())
		}
	}
	families = nil
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	s.heap, s.goroutines = int(m.HeapAlloc), goroutines()
	return s
}

// goroutines are those of the bubble. Outside of it the runtime has some of its own, now more
// and now fewer.
func goroutines() int {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return strings.Count(string(stacks), ", synctest bubble ")
}

// seconds are the GPU-seconds that were counted, by what the GPUs did in them.
func (d *day) seconds() map[string]float64 {
	_, accounts := d.app.shown.read()
	all := map[string]float64{}
	for _, a := range accounts {
		all["allocated"] += a.Allocated
		all["parts"] += a.Active + a.Idle + a.Stalled + a.Unknown
		all["active"] += a.Active
		all["idle"] += a.Idle
		all["stalled"] += a.Stalled
		all["unknown"] += a.Unknown
	}
	return all
}

// A day in which pods come and go every ten minutes, an hour of it without an API server, and
// the last one without any change.
func TestADay(t *testing.T) {
	config := configuration(t, "busy", "idle", "idle-after=3h", "stalled", "ghost", "hang", "lost", "busy")
	config.Tick.Duration = 15 * time.Second
	// One of them sleeps after errors that follow each other, by when the last one was of the
	// time outside.
	defer func(all []utilruntime.ErrorHandler) { utilruntime.ErrorHandlers = all }(utilruntime.ErrorHandlers)
	utilruntime.ErrorHandlers = nil
	synctest.Test(t, func(t *testing.T) {
		d := &day{t: t, server: newServer(func(namespace string) string { return "queue-of-" + namespace }), kubelet: &kubelet{}}
		var err error
		if d.app, err = assemble(config, &rest.Config{Host: "http://api.example", Transport: d.server, QPS: -1}, d.kubelet); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(klog.NewContext(t.Context(), logr.Discard()))
		ended := make(chan struct{})
		go func() { defer close(ended); d.app.look(ctx, cancel) }()
		churn := func(hours int) {
			for range hours * 6 {
				d.replace()
				time.Sleep(10 * time.Minute)
			}
		}
		churn(1)
		d.server.goAway(true)
		time.Sleep(10 * time.Minute)
		d.server.goAway(false)
		churn(1)
		early := d.size()
		churn(10)

		// Between two ticks, so that none is at the same time as what is read of them.
		time.Sleep(config.Tick.Duration / 2)
		before, failed := d.seconds(), d.server.requests("PATCH gpunodes node-1 status")
		d.server.goAway(true)
		time.Sleep(time.Hour)
		away := d.seconds()
		if got := away["allocated"] - before["allocated"]; got != 8*3600 {
			t.Errorf("in an hour without an API server %v GPU-seconds are counted, want %d", got, 8*3600)
		}
		if n := d.server.requests("PATCH gpunodes node-1 status") - failed; n != 0 {
			t.Errorf("%d writes reached an API server that is away", n)
		}
		d.server.goAway(false)
		churn(10)

		// By then nothing is new that the pods do.
		time.Sleep(40 * time.Minute)
		written := d.server.requests("PATCH gpunodes node-1 status")
		time.Sleep(time.Hour)
		if n := d.server.requests("PATCH gpunodes node-1 status") - written; n < 40 || n > 60 {
			t.Errorf("%d writes in an hour in which nothing changes", n)
		}
		late := d.size()
		t.Logf("after two hours %+v, after a day %+v, asked for %v", early, late, d.server.asked)
		if late.heap > early.heap+256<<10 {
			t.Errorf("the heap has %d KiB, and had %d", late.heap>>10, early.heap>>10)
		}
		if late.goroutines > early.goroutines+2 {
			t.Errorf("there are %d goroutines, and were %d", late.goroutines, early.goroutines)
		}
		if late.series != early.series {
			t.Errorf("there are %d series, and were %d", late.series, early.series)
		}
		sums := d.seconds()
		if sums["parts"] != sums["allocated"] {
			t.Errorf("the parts of the GPU-seconds do not add up: %v", sums)
		}
		for what, s := range sums {
			if s == 0 {
				t.Errorf("nothing is counted as %s", what)
			}
		}
		cancel(nil)
		<-ended
		if err := d.app.driver.Close(); err != nil {
			t.Error(err)
		}
		d.app.stop()
	})
}

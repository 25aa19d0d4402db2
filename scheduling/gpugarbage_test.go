package scheduling

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

func TestOddReportsOfUse(t *testing.T) {
	idle := func(share string, since metav1.Time) v1alpha1.GPUHolder {
		return v1alpha1.GPUHolder{Verdict: v1alpha1.GPUIdle, Share: share, Since: since, Reclaimable: true}
	}
	since := metav1.NewTime(epoch0)
	tests := map[string]struct {
		says        v1alpha1.GPUHolder
		state       gpuState
		reports     int
		reclaimable bool
	}{
		"all of a device":                 {idle("", since), gpusIdle, 1, true},
		"a share":                         {idle("1/4", since), gpusIdle, 1, true},
		"a share that is not one":         {idle("-5/4", since), gpusIdle, 1, true},
		"more shares than there are":      {idle("9/4", since), gpusIdle, 1, true},
		"more shares than a pod can have": {idle("1000000000/1000000000", since), gpusIdle, 1, true},
		"idle since nobody knows when":    {idle("", metav1.Time{}), gpusUnknown, 1, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8, 8)
			pod := plainPod("a", "node-0", 1)
			test.says.PodUID = string(pod.UID)
			s.gpuNodes.set(gpuNodeOf("node-0", s.clock.Now(), v1alpha1.GPUDevice{Holders: []v1alpha1.GPUHolder{test.says}}))
			asked := survey{nodes: s.gpuNodes, now: s.clock.Now()}
			asked.ask(pod, 1)
			if u := asked.sum(1); u.state != test.state || u.reclaimable != test.reclaimable || len(asked.reports) != test.reports {
				t.Errorf("it is %+v with %d reports, want %q, reclaimable %t, %d", u, len(asked.reports), test.state, test.reclaimable, test.reports)
			}
		})
	}
}

func TestHowLongAGPUCountsAsUnhealthyDoesNotDependOnItsNodesClock(t *testing.T) {
	for _, ahead := range []time.Duration{-2 * time.Hour, 0, 2 * time.Hour} {
		s := testScene(t, 8, 8)
		s.gpuNodes.set(gpuNodeOf("a", s.clock.Now().Add(ahead-time.Minute)))
		s.gpuNodes.set(gpuNodeOf("a", s.clock.Now().Add(ahead)))
		// What is only told again is no newer.
		s.clock.Step(unhealthyFor)
		s.gpuNodes.set(gpuNodeOf("a", s.clock.Now().Add(ahead-unhealthyFor)))
		if !s.gpuNodes.get("a").knowsHealth(s.clock.Now()) {
			t.Errorf("with a clock that is %s ahead it is not believed to the end", ahead)
		}
		s.clock.Step(time.Second)
		if s.gpuNodes.get("a").knowsHealth(s.clock.Now()) {
			t.Errorf("with a clock that is %s ahead it is believed for longer", ahead)
		}
	}
}

// noInformers is a cache of which a watch can be ended.
type noInformers struct{ cache.Cache }

func (noInformers) RemoveInformer(context.Context, client.Object) error { return nil }

func TestReportsGoWithTheirKind(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.jobsOn(t, interceptor.Funcs{})
	j.api, j.gpuNodes = newAPIKinds(&fakeDiscovery{}, s.clock), s.gpuNodes
	h := newHeard()
	var l listened
	for _, source := range j.sources(t.Context()) {
		if source.gvk.Kind == "GPUNode" {
			l = listened{source: source, heard: h}
			l.handler = h.handler(source.handler)
		}
	}
	for _, name := range []string{"a", "b"} {
		l.handler.OnAdd(gpuNodeOf(name, s.clock.Now()), true)
	}
	l.handler.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: gpuNodeOf("b", s.clock.Now())})
	if s.gpuNodes.get("a") == nil || s.gpuNodes.get("b") != nil {
		t.Fatal("one that is deleted is kept, or another is not")
	}
	j.endWatch(t.Context(), noInformers{}, l)
	if !s.gpuNodes.none() {
		t.Error("what was said is kept")
	}
}

// TestReportsAreWaitedForAndNotForEver: nothing is known of one that is listed until the
// bound is over.
func TestReportsAreWaitedForAndNotForEver(t *testing.T) {
	s := testScene(t, 8, 8)
	waits := make(chan struct{})
	listedTwice := sync.OnceFunc(func() { close(waits) })
	var lists atomic.Int32
	j := s.jobsOn(t, interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, into client.ObjectList, _ ...client.ListOption) error {
		if list := into.(*metav1.PartialObjectMetadataList); list.Kind == "GPUNodeList" {
			list.Items = append(list.Items, *at("a", "5"))
			if lists.Add(1) == 2 {
				listedTwice()
			}
		}
		return nil
	}})
	bound := testclock.NewFakeClock(epoch0)
	j.clock = boundedBy{clock.RealClock{}, bound}
	j.watched = []listened{{source: source{gvk: v1alpha1.GroupVersion.WithKind("GPUNode"), need: notNeeded}, heard: newHeard()}}
	done := make(chan error, 1)
	go func() { done <- j.catchUp(t.Context()) }()
	select {
	case err := <-done:
		t.Fatalf("it is not waited for (%v)", err)
	case <-waits:
	}
	bound.Step(unneededBound)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// boundedBy is the time, but for bounds, which are another clock's.
type boundedBy struct {
	clock.RealClock
	bound *testclock.FakeClock
}

func (b boundedBy) NewTimer(d time.Duration) clock.Timer { return b.bound.NewTimer(d) }

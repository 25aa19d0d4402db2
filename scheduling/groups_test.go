package scheduling

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/muster-gpu/muster/workload"
)

func TestPodsOfAGroupThatHaveGoneAreToldOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		gone      int
		told, end string
	}{
		"one": {1, "PodsGone: 1 of 3 pods has gone; its place is kept, and all are released if none takes it in 5m0s",
			"1 of 3 pods has been gone for 5m0s; all are released"},
		"two": {2, "PodsGone: 2 of 3 pods have gone; their places are kept, and all are released if none take them in 5m0s",
			"2 of 3 pods have been gone for 5m0s; all are released"},
	} {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 24, 8, 8, 8)
			pods := []*corev1.Pod{ofGroup("g", "first"), ofGroup("g", "second"), ofGroup("g", "third")}
			j := s.admitted(groupOf(pods...), []string{"node-0", "node-1", "node-2"})
			bound := s.bindAll(pods...)
			delete(s.wishes.notes, "g")
			for _, p := range bound[:tc.gone] {
				s.gone(p)
			}
			s.expire(5 * time.Minute)
			if notes := s.wishes.notes["g"]; len(notes) > 0 {
				t.Errorf("before others could come it says %q", notes)
			}
			for range 3 {
				s.clock.Step(time.Second)
				s.expire(5 * time.Minute)
			}
			if diff := cmp.Diff([]string{tc.told}, s.wishes.notes["g"]); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			s.clock.Step(5 * time.Minute)
			s.expire(5 * time.Minute)
			if e := s.entry(j); e.state != Leaving || e.eviction.message != tc.end {
				t.Errorf("it is %s, evicted as %+v", e.state, e.eviction)
			}
		})
	}
}

func TestPodThatAGroupDoesNotNeedIsToldSo(t *testing.T) {
	s := testScene(t, 24, 8, 8, 8)
	pods := []*corev1.Pod{ofGroup("g", "first"), ofGroup("g", "second")}
	s.admitted(groupOf(pods...), []string{"node-0", "node-1"})
	bound := s.bindAll(pods...)
	delete(s.wishes.notes, "g")
	s.Seen(ofGroup("g", "third"))
	leaving := ofGroup("g", "leaving")
	leaving.DeletionTimestamp = new(metav1.NewTime(epoch0))
	s.Seen(leaving)
	for range 2 {
		s.expire(time.Minute)
	}
	want := []string{"GroupFull: group g has its 2 pods; this one waits until one of them goes"}
	if diff := cmp.Diff(want, s.wishes.notes["g"]); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	s.Deleted(leaving)
	s.gone(bound[0])
	s.expire(time.Minute)
	other := ofGroup("g", "fourth")
	other.Spec.Containers[0].Resources.Requests[gpuResource] = bound[1].Spec.Containers[0].Resources.Requests[gpuResource].DeepCopy()
	other.Spec.NodeSelector = map[string]string{"a": "b"}
	s.gone(bound[1])
	s.Seen(other)
	s.expire(time.Minute)
	want = append(want, "GroupFull: group g has no place for a pod like this one: those that are free are for pods that ask for something else")
	if diff := cmp.Diff(want, s.wishes.notes["g"]); diff != "" {
		t.Errorf("events of a pod of another role (-want +got):\n%s", diff)
	}
}

// TestEventsOfAGroupAreOnItsFirstPods: each costs a write, and pods that are bound have
// one of their own.
func TestEventsOfAGroupAreOnItsFirstPods(t *testing.T) {
	job := &workload.Job{}
	for i := range 20 {
		job.Pods = append(job.Pods, ofGroup("gang", fmt.Sprintf("pod-%d", i)))
	}
	for why, want := range map[string]int{"Pending": 8, notePodsGone: 8, noteAdmitted: 1} {
		recorder := record.NewFakeRecorder(20)
		(&Jobs{recorder: recorder}).note(job, why, "")
		if got := len(recorder.Events); got != want {
			t.Errorf("%d events %s, want %d", got, why, want)
		}
	}
}

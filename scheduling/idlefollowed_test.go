package scheduling

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/workload"
)

// TestWhereKueueDecidesIdleJobsAreToldOnce goes through the uses of one job that Kueue
// runs; each look is that of another scheduler, which remembers nothing.
func TestWhereKueueDecidesIdleJobsAreToldOnce(t *testing.T) {
	s := besideKueue(t)
	of := s.starts(job("a", set("node", 0, 1, 8)))
	s.place()
	bound := s.bindAll(pods(of, "node", "first")...)
	s.setQueueHints(types.NamespacedName{Name: "main"}, workload.QueueHints{Idle: &workload.IdlePolicy{SuspendAfter: time.Hour}})
	j := s.jobsOn(t, interceptor.Funcs{})
	var got []string
	for _, step := range []v1alpha1.GPUVerdict{v1alpha1.GPUActive, v1alpha1.GPUIdle, v1alpha1.GPUIdle, v1alpha1.GPUUnknown, v1alpha1.GPUStalled} {
		s.hear(v1alpha1.GPUHolder{Verdict: step, Since: metav1.NewTime(epoch0)}, bound...)
		for _, u := range s.followedUses(s.clock.Now()) {
			if u.use.state == gpusIdle || u.use.state == gpusStalled {
				if err := j.noteEach(t.Context(), string(u.use.state), u); err != nil {
					t.Fatal(err)
				}
			}
		}
		var events corev1.EventList
		if err := j.client.List(t.Context(), &events); err != nil {
			t.Fatal(err)
		}
		got = append(got, string(step)+": "+map[int]string{0: "none", 1: "one", 2: "two"}[len(events.Items)])
	}
	if diff := cmp.Diff([]string{"active: none", "idle: one", "idle: one", "unknown: one", "stalled: two"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	s.clock.Step(time.Hour)
	s.hear(v1alpha1.GPUHolder{Verdict: v1alpha1.GPUStalled, Since: metav1.NewTime(epoch0)}, bound...)
	if n := len(s.followedLapses(s.clock.Now())); n != 0 {
		t.Error("it is suspended though it has stalled")
	}
	s.hear(idleSince(epoch0), bound...)
	if n := len(s.followedLapses(s.clock.Now())); n != 1 {
		t.Errorf("%d jobs are to be suspended after an hour, want 1", n)
	}
}

// TestKueueStopsAnIdleJobOnce looks every second, also while Kueue has not acted yet.
func TestKueueStopsAnIdleJobOnce(t *testing.T) {
	s := besideKueue(t)
	of := s.starts(job("a", set("node", 0, 1, 8)))
	s.place()
	bound := s.bindAll(pods(of, "node", "first")...)
	s.setQueueHints(types.NamespacedName{Name: "main"}, workload.QueueHints{Idle: &workload.IdlePolicy{SuspendAfter: time.Hour}})
	var writes []string
	fails := true
	j := s.jobsOn(t, interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
			writes = append(writes, obj.(*corev1.Event).Reason)
			return nil
		},
		Patch: func(_ context.Context, _ client.WithWatch, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
			if fails {
				return errUnanswered
			}
			data, err := patch.Data(obj)
			writes = append(writes, string(data))
			return err
		},
	})
	s.clock.Step(time.Hour)
	s.hear(idleSince(epoch0), bound...)
	for range 3 {
		j.suspendFollowed(t.Context())
		fails = false
	}
	version := s.workloadOf(of.Owner.UID).ResourceVersion
	want := []string{"Suspended", "Suspended", fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"spec":{"active":false}}`, version)}
	if diff := cmp.Diff(want, writes); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
}

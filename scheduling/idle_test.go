package scheduling

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/workload"
)

// TestWhatAJobDoesWithItsGPUsIsToldOnceForEachTime goes through the uses of one job, and
// looks at its condition and at the events.
func TestWhatAJobDoesWithItsGPUsIsToldOnceForEachTime(t *testing.T) {
	s := testScene(t, 64, 8)
	j := s.jobsOn(t, interceptor.Funcs{})
	of := job("a", set("node", 0, 1, 8))
	wl := s.stored(t, j, of)
	s.plan(of, []string{"node-0"})
	if err := j.writeAdmission(t.Context(), of.Owner.UID); err != nil {
		t.Fatal(err)
	}
	s.read(running(of), s.entry(of).workload, nil)
	bound := s.bindAll(pods(of, "node", "first")...)
	recorder := j.recorder.(*record.FakeRecorder)
	<-recorder.Events // It was admitted.
	kind := j.kinds[of.Owner.GroupVersionKind.GroupKind()]

	says := func(v v1alpha1.GPUVerdict) v1alpha1.GPUHolder {
		return v1alpha1.GPUHolder{Verdict: v, Since: metav1.NewTime(epoch0)}
	}
	var got []string
	for _, step := range []struct {
		name string
		says v1alpha1.GPUVerdict
	}{
		{"works", v1alpha1.GPUActive},
		{"idles", v1alpha1.GPUIdle},
		{"idles still", v1alpha1.GPUIdle},
		{"nobody knows", v1alpha1.GPUUnknown},
		{"idles still, it turns out", v1alpha1.GPUIdle},
		{"stalls", v1alpha1.GPUStalled},
		{"works again", v1alpha1.GPUActive},
		{"idles again", v1alpha1.GPUIdle},
	} {
		s.clock.Step(usesEvery)
		s.hear(says(step.says), bound...)
		clear(s.wishes.synced)
		s.tick(Timing{StartTimeout: time.Hour})
		if s.wishes.synced[keyOf(of.Owner)] > 0 {
			s.mu.Lock()
			want := s.want(s.jobs[of.Owner.UID])
			s.mu.Unlock()
			if err := j.act(t.Context(), kind, nil, of, want); err != nil {
				t.Fatal(err)
			}
		}
		c := apimeta.FindStatusCondition(latest(t, j, wl).Status.Conditions, conditionIdle)
		line := step.name + ": "
		if c != nil {
			line += fmt.Sprintf("%s (%s)", c.Status, c.Reason)
		}
		select {
		case event := <-recorder.Events:
			line += ", " + event
		default:
		}
		got = append(got, line)
	}
	const since = "since 2030-01-01T00:00:00Z"
	want := []string{
		"works: ",
		"idles: True (Idle), Warning GPUsIdle none of its 8 GPUs has been used " + since,
		"idles still: True (Idle)",
		"nobody knows: True (Idle)",
		"idles still, it turns out: True (Idle)",
		"stalls: True (Stalled), Warning GPUsStalled kernels run on 8 of its 8 GPUs, and get nothing done " + since,
		"works again: False (InUse)",
		"idles again: True (Idle), Warning GPUsIdle none of its 8 GPUs has been used " + since,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

func TestSuspendedAfterIdling(t *testing.T) {
	const after = 2 * time.Hour
	cluster, local := types.NamespacedName{Name: "cq"}, types.NamespacedName{Namespace: namespace, Name: "main"}
	policy := func(s *scene, queue types.NamespacedName, p workload.IdlePolicy) {
		s.setQueueHints(queue, workload.QueueHints{Idle: &p})
	}
	suspends := workload.IdlePolicy{EvictWhenNeeded: true, SuspendAfter: after}
	tests := map[string]struct {
		change func(s *scene)
		job    func(*workload.Job)
		// says is what is said of the GPUs when the time is over; nil if they are
		// idle since the beginning.
		says *v1alpha1.GPUHolder
		want State
	}{
		"its ClusterQueue says so":           {change: func(s *scene) { policy(s, cluster, suspends) }, want: Leaving},
		"its LocalQueue does":                {change: func(s *scene) { policy(s, local, suspends) }, want: Leaving},
		"nobody does":                        {want: Admitted},
		"its queue takes idle jobs first":    {change: func(s *scene) { policy(s, cluster, workload.IdlePolicy{EvictWhenNeeded: true}) }, want: Admitted},
		"its LocalQueue says otherwise":      {change: func(s *scene) { policy(s, cluster, suspends); policy(s, local, workload.IdlePolicy{}) }, want: Admitted},
		"it has asked to be left alone":      {change: func(s *scene) { policy(s, cluster, suspends) }, job: func(j *workload.Job) { j.Hints.IdleExemptUntil = epoch0.Add(after + time.Second) }, want: Admitted},
		"until now":                          {change: func(s *scene) { policy(s, cluster, suspends) }, job: func(j *workload.Job) { j.Hints.IdleExemptUntil = epoch0.Add(after) }, want: Leaving},
		"it has worked a minute ago":         {change: func(s *scene) { policy(s, cluster, suspends) }, says: new(idleSince(epoch0.Add(after - time.Minute))), want: Admitted},
		"it has stalled":                     {change: func(s *scene) { policy(s, cluster, suspends) }, says: &v1alpha1.GPUHolder{Verdict: v1alpha1.GPUStalled, Since: metav1.NewTime(epoch0)}, want: Admitted},
		"its GPUs may not be taken away yet": {change: func(s *scene) { policy(s, cluster, suspends) }, says: &v1alpha1.GPUHolder{Verdict: v1alpha1.GPUIdle, Since: metav1.NewTime(epoch0)}, want: Admitted},
		"nobody can suspend it":              {change: func(s *scene) { policy(s, cluster, suspends) }, job: func(j *workload.Job) { j.Gated = true }, want: Admitted},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 64, 8)
			of := job("a", set("node", 0, 1, 8))
			if test.job != nil {
				test.job(of)
			}
			j := s.admitted(of, []string{"node-0"})
			bound := s.bindAll(pods(j, "node", "first")...)
			if test.change != nil {
				test.change(s)
			}
			says := idleSince(epoch0)
			if test.says != nil {
				says = *test.says
			}
			s.clock.SetTime(epoch0.Add(after - time.Second))
			s.hear(says, bound...)
			s.expire(time.Hour)
			if got := s.state(j); got != Admitted {
				t.Fatalf("it is %s a second before", got)
			}
			s.clock.SetTime(epoch0.Add(after))
			s.expire(time.Hour)
			if got := s.state(j); got != test.want {
				t.Fatalf("it is %s, want %s", got, test.want)
			}
			if test.want != Leaving {
				return
			}
			e := s.entry(j).eviction
			const message = "none of its 8 GPUs has been used since 2030-01-01T00:00:00Z, and its queue suspends such a job after 2h0m0s"
			if e.reason != "DeactivatedDueToIdle" || e.message != message || !e.deactivates() {
				t.Errorf("it is evicted as %+v", *e)
			}
		})
	}
}

// Its pods are other ones then, and what was said of those before does not count.
func TestAJobThatIsStartedAgainIsNotSuspendedForItsFormerPods(t *testing.T) {
	s := testScene(t, 64, 8)
	s.setQueueHints(types.NamespacedName{Name: "cq"}, workload.QueueHints{Idle: &workload.IdlePolicy{SuspendAfter: time.Hour}})
	of := job("a", set("node", 0, 1, 8))
	j := s.admitted(of, []string{"node-0"})
	before := s.bindAll(pods(j, "node", "first")...)
	s.clock.Step(time.Hour)
	s.hear(idleSince(epoch0), before...)
	s.expire(2 * time.Hour)
	if got := s.state(j); got != Leaving {
		t.Fatalf("it is %s", got)
	}
	s.gone(before[0])
	wl := s.workloadOfJob(j)
	s.observe(of.Owner.UID, wl)
	s.left(of.Owner.UID)
	s.read(suspended(j), wl, nil)
	s.plan(j, []string{"node-0"})
	wl = s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j))
	if !s.written(j.Owner.UID, 0, wl, wrote, nil) {
		t.Fatal("it is not admitted again")
	}
	s.read(running(j), wl, nil)
	s.bindAll(pods(j, "node", "second")...)
	s.hear(idleSince(epoch0), before...)
	s.expire(2 * time.Hour)
	if got := s.state(j); got != Admitted {
		t.Errorf("it is %s", got)
	}
}

func TestWhatAJobSaysOfBeingIdle(t *testing.T) {
	annotated := func(v string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"muster.dev/idle-exempt-until": v, workload.MinRuntimeAnnotation: "30"}}}
	}
	hints := hintsOf(job("a"), annotated("2030-01-02T00:00:00Z"))
	if want := epoch0.Add(24 * time.Hour); !hints.IdleExemptUntil.Equal(want) {
		t.Errorf("it is exempt until %s, want %s", hints.IdleExemptUntil, want)
	}
	hints = hintsOf(job("a"), annotated("tomorrow"))
	if !hints.IdleExemptUntil.IsZero() || !strings.Contains(hints.Invalid, "muster.dev/min-runtime") || !strings.Contains(hints.Invalid, "; annotation muster.dev/idle-exempt-until") {
		t.Errorf("hints are %+v", hints)
	}
}

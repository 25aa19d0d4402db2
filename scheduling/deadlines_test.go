package scheduling

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// inCondition is a copy of a pod with a condition since a time.
func inCondition(p *corev1.Pod, kind corev1.PodConditionType, is bool, since time.Time) *corev1.Pod {
	p = p.DeepCopy()
	c := corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(since)}
	if is {
		c.Status = corev1.ConditionTrue
	}
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == kind {
			p.Status.Conditions[i] = c
			return p
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, c)
	return p
}

// become is the news that pods on nodes are ready, or no longer.
func (s *scene) become(ready bool, pods ...*corev1.Pod) {
	s.t.Helper()
	for i, p := range pods {
		pods[i] = inCondition(p, corev1.PodReady, ready, s.clock.Now())
		if err := s.watched.UpdatePod(s.logger, p, pods[i]); err != nil {
			s.t.Fatalf("updating pod %s: %v", p.Name, err)
		}
	}
}

// pods are the pods of a pod set, one for each slot.
func pods(j *workload.Job, podSet, uid string) []*corev1.Pod {
	var out []*corev1.Pod
	for i := range j.PodSet(podSet).Count {
		out = append(out, pod(j, podSet, i, uid+"-"+string('0'+i)))
	}
	return out
}

func TestReadyTimeout(t *testing.T) {
	const never = 1000 * time.Hour
	timing := Timing{StartTimeout: never, ReadyTimeout: 30 * time.Minute}
	all := func(s *scene, j *workload.Job) []*corev1.Pod { return s.bindAll(pods(j, "node", "first")...) }
	tests := map[string]struct {
		sets   []workload.PodSet
		timing *Timing
		// live is the life of the job; wait passes time in it, second by second
		// where it matters.
		live func(s *scene, j *workload.Job, wait func(time.Duration))
		want string
	}{
		"a job whose pods are all ready stays": {live: func(s *scene, j *workload.Job, wait func(time.Duration)) {
			bound := all(s, j)
			wait(29 * time.Minute)
			s.become(true, bound...)
			wait(never)
		}},
		"a job of which one pod is never ready is released": {live: func(s *scene, j *workload.Job, wait func(time.Duration)) {
			bound := all(s, j)
			wait(0)
			s.become(true, bound[:3]...)
			wait(30 * time.Minute)
		}, want: "only 3 of 4 pods became ready within 30m0s on their nodes; all are released"},
		"and not a second earlier": {live: func(s *scene, j *workload.Job, wait func(time.Duration)) {
			bound := all(s, j)
			wait(0)
			s.become(true, bound[:3]...)
			wait(30*time.Minute - time.Second)
		}},
		"what a container waits for is told": {live: func(s *scene, j *workload.Job, wait func(time.Duration)) {
			bound := all(s, j)
			wait(0)
			s.become(true, bound[1:]...)
			stuck := bound[0].DeepCopy()
			stuck.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "ImagePullBackOff", Message: "no such image",
			}}}}
			if err := s.watched.UpdatePod(s.logger, bound[0], stuck); err != nil {
				s.t.Fatalf("updating: %v", err)
			}
			wait(30 * time.Minute)
		}, want: "only 3 of 4 pods became ready within 30m0s on their nodes; pod first-0 waits: ImagePullBackOff, no such image; all are released"},
		"a pod that is unready later evicts nothing": {live: func(s *scene, j *workload.Job, wait func(time.Duration)) {
			bound := all(s, j)
			s.become(true, bound[0])
			s.become(false, bound[0])
			s.become(true, bound[1:]...)
			wait(time.Hour)
			s.become(false, bound...)
			wait(never)
		}},
		"nor does a pod that comes back and is not ready": {live: func(s *scene, j *workload.Job, wait func(time.Duration)) {
			bound := all(s, j)
			s.become(true, bound...)
			wait(time.Hour)
			s.gone(bound[0])
			s.settle(false)
			s.bindAll(pod(j, "node", 0, "second-0"))
			wait(never / 2)
		}},
		"the clock runs on when a pod is replaced that was never ready": {live: func(s *scene, j *workload.Job, wait func(time.Duration)) {
			bound := all(s, j)
			wait(0)
			s.become(true, bound[1:]...)
			wait(20 * time.Minute)
			s.gone(bound[0])
			s.settle(false)
			wait(0)
			s.bindAll(pod(j, "node", 0, "second-0"))
			wait(10 * time.Minute)
		}, want: "only 3 of 4 pods became ready within 30m0s on their nodes; all are released"},
		"while a pod is missing the start is late, not the readiness": {live: func(s *scene, j *workload.Job, wait func(time.Duration)) {
			bound := all(s, j)
			wait(0)
			s.gone(bound[0])
			wait(never / 2)
		}},
		"a pod that has succeeded counts as ready": {live: func(s *scene, j *workload.Job, wait func(time.Duration)) {
			bound := all(s, j)
			s.become(true, bound[1:]...)
			wait(0)
			s.gone(bound[0])
			s.settle(true)
			wait(never)
		}},
		"also when its set begins again": {live: func(s *scene, j *workload.Job, wait func(time.Duration)) {
			bound := all(s, j)
			s.become(true, bound[1:]...)
			s.gone(bound[0])
			s.settle(true)
			again := pod(j, "node", 0, "second-0")
			s.Seen(again)
			sl := s.slot(j, "node", 0)
			s.entry(j).moveTo(sl, "node-0")
			sl.unwritten = false
			s.bindAll(again)
			wait(never / 2)
		}},
		"where pods follow each other in their slots, too": {
			sets: []workload.PodSet{following("node", 8, 4)},
			live: func(s *scene, j *workload.Job, wait func(time.Duration)) {
				for i, p := range all(s, j) {
					s.gone(p)
					s.settle(true)
					s.bindAll(pod(j, "node", -1, "next-"+string(rune('0'+i))))
				}
				wait(never)
			}},
		"a later phase has its time from when its pods are on their nodes": {
			sets: []workload.PodSet{set("init", 0, 1, 1), set("node", 1, 4, 1)},
			live: func(s *scene, j *workload.Job, wait func(time.Duration)) {
				first := s.bindAll(pods(j, "init", "init")...)
				s.become(true, first...)
				wait(100 * time.Hour)
				s.gone(first[0])
				s.settle(true)
				bound := all(s, j)
				wait(0)
				s.become(true, bound[0])
				wait(30*time.Minute - time.Second)
				if got := s.state(j); got != Admitted {
					s.t.Fatalf("it is %s before its time is up", got)
				}
				wait(time.Second)
			}, want: "only 1 of 4 pods became ready within 30m0s on their nodes; all are released"},
		"a first phase that runs long does not trip it": {
			sets: []workload.PodSet{set("init", 0, 1, 1), set("node", 1, 4, 1)},
			live: func(s *scene, j *workload.Job, wait func(time.Duration)) {
				s.become(true, s.bindAll(pods(j, "init", "init")...)...)
				wait(never)
			}},
		"0 is no limit": {
			timing: &Timing{StartTimeout: never},
			live: func(s *scene, j *workload.Job, wait func(time.Duration)) {
				all(s, j)
				wait(never)
			}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 64, 64)
			sets := tc.sets
			if sets == nil {
				sets = []workload.PodSet{set("node", 0, 4, 1)}
			}
			if tc.timing == nil {
				tc.timing = &timing
			}
			var nodes [][]string
			for _, ps := range sets {
				n := make([]string, ps.Count)
				for i := range n {
					n[i] = "node-0"
				}
				nodes = append(nodes, n)
			}
			j := s.admitted(job("gang", sets...), nodes...)
			tc.live(s, j, func(d time.Duration) {
				s.giveUpLate(*tc.timing)
				s.clock.Step(d)
				s.giveUpLate(*tc.timing)
			})
			e := s.entry(j)
			if tc.want == "" {
				if e.state != Admitted {
					t.Errorf("it is %s, evicted as %+v", e.state, e.eviction)
				}
				return
			}
			if e.state != Leaving || e.eviction.message != tc.want || !e.eviction.backOff || e.eviction.reason != kueue.WorkloadEvictedByPodsReadyTimeout {
				t.Errorf("it is %s, evicted as %+v, want %q", e.state, e.eviction, tc.want)
			}
		})
	}
}

// following is a set of completions pods in slots that they share.
func following(name string, completions, count int32) workload.PodSet {
	ps := set(name, 0, count, 1)
	ps.Completions = completions
	return ps
}

func TestReadinessOverARestart(t *testing.T) {
	says := func(status metav1.ConditionStatus) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadPodsReady, Status: status, Reason: "Test"})
		}
	}
	tests := map[string]struct {
		says func(*kueue.Workload)
		// after the restart, until the job is looked at
		after time.Duration
		want  State
	}{
		"a job of which all pods were ready stays, whatever its pods are now": {says: says(metav1.ConditionTrue), after: 1000 * time.Hour, want: Admitted},
		"one of which a pod was not has what was left of its time":            {says: says(metav1.ConditionFalse), after: 10 * time.Minute, want: Leaving},
		"and not less": {says: says(metav1.ConditionFalse), after: 10*time.Minute - time.Second, want: Admitted},
		"one that does not say has its whole time":  {says: func(*kueue.Workload) {}, after: 30*time.Minute - time.Second, want: Admitted},
		"and not more, since nothing says that was": {says: func(*kueue.Workload) {}, after: 30 * time.Minute, want: Leaving},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			timing := Timing{StartTimeout: time.Hour, ReadyTimeout: 30 * time.Minute}
			s := testScene(t, 8, 8)
			j := s.admitted(job("gang", set("node", 0, 1, 8)), []string{"node-0"})
			wl := s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j), tc.says)
			after := testScene(t, 8, 8)
			after.Ledger.restore(j, wl, nil)
			after.confirm(inCondition(onNode(pod(j, "node", 0, "node-0"), "node-0"), corev1.PodScheduled, true, epoch0.Add(-20*time.Minute)))
			after.giveUpLate(timing)
			after.clock.Step(tc.after)
			after.giveUpLate(timing)
			if got := after.state(j); got != tc.want {
				t.Errorf("it is %s, want %s", got, tc.want)
			}
		})
	}
}

// admittedSince says that a Workload has been admitted since a time, and may be
// for limit seconds in all, past of which are over.
func admittedSince(at time.Time, limit, past *int32) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Spec.MaximumExecutionTimeSeconds, wl.Status.AccumulatedPastExecutionTimeSeconds = limit, past
		apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{
			Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.NewTime(at),
		})
	}
}

func TestMaximumExecutionTime(t *testing.T) {
	tests := map[string]struct {
		limit, past *int32
		ran         time.Duration
		want        State
	}{
		"a job without a limit runs on":                  {ran: 1000 * time.Hour, want: Admitted},
		"a job whose time is not up runs on":             {limit: new(int32(60)), ran: 59 * time.Second, want: Admitted},
		"a job whose time is up is stopped":              {limit: new(int32(60)), ran: 60 * time.Second, want: Leaving},
		"what it ran before counts":                      {limit: new(int32(60)), past: new(int32(50)), ran: 10 * time.Second, want: Leaving},
		"and no more than that":                          {limit: new(int32(60)), past: new(int32(50)), ran: 9 * time.Second, want: Admitted},
		"a job that has no time left is stopped at once": {limit: new(int32(60)), past: new(int32(61)), want: Leaving},
	}
	for name, tc := range tests {
		for how, restarted := range map[string]bool{"": false, ", over a restart": true} {
			t.Run(name+how, func(t *testing.T) {
				s := testScene(t, 8, 8)
				j := s.pending(job("a", set("node", 0, 1, 8)))
				s.plan(j, []string{"node-0"})
				wl := s.workloadOfJob(j, s.admissionWritten(j), admittedSince(epoch0, tc.limit, tc.past))
				s.written(j.Owner.UID, 0, wl, wrote, nil)
				if restarted {
					s = testScene(t, 8, 8)
					s.Ledger.restore(running(j), wl, nil)
				}
				s.clock.Step(tc.ran)
				s.giveUpLate(Timing{StartTimeout: 2000 * time.Hour})
				e := s.entry(j)
				if e.state != tc.want {
					t.Fatalf("it is %s, want %s", e.state, tc.want)
				}
				if tc.want == Leaving && (e.eviction.reason != "DeactivatedDueToMaximumExecutionTimeExceeded" ||
					e.eviction.message != "it has used up its maximum execution time of 1m0s" || e.eviction.backOff) {
					t.Errorf("it is evicted as %+v", e.eviction)
				}
			})
		}
	}
}

// The job goes the whole way, with a crash after the
// eviction is written and before the Workload is deactivated.
func TestAJobThatHasUsedUpItsTimeIsDeactivatedAlsoOverACrash(t *testing.T) {
	for name, crash := range map[string]bool{"at once": false, "after a crash": true} {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8, 8)
			fails := crash
			funcs := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if fails {
					return errUnanswered
				}
				return c.Patch(ctx, obj, patch, opts...)
			}}
			j := s.jobsOn(t, funcs)
			of := job("a", set("node", 0, 1, 8))
			wl := s.stored(t, j, of)
			s.plan(of, []string{"node-0"})
			if err := j.writeAdmission(t.Context(), of.Owner.UID); err != nil {
				t.Fatal(err)
			}
			wl = latest(t, j, wl)
			wl.Status.AccumulatedPastExecutionTimeSeconds = new(int32(7))
			if err := j.client.Status().Update(t.Context(), wl); err != nil {
				t.Fatal(err)
			}
			s.observe(of.Owner.UID, wl)
			why := eviction{reason: deactivatedDueTo + kueue.WorkloadMaximumExecutionTimeExceeded, message: "its time is up"}
			s.stop(of, why)
			if err := j.writeEviction(t.Context(), of.Owner.UID, why); (err != nil) != crash {
				t.Fatalf("the error is %v", err)
			}
			if crash {
				fails = false
				before := j.client
				s = testScene(t, 8, 8)
				j = s.jobsOn(t, interceptor.Funcs{})
				j.client, j.reader = before, before
				s.Ledger.restore(running(of), latest(t, j, wl), nil)
				got := s.read(running(of), latest(t, j, wl), nil)
				if got.do != doSuspend || got.eviction == nil {
					t.Fatalf("after the restart the job needs %+v", got)
				}
				if err := j.writeEviction(t.Context(), of.Owner.UID, *got.eviction); err != nil {
					t.Fatal(err)
				}
			}
			wl = latest(t, j, wl)
			c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted)
			if *wl.Spec.Active || c == nil || c.Reason != why.reason || c.Message != why.message {
				t.Errorf("it is active: %v, evicted as %+v", *wl.Spec.Active, c)
			}
			s.read(suspended(of), wl, nil)
			if want, got := "spec.active is false, because its time is up", s.entry(of).blocked; got == nil || !strings.Contains(got.Message, want) {
				t.Errorf("it waits because of %v, want %q", got, want)
			}
			s.clock.Step(time.Minute)
			if err := j.writeRequeue(t.Context(), of); err != nil {
				t.Fatal(err)
			}
			wl = latest(t, j, wl)
			if n := wl.Status.AccumulatedPastExecutionTimeSeconds; n != nil || isAdmitted(wl) {
				t.Errorf("%d s of its next time are over (admitted: %v)", *n, isAdmitted(wl))
			}
		})
	}
}

func TestTimeOfAnAdmissionIsAddedWhenItEnds(t *testing.T) {
	tests := map[string]struct {
		past *int32
		ran  time.Duration
		want int32
	}{
		"to nothing":          {ran: 90 * time.Second, want: 90},
		"to what was before":  {past: new(int32(7)), ran: 90 * time.Second, want: 97},
		"up to what it holds": {past: new(int32(1<<31 - 10)), ran: 90 * time.Second, want: 1<<31 - 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8, 8)
			j := s.jobsOn(t, interceptor.Funcs{})
			of := job("a", set("node", 0, 1, 8))
			wl := s.stored(t, j, of)
			s.plan(of, []string{"node-0"})
			if err := j.writeAdmission(t.Context(), of.Owner.UID); err != nil {
				t.Fatal(err)
			}
			wl = latest(t, j, wl)
			wl.Status.AccumulatedPastExecutionTimeSeconds = tc.past
			if err := j.client.Status().Update(t.Context(), wl); err != nil {
				t.Fatal(err)
			}
			s.observe(of.Owner.UID, wl)
			s.clock.Step(tc.ran)
			s.stop(of, eviction{reason: kueue.WorkloadEvictedByPodsReadyTimeout, message: "late"})
			for range 2 {
				// The second time the first answer was lost.
				if err := j.writeRequeue(t.Context(), of); err != nil {
					t.Fatal(err)
				}
			}
			wl = latest(t, j, wl)
			if n := wl.Status.AccumulatedPastExecutionTimeSeconds; n == nil || *n != tc.want {
				t.Errorf("the time is %v, want %d", n, tc.want)
			}
			if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady); c == nil || c.Status != metav1.ConditionFalse || c.Reason != kueue.WorkloadWaitForStart {
				t.Errorf("PodsReady is %+v", c)
			}
		})
	}
}

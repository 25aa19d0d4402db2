package scheduling

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/testutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/workload"
)

// broken is the metric, which is one for all tests.
func broken(t *testing.T, reason string) float64 {
	t.Helper()
	v, err := testutil.GetCounterMetricValue(metrics.HoldsBroken.WithLabelValues(reason))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// holds admits a job of one pod on node-0, with a priority and at a time.
func (s *scene) holds(name string, gpus int64, priority int32, at time.Duration) *workload.Job {
	s.t.Helper()
	j := job(name, set("node", 0, 1, gpus))
	s.admitted(j, []string{"node-0"})
	s.observe(j.Owner.UID, s.workloadOfJob(j, s.admissionWritten(j), func(wl *kueue.Workload) {
		wl.Spec.Priority = &priority
		apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{
			Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.NewTime(epoch0.Add(at)),
		})
	}))
	return j
}

// lost are the jobs whose slot has no node.
func (s *scene) lost(jobs ...*workload.Job) []string {
	var out []string
	for _, j := range jobs {
		if s.slot(j, "node", 0).lost() {
			out = append(out, j.Owner.Name)
		}
	}
	return out
}

func TestPodThatOthersPutOnHeldRoomBreaksAsFewHoldsAsItTakes(t *testing.T) {
	tests := map[string]struct {
		gpus int64
		want []string
	}{
		"one that fits beside the holds breaks none":        {1, nil},
		"the lowest priority gives way first":               {3, []string{"low"}},
		"then, of one priority, who was admitted last":      {6, []string{"low", "late"}},
		"a hold that a later one makes superfluous is kept": {5, []string{"late"}},
		"a pod that takes all of the node breaks all holds": {9, []string{"low", "late", "early"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 64, 9)
			before := broken(t, "pod")
			low, late, early := s.holds("low", 2, -1, 0), s.holds("late", 4, 0, time.Hour), s.holds("early", 2, 0, 0)
			s.confirm(plainPod("x", "node-0", tc.gpus))
			if diff := cmp.Diff(tc.want, s.lost(low, late, early)); diff != "" {
				t.Fatalf("lost (-want +got):\n%s", diff)
			}
			if got := broken(t, "pod") - before; got != float64(len(tc.want)) {
				t.Errorf("%v broken holds are counted, want %d", got, len(tc.want))
			}
			for _, name := range tc.want {
				want := []string{"HoldBroken: pod team-a/x, whose schedulerName is default-scheduler, was put on node node-0 by others and took the room that was held for 1 pod of the job; another node is looked for"}
				if diff := cmp.Diff(want, s.wishes.notes[name]); diff != "" {
					t.Errorf("events of %s (-want +got):\n%s", name, diff)
				}
			}
			for _, name := range []string{"low", "late", "early"} {
				if !slices.Contains(tc.want, name) && len(s.wishes.notes[name]) > 0 {
					t.Errorf("%s is told %q", name, s.wishes.notes[name])
				}
			}
		})
	}
}

func TestHoldsBreakForEveryResource(t *testing.T) {
	s := testScene(t, 64, 8)
	s.changes("node-0", 8, func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("1") })
	j := s.admitted(job("a", set("node", 0, 1, 2)), []string{"node-0"})
	s.confirm(plainPod("x", "node-0", 0))
	if got := s.lost(j); len(got) != 1 {
		t.Error("a pod without GPUs takes the place of a hold unseen")
	}
}

func TestPodsOfAJobDoNotBreakItsOwnHolds(t *testing.T) {
	s := testScene(t, 64, 8, 8)
	j := s.admitted(job("a", set("node", 0, 2, 4)), []string{"node-0", "node-0"})
	bound := s.bindAll(pod(j, "node", 0, "a"), pod(j, "node", 1, "b"))
	s.gone(bound[0])
	again := pod(j, "node", 0, "again")
	s.Seen(again)
	s.take(again)
	s.assume(again)
	s.GiveBack(again, false)
	// The cache counts the pod and its phantom now.
	s.intruded(plainPod("x", "node-0", 0))
	if sl := s.slot(j, "node", 0); sl.node != "node-0" || len(s.wishes.notes) > 0 {
		t.Errorf("the slot is %+v, the events %q", *sl, s.wishes.notes)
	}
}

func TestGangPodThatOthersBindElsewhereTakesItsSlotWithIt(t *testing.T) {
	s := testScene(t, 64, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	other := job("b", set("node", 0, 1, 8))
	s.admitted(other, []string{"node-1"})
	p := pod(j, "node", 0, "p")
	s.Seen(p)
	s.confirm(onNode(p, "node-1"))
	if sl := s.slot(j, "node", 0); sl.node != "node-1" || !sl.bound || s.taken("node-0") != 0 {
		t.Errorf("the slot is %+v, and node-0 has %d GPUs taken", *sl, s.taken("node-0"))
	}
	if s.wishes.writes[j.Owner.UID] == 0 {
		t.Error("its Workload keeps saying the other node")
	}
	if got := s.lost(other); len(got) != 1 {
		t.Error("whose room it took keeps its hold")
	}
}

func TestNodeThatLosesGPUsIsShortForTheGrace(t *testing.T) {
	s := testScene(t, 64, 8)
	before := broken(t, "node")
	old, young := s.holds("old", 4, 0, 0), s.holds("young", 4, 0, time.Hour)
	s.changes("node-0", 7)
	if s.passes(grace - time.Second); len(s.lost(old, young)) > 0 {
		t.Fatalf("within the grace %q lost their nodes", s.lost(old, young))
	}
	s.passes(time.Second)
	if diff := cmp.Diff([]string{"young"}, s.lost(old, young)); diff != "" {
		t.Errorf("lost after the grace (-want +got):\n%s", diff)
	}
	want := []string{"HoldBroken: node node-0 has 7 nvidia.com/gpu now, too little for what was held for 1 pod of the job; another node is looked for"}
	if diff := cmp.Diff(want, s.wishes.notes["young"]); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got := broken(t, "node") - before; got != 1 {
		t.Errorf("%v broken holds are counted, want 1", got)
	}
	p := pod(old, "node", 0, "p")
	s.Seen(p)
	if ok, why := s.MayEnter(p); !ok {
		t.Errorf("the pod that still fits is kept off: %s", why)
	}
}

func TestGPUThatGoesBadUnderARunningPodCostsItsSlotWhenThePodHasEnded(t *testing.T) {
	s := testScene(t, 64, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	bound := s.bindAll(pod(j, "node", 0, "p"))
	s.changes("node-0", 7)
	s.passes(grace)
	if sl := s.slot(j, "node", 0); !sl.bound {
		t.Fatalf("the slot is %+v, want its pod to run", *sl)
	}
	s.gone(bound[0])
	if got := s.lost(j); len(got) != 1 {
		t.Error("its slot is held where it does not fit")
	}
}

func TestHoldsOfAJobThatIsBeingWrittenBreakOnceItIs(t *testing.T) {
	s := testScene(t, 64, 8)
	j := s.pending(job("a", set("node", 0, 1, 8)))
	s.plan(j, []string{"node-0"})
	s.confirm(plainPod("x", "node-0", 4))
	if len(s.lost(j)) > 0 {
		t.Fatal("the slot is given up, and nobody will look for another")
	}
	s.written(j.Owner.UID, 0, s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j)), wrote, nil)
	if len(s.lost(j)) != 1 {
		t.Error("the slot is kept")
	}
}

func TestPlanIsNotCommittedOnNodesThatOthersHaveFilled(t *testing.T) {
	s := testScene(t, 64, 8)
	j := s.pending(job("a", set("node", 0, 1, 8)))
	s.confirm(plainPod("x", "node-0", 4))
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.jobs[j.Owner.UID]
	a, _ := s.quota.Assign(e.request(nil))
	if err := s.charge(e, e.version, a, [][]string{{"node-0"}}, prototypes(e, a, s.quota)); err == nil || s.taken("node-0") != 4 {
		t.Errorf("charging: %v; %d GPUs are taken", err, s.taken("node-0"))
	}
}

func TestPodThatFailsOnItsNodeTwiceIsPlannedElsewhere(t *testing.T) {
	s := testScene(t, 64, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	p := pod(j, "node", 0, "p")
	s.Seen(p)
	sl := s.slot(j, "node", 0)
	for i := range 2 {
		if sl.lost() {
			t.Fatalf("after %d failures the slot is lost", i)
		}
		s.take(p)
		s.GiveBack(p, false)
		s.failed(p)
	}
	if !sl.lost() || sl.avoid != "node-0" {
		t.Errorf("the slot is %+v, want another node looked for", *sl)
	}
}

func TestFailuresCountInARow(t *testing.T) {
	s := testScene(t, 64, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	for _, uid := range []string{"first", "second"} {
		p := pod(j, "node", 0, uid)
		s.Seen(p)
		s.take(p)
		s.GiveBack(p, false)
		s.failed(p)
		s.gone(s.bindAll(p)[0])
	}
	if sl := s.slot(j, "node", 0); sl.lost() {
		t.Error("a failure before a success counts")
	}
}

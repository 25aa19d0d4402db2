package scheduling

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/workload"
)

func TestQueueOrderIsPriorityThenAgeThenUID(t *testing.T) {
	at := func(uid string, priority int32, age time.Duration) *entry {
		return &entry{priority: priority, job: &workload.Job{Owner: workload.Owner{UID: types.UID(uid)}, Created: epoch0.Add(-age)}}
	}
	want := []*entry{
		at("highest", math.MaxInt32, 0),
		at("high", 1, 0),
		at("old", 0, time.Hour),
		at("a-young", 0, time.Minute),
		at("b-young", 0, time.Minute),
		at("low", -1, time.Hour),
		at("lowest", math.MinInt32, time.Hour),
	}
	for i, a := range want {
		for k, b := range want {
			if got := a.before(b); i != k && (got < 0) != (i < k) {
				t.Errorf("%s.before(%s) = %d", a.job.Owner.UID, b.job.Owner.UID, got)
			}
		}
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, (*entry).before)
	if !slices.Equal(want, got) {
		t.Error("sorting does not give the order")
	}
}

func TestLate(t *testing.T) {
	waits, runs, done := &slot{node: "n"}, &slot{node: "n", bound: true, pod: &corev1.Pod{}}, &slot{done: true}
	there := &slot{node: "n", pod: &corev1.Pod{}}
	type sets map[int][]*slot
	tests := map[string]struct {
		sets sets
		want bool
	}{
		"a job whose pods all run":                                {sets{0: {runs, runs}}, false},
		"a pod of the first phase is due from the start":          {sets{0: {runs, waits}}, true},
		"a pod that has come and is not on its node is due":       {sets{0: {there}}, true},
		"a pod that has succeeded is not due":                     {sets{0: {done, runs}}, false},
		"a later phase is not due before its first pod":           {sets{0: {runs}, 1: {waits, waits}}, false},
		"nor while the first phase has succeeded":                 {sets{0: {done}, 1: {waits}}, false},
		"once one pod of a later phase is there, all of them are": {sets{0: {done}, 1: {runs, waits}}, true},
		"the phase after that is still not due":                   {sets{0: {done}, 1: {runs}, 2: {waits}}, false},
		"a job without pods is never late":                        {sets{}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			e := &entry{}
			for phase, slots := range tc.sets {
				e.sets = append(e.sets, &setSlots{set: workload.PodSet{Phase: phase}, slots: slots})
			}
			if got := e.late(epoch0); got != tc.want {
				t.Errorf("late is %v, want %v", got, tc.want)
			}
		})
	}
}

func TestJobThatDoesNotStartInTimeIsEvictedWithBackOffAndOneThatStartsIsNot(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	slow := s.admitted(job("slow", set("node", 0, 2, 4)), []string{"node-0", "node-0"})
	quick := s.admitted(job("quick", set("node", 0, 1, 8)), []string{"node-1"})
	s.expire(time.Minute)
	s.bindAll(pod(quick, "node", 0, "quick-0"))
	s.clock.Step(59 * time.Second)
	s.expire(time.Minute)
	if got := s.state(slow); got != Admitted {
		t.Fatalf("slow is %s a second before its time is up", got)
	}
	s.clock.Step(time.Second)
	s.expire(time.Minute)
	e := s.entry(slow)
	if e.state != Leaving || !e.eviction.backOff || e.eviction.message != "none of 2 pods came onto their nodes in 1m0s; all are released" {
		t.Errorf("slow is %s, evicted as %+v", e.state, e.eviction)
	}
	if got := s.state(quick); got != Admitted {
		t.Errorf("quick is %s", got)
	}
}

func TestJobsOfOneShapeShareWhatTheyRequestUntilOneChanges(t *testing.T) {
	s := testScene(t, 0)
	for i := range 3 {
		s.submitUrgent(job(fmt.Sprint("job-", i), set("node", 0, 2, 4)))
	}
	gpus := func(e *entry) int64 { return e.request(nil).PodSets[0].PerPod[gpuResource] }
	first := s.entry(job("job-0"))
	for i := range 3 {
		if got := gpus(s.entry(job(fmt.Sprint("job-", i)))); got != 4 {
			t.Errorf("job-%d requests %d GPUs per pod, want 4", i, got)
		}
	}
	if first.spot.bucket.demand.perPod == nil {
		t.Error("nothing is shared")
	}
	first.setJob(job("job-0", set("node", 0, 2, 8)))
	if got := gpus(first); got != 8 {
		t.Errorf("the job that has changed requests %d GPUs per pod, want 8", got)
	}
	if got := gpus(s.entry(job("job-1"))); got != 4 {
		t.Errorf("another job requests %d GPUs per pod now, want 4", got)
	}
}

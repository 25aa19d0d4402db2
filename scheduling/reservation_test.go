package scheduling

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// starving is a stage of two nodes of 8 GPUs, node-0 and node-1. The queue
// "main" has quota for 32. On node-1 runs "short", 8 GPUs that end in 10
// minutes, on node-0 "long", 4 GPUs, of which nothing says when they end. "big"
// wants 8 GPUs on one node, and has waited for long.
type starving struct {
	*stage
	short, long, big *workload.Job
}

func newStarving(t *testing.T) *starving {
	t.Helper()
	s := &starving{stage: newStage(t.Context(), t)}
	s.reserveAfter, s.reserveFor = 15*time.Minute, time.Hour
	s.watched.AddNode(s.logger, flavored("node-0", "gpu", 8))
	s.watched.AddNode(s.logger, flavored("node-1", "gpu", 8))
	s.queue("main", false, []string{"gpu"}, 32)
	s.queue("other", false, []string{"gpu"}, 32)
	s.Restored()
	s.short = s.runs(t, with(job("short", set("node", 0, 1, 8)), func(j *workload.Job) {
		j.PodSets[0].Template.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "node-1"}
	}), 10*time.Minute)
	s.long = s.runs(t, with(job("long", set("node", 0, 1, 4)), func(j *workload.Job) {
		j.PodSets[0].Template.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "node-0"}
	}), 0)
	s.big = with(job("big", set("node", 0, 1, 8)), func(j *workload.Job) { j.Created = epoch0.Add(-20 * time.Minute) })
	return s
}

// ask submits a job that runs for at most limit, where that is not zero.
func (s *starving) ask(j *workload.Job, limit time.Duration, priority int32) *workload.Job {
	s.names[j.Owner.UID] = j.Owner.Name
	if limit > 0 {
		j.MaxExecTime = new(fmt.Sprint(int(limit.Seconds())))
	}
	s.read(j, s.workloadOfJob(j, func(wl *kueue.Workload) { wl.Spec.Priority = &priority }), nil)
	return j
}

// runs has a job admitted.
func (s *starving) runs(t *testing.T, j *workload.Job, limit time.Duration) *workload.Job {
	t.Helper()
	s.ask(j, limit, 0)
	if got := s.pass(); len(got) != 1 {
		t.Fatalf("admitted %q, want %s", got, j.Owner.Name)
	}
	wl := s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), func(wl *kueue.Workload) {
		for i := range wl.Status.Conditions {
			wl.Status.Conditions[i].LastTransitionTime.Time = s.clock.Now()
		}
	})
	s.written(j.Owner.UID, 0, wl, wrote, nil)
	return j
}

func (s *starving) ends(j *workload.Job) {
	s.ownerGone(j.Owner.UID)
	s.left(j.Owner.UID)
}

// quarter is a job of 4 GPUs.
func quarter(name string, change ...func(*workload.Job)) *workload.Job {
	j := job(name, set("node", 0, 1, 4))
	for _, c := range change {
		c(j)
	}
	return j
}

func TestNodesAreReservedForAJobThatHasWaitedForLong(t *testing.T) {
	s := newStarving(t)
	s.ask(s.big, 0, 0)
	s.pass()
	r := s.reserved["main"]
	if r == nil {
		t.Fatal("nothing is reserved")
	}
	if diff := cmp.Diff([]string{"node-1"}, r.nodes); diff != "" {
		t.Errorf("reserved (-want +got):\n%s", diff)
	}
	if want := epoch0.Add(10 * time.Minute); !r.start.Equal(want) {
		t.Errorf("it is expected to start at %s, want %s", r.start, want)
	}
	says := "node node-1 is reserved for it since 2030-01-01T00:00:00Z, it is expected to start by 2030-01-01T00:10:00Z"
	if why := s.whyPending(s.entry(s.big), s.clock.Now(), 1); why == nil || !strings.HasSuffix(why.Message, "; "+says) {
		t.Errorf("it waits: %v", why)
	}
	if notes := s.wishes.notes["big"]; len(notes) != 1 || notes[0] != "Reserved: it has waited for long: "+says {
		t.Errorf("events are %q", notes)
	}
	s.ends(s.short)
	if diff := cmp.Diff([]string{"big"}, s.pass()); diff != "" {
		t.Errorf("admitted (-want +got):\n%s", diff)
	}
	if len(s.reserved) > 0 {
		t.Error("the reservation is left over")
	}
}

func TestWhoPassesAJobForWhichNodesAreReserved(t *testing.T) {
	other := func(j *workload.Job) { j.Queue = "other" }
	tests := map[string]struct {
		job      *workload.Job
		limit    time.Duration
		priority int32
		passes   bool
	}{
		"a job that ends before":                                      {quarter("x"), 5 * time.Minute, 0, true},
		"a job that ends just in time":                                {quarter("x"), 10 * time.Minute, 0, true},
		"a job that ends later":                                       {quarter("x"), 11 * time.Minute, 0, false},
		"a job of which nothing says when it ends":                    {quarter("x"), 0, 0, false},
		"a job of another queue that ends before":                     {quarter("x", other), 5 * time.Minute, 0, true},
		"a job of another queue that ends later":                      {quarter("x", other), 0, 0, false},
		"a job of higher priority":                                    {quarter("x"), 0, 1, true},
		"a job with a deadline":                                       {quarter("x", func(j *workload.Job) { j.PodSets[0].Deadline = new(int64(300)) }), 0, 0, true},
		"a job whose deadline is too late":                            {quarter("x", func(j *workload.Job) { j.PodSets[0].Deadline = new(int64(900)) }), 0, 0, false},
		"a job whose maximum execution time counts, not its deadline": {quarter("x", func(j *workload.Job) { j.PodSets[0].Deadline = new(int64(300)) }), time.Hour, 0, false},
		"an older job":                                                {quarter("x", func(j *workload.Job) { j.Created = epoch0.Add(-time.Hour) }), 0, 0, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStarving(t)
			s.ask(s.big, 0, 0)
			s.pass()
			// Room comes on the reserved node, too little for big, and node-0 is full.
			s.runs(t, quarter("filler"), 0)
			if err := s.watched.AddPod(s.logger, plainPod("stranger", "node-1", 4)); err != nil {
				t.Fatal(err)
			}
			r := s.reserved["main"]
			s.ends(s.short)
			s.ask(tc.job, tc.limit, tc.priority)
			got := s.pass()
			if passes := len(got) == 1 && got[0] == "x"; passes != tc.passes {
				t.Errorf("admitted %q, want x to pass: %v", got, tc.passes)
			}
			if s.reserved["main"] != r {
				t.Error("the reservation is another now")
			}
			if !tc.passes {
				if why := s.whyPending(s.entry(tc.job), s.clock.Now(), 1); why == nil || !strings.Contains(why.Message, "1 node(s) reserved for jobs that have waited for long") {
					t.Errorf("it waits: %v", why)
				}
			}
		})
	}
}

func TestQuotaIsKeptForAJobForWhichNodesAreReserved(t *testing.T) {
	tests := map[string]struct {
		limit  time.Duration
		passes bool
	}{
		"not from who ends before": {5 * time.Minute, true},
		"but from who does not":    {0, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStarving(t)
			s.queue("main", false, []string{"gpu"}, 20)
			s.ask(s.big, 0, 0)
			s.pass()
			x := s.ask(quarter("x"), tc.limit, 0)
			if got := s.pass(); (len(got) == 1) != tc.passes {
				t.Errorf("admitted %q", got)
			}
			if why := s.whyPending(s.entry(x), s.clock.Now(), 1); !tc.passes && (why == nil || why.Class != "WaitingForQuota") {
				t.Errorf("it waits for %v", why)
			}
			s.ends(s.short)
			if got := s.pass(); len(got) == 0 || got[0] != "big" {
				t.Errorf("admitted %q, want big", got)
			}
		})
	}
}

func TestAReservationEnds(t *testing.T) {
	tests := map[string]struct {
		ends func(s *starving)
		left bool
		// taken: the quota is not free for another reason.
		taken bool
	}{
		"when it has lasted for long enough": {func(s *starving) {
			s.clock.Step(time.Hour)
			s.expire(3 * time.Hour)
		}, false, false},
		"not before": {func(s *starving) {
			s.clock.Step(5 * time.Minute)
			s.expire(3 * time.Hour)
		}, true, false},
		"when its job is deleted": {func(s *starving) { s.ends(s.big) }, false, false},
		"when its job asks for another size": {func(s *starving) {
			s.ask(with(s.big, func(j *workload.Job) { j.PodSets = []workload.PodSet{set("node", 0, 1, 7)} }), 0, 0)
		}, false, false},
		"when its queue is stopped": {func(s *starving) {
			s.queue("main", true, []string{"gpu"}, 32)
			s.pass()
		}, false, true},
		"when who comes before its job takes the quota": {func(s *starving) {
			s.UpdateQuota(func(t *quota.Tree) {
				t.Charge("someone", "main", quota.Usage{{Flavor: "gpu", Resource: gpuResource}: 20}, quota.Holder{})
			})
			s.pass()
		}, false, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStarving(t)
			s.ask(s.big, 0, 0)
			s.pass()
			if s.reserved["main"] == nil {
				t.Fatal("nothing is reserved")
			}
			tc.ends(s)
			if got := len(s.reserved) > 0; got != tc.left {
				t.Errorf("it is left: %v", got)
			}
			if e := s.entry(s.big); !tc.left && e != nil && e.reservation != nil {
				t.Error("its job does not know")
			}
			if !tc.left {
				// What runs takes 12 of 32.
				other := quota.Request{ID: "x", Queue: types.NamespacedName{Namespace: namespace, Name: "main"}, PodSets: []quota.PodSet{{Name: "x", Count: 1, PerPod: quota.Requests{gpuResource: 20}}}}
				if _, no := s.quota.Assign(other); no != nil && !tc.taken {
					t.Errorf("its quota is kept: %v", no)
				}
			}
		})
	}
}

func TestAJobIsLookedAtWhenItHasWaitedForLongEnough(t *testing.T) {
	s := newStarving(t)
	s.big.Created = epoch0.Add(-14 * time.Minute)
	s.ask(s.big, 0, 0)
	s.pass()
	if len(s.reserved) > 0 {
		t.Fatal("it has not waited for long")
	}
	s.clock.Step(30 * time.Second)
	s.expire(time.Hour)
	if s.pass(); len(s.reserved) > 0 {
		t.Fatal("it has still not waited for long")
	}
	s.clock.Step(time.Minute)
	s.expire(time.Hour)
	if s.pass(); s.reserved["main"] == nil {
		t.Error("nothing is reserved")
	}
}

func TestNodesAreChosenAnewWhenJobsDoNotEndInTime(t *testing.T) {
	s := newStarving(t)
	s.ask(s.big, 0, 0)
	s.pass()
	was := s.reserved["main"]
	s.clock.Step(11 * time.Minute)
	s.expire(time.Hour)
	s.pass()
	now := s.reserved["main"]
	if now == was || now == nil || !now.since.Equal(was.since) || !now.until.Equal(was.until) {
		t.Errorf("it was %+v, and is %+v", was, now)
	}
	if next := s.cycle.Pass(s.ctx); next {
		t.Error("it is chosen again and again")
	}
}

func TestWhereNothingSaysWhenJobsEndTheOldestAreThoughtAway(t *testing.T) {
	s := newStarving(t)
	s.ends(s.short)
	s.clock.Step(time.Minute)
	s.runs(t, job("newer", set("node", 0, 1, 8)), 0)
	s.ask(s.big, 0, 0)
	s.pass()
	r := s.reserved["main"]
	if r == nil || !r.start.IsZero() || len(r.nodes) != 1 || r.nodes[0] != "node-0" {
		t.Fatalf("reserved is %+v", r)
	}
	// Nobody can be known to end before.
	s.ask(quarter("x"), time.Minute, 0)
	if got := s.pass(); len(got) > 0 {
		t.Errorf("admitted %q", got)
	}
}

func TestNothingIsReservedForAJobThatNoEndOfJobsWouldHelp(t *testing.T) {
	s := newStarving(t)
	for _, name := range []string{"node-0", "node-1"} {
		s.ends(map[string]*workload.Job{"node-0": s.long, "node-1": s.short}[name])
		if err := s.watched.AddPod(s.logger, plainPod("stranger-"+name, name, 1)); err != nil {
			t.Fatal(err)
		}
	}
	s.ask(s.big, 0, 0)
	s.pass()
	if len(s.reserved) > 0 {
		t.Errorf("reserved is %+v", s.reserved["main"])
	}
}

func TestWhatWasReservedIsFreeForOthersWhenItsJobGoes(t *testing.T) {
	s := newStarving(t)
	s.runs(t, quarter("filler"), 0)
	s.ask(s.big, 0, 0)
	s.pass()
	if err := s.watched.AddPod(s.logger, plainPod("stranger", "node-1", 4)); err != nil {
		t.Fatal(err)
	}
	s.ends(s.short)
	s.ask(quarter("x"), 0, 0)
	if got := s.pass(); len(got) > 0 {
		t.Fatalf("admitted %q", got)
	}
	s.ends(s.big)
	if diff := cmp.Diff([]string{"x"}, s.pass()); diff != "" {
		t.Errorf("admitted (-want +got):\n%s", diff)
	}
}

func TestTheNodesThatAreFreeFirstAreReserved(t *testing.T) {
	s := newStarving(t)
	s.ends(s.long)
	s.runs(t, job("sooner", set("node", 0, 1, 8)), 5*time.Minute)
	s.ask(s.big, 0, 0)
	s.pass()
	r := s.reserved["main"]
	if r == nil || len(r.nodes) != 1 || r.nodes[0] != "node-0" || !r.start.Equal(epoch0.Add(5*time.Minute)) {
		t.Fatalf("reserved is %+v", r)
	}
}

func TestReservedNodesAreCounted(t *testing.T) {
	s := newStarving(t)
	s.ask(s.big, 0, 0)
	s.pass()
	_, c := s.picture(s.clock.Now())
	if diff := cmp.Diff(map[string]int{"main": 1}, c.reservedNodes); diff != "" {
		t.Errorf("reserved nodes (-want +got):\n%s", diff)
	}
	s.ends(s.short)
	s.pass()
	if _, c = s.picture(s.clock.Now()); len(c.reservedNodes) > 0 {
		t.Errorf("once the job has started: %v", c.reservedNodes)
	}
}

package scheduling

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// contest is a stage on which jobs are stopped for others.
type contest struct {
	*stage
	t *testing.T
}

func newContest(t *testing.T, nodes ...int64) *contest {
	t.Helper()
	c := &contest{newStage(t.Context(), t), t}
	for i, gpus := range nodes {
		c.watched.AddNode(c.logger, flavored(fmt.Sprintf("node-%d", i), "gpu", gpus))
	}
	return c
}

// policy makes a queue whose jobs may stop others.
func (c *contest) policy(name, cohort string, gpus int64, p kueue.ClusterQueuePreemption) {
	c.UpdateQuota(func(t *quota.Tree) {
		t.SetFlavor(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"flavor": "gpu"}}})
		t.SetClusterQueue(&kueue.ClusterQueue{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: kueue.ClusterQueueSpec{
				CohortName: kueue.CohortReference(cohort), NamespaceSelector: &metav1.LabelSelector{}, Preemption: &p,
				ResourceGroups: []kueue.ResourceGroup{{
					CoveredResources: []corev1.ResourceName{gpuResource},
					Flavors: []kueue.FlavorQuotas{{Name: "gpu", Resources: []kueue.ResourceQuota{
						{Name: gpuResource, NominalQuota: *resource.NewQuantity(gpus, resource.DecimalSI)},
					}}},
				}},
			},
		})
		t.SetLocalQueue(&kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)},
		})
	})
	c.Restored()
}

var (
	lowerPriority = kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	reclaimAny    = kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny}
)

// one is a job of one pod.
func one(name string, gpus int64, change ...func(*workload.Job)) *workload.Job {
	j := job(name, set("node", 0, 1, gpus))
	for _, c := range change {
		c(j)
	}
	return j
}

func in(queue string) func(*workload.Job) { return func(j *workload.Job) { j.Queue = queue } }

// runs submits a job, has it admitted and written, and lets a second pass.
func (c *contest) runs(j *workload.Job, priority int32) {
	c.t.Helper()
	c.submit(j, priority)
	c.pass()
	if got := c.state(j); got != Admitting {
		c.t.Fatalf("%s is %s: %v", j.Owner.Name, got, c.why(j))
	}
	c.write(j, priority)
	c.clock.Step(time.Second)
}

// write has the admission of a job written.
func (c *contest) write(j *workload.Job, priority int32) {
	c.t.Helper()
	now := metav1.NewTime(c.clock.Now())
	wl := c.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), isTrue(kueue.WorkloadQuotaReserved), c.admissionWritten(j), func(wl *kueue.Workload) {
		wl.Spec.Priority = &priority
		for i := range wl.Status.Conditions {
			wl.Status.Conditions[i].LastTransitionTime = now
		}
	})
	if !c.written(j.Owner.UID, 0, wl, wrote, nil) {
		c.t.Fatalf("%s is not admitted", j.Owner.Name)
	}
}

// why is what a waiting job says.
func (c *contest) why(j *workload.Job) *reason.Reason {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.whyPending(c.jobs[j.Owner.UID], c.clock.Now(), 1)
}

// leaving are the jobs that are being stopped.
func (c *contest) leaving() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []string{}
	for _, e := range c.jobs {
		if e.state == Leaving {
			out = append(out, e.job.Owner.Name)
		}
	}
	slices.Sort(out)
	return out
}

// leave has all go that are being stopped.
func (c *contest) leave() {
	for _, name := range c.leaving() {
		c.left(types.UID(name + "-uid"))
	}
}

func (c *contest) wantLeaving(names ...string) {
	c.t.Helper()
	if names == nil {
		names = []string{}
	}
	slices.Sort(names)
	if diff := cmp.Diff(names, c.leaving()); diff != "" {
		c.t.Fatalf("stopped (-want +got):\n%s", diff)
	}
}

func (c *contest) wantState(j *workload.Job, want State) {
	c.t.Helper()
	if got := c.state(j); got != want {
		c.t.Fatalf("%s is %s, want %s: %v", j.Owner.Name, got, want, c.why(j))
	}
}

// wantNoPhantoms says that no claim has left anything in the cache.
func (c *contest) wantNoPhantoms() {
	c.t.Helper()
	for name, info := range c.plain.Dump().Nodes {
		for _, p := range info.Pods {
			if isClaimHold(p.GetPod()) {
				c.t.Fatalf("phantom %s is still on %s", p.GetPod().Name, name)
			}
		}
	}
}

// fill has jobs of one GPU run on all nodes: 8 on each.
func (c *contest) fill(nodes int, priority int32, change ...func(*workload.Job)) []*workload.Job {
	var all []*workload.Job
	for i := range nodes * 8 {
		j := one(fmt.Sprintf("small-%02d", i), 1, change...)
		c.runs(j, priority)
		all = append(all, j)
	}
	return all
}

func TestEightVictimsOnOneNodeOrNone(t *testing.T) {
	for _, test := range []struct {
		name string
		// precious are the places of jobs that may not be stopped.
		precious []int
		node     string
	}{
		{"all may go", nil, "node-0"},
		{"one on the first node may not", []int{3}, "node-1"},
		{"one on each node may not", []int{3, 12}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newContest(t, 8, 8)
			c.policy("main", "", 100, lowerPriority)
			for i := range 16 {
				priority := int32(0)
				if slices.Contains(test.precious, i) {
					priority = 20
				}
				c.runs(one(fmt.Sprintf("small-%02d", i), 1), priority)
			}
			big := one("big", 8)
			c.submit(big, 10)
			c.pass()
			if test.node == "" {
				c.wantLeaving()
				c.wantState(big, Pending)
				if why := c.why(big); why.Class != reason.NoPlacement || !strings.HasSuffix(why.Message, "; with all 14 jobs stopped that it may preempt there would be no place for it (14 GPUs free, but no node has 8; 1 more GPU is missing, on one node)") {
					t.Errorf("it says %s: %s", why.Class, why)
				}
				return
			}
			if n := len(c.leaving()); n != 8 {
				t.Fatalf("%d are stopped, want 8: %v", n, c.leaving())
			}
			nodes := map[string]bool{}
			for _, name := range c.leaving() {
				nodes[c.entry(one(name, 1)).nodes()[0]] = true
			}
			if len(nodes) != 1 || (test.precious != nil && !nodes[test.node]) {
				t.Errorf("those on %v are stopped, want %s", slices.Sorted(maps.Keys(nodes)), test.node)
			}
			c.wantState(big, Claimed)
			if why := c.why(big); why.Class != reason.WaitingForPreemptedWorkloads || !strings.HasPrefix(why.Message, "waiting for 8 jobs to leave node-") {
				t.Errorf("it says %s: %s", why.Class, why)
			}
			c.leave()
			c.pass()
			c.wantState(big, Admitting)
			c.wantNoPhantoms()
		})
	}
}

func TestExactlyTheJobThatIsNeededIsStopped(t *testing.T) {
	c := newContest(t, 8)
	c.policy("main", "", 6, lowerPriority)
	c.runs(one("low", 1), -1)
	c.runs(one("mid", 2), 0)
	c.slot(one("mid", 2), "node", 0).came = true
	c.runs(one("high", 3), 1)
	j := one("incoming", 2)
	c.submit(j, 1)
	c.pass()
	c.wantLeaving("mid")
	want := "Preempted: Preempted to accommodate JobSet team-a/incoming (UID: incoming-uid-workload, JobUID: incoming-uid) " +
		"due to prioritization in the ClusterQueue; its priority is 0, that of the other one 1, and it loses 2s of work"
	if diff := cmp.Diff([]string{want}, c.wishes.notes["mid"]); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if e := c.entry(one("mid", 2)).eviction; e.reason != kueue.WorkloadEvictedByPreemption || e.preempted != kueue.InClusterQueueReason || e.backOff {
		t.Errorf("it is evicted by %+v", e)
	} else if got := e.inShort(); got != "preempted by JobSet team-a/incoming" {
		t.Errorf("in short it says %q", got)
	}
	if diff := cmp.Diff([]string{"Preempting: stops JobSet team-a/mid, and waits for it to leave node-0"}, c.wishes.notes["incoming"]); diff != "" {
		t.Errorf("events on the winner (-want +got):\n%s", diff)
	}
}

func TestNoWorkIsLostOfAJobThatNeverHadAPod(t *testing.T) {
	c := newContest(t, 8)
	c.policy("main", "", 8, lowerPriority)
	c.runs(one("low", 8), -1)
	c.submit(one("incoming", 8), 1)
	c.pass()
	want := "its priority is -1, that of the other one 1, and no pod of it has come onto its node yet"
	if notes := c.wishes.notes["low"]; len(notes) != 1 || !strings.HasSuffix(notes[0], want) {
		t.Errorf("events are %q, want one that ends with %q", notes, want)
	}
}

func TestWhoGoesFirst(t *testing.T) {
	checkpoint := func(before time.Duration) func(*workload.Job) {
		return func(j *workload.Job) { j.Hints.CheckpointedAt = epoch0.Add(4*time.Second - before) }
	}
	protected := func(d time.Duration) func(*workload.Job) {
		return func(j *workload.Job) { j.Hints.MinRuntime = &d }
	}
	for _, test := range []struct {
		name string
		// jobs run one after the other, a second apart, on a node each.
		jobs     []*workload.Job
		priority []int32
		idle     string
		want     string
	}{
		{"of equals the newest", []*workload.Job{one("a", 8), one("b", 8), one("c", 8)}, []int32{0, 0, 0}, "", "c"},
		{"the lowest priority, whatever it loses", []*workload.Job{one("a", 8), one("b", 8), one("c", 8)}, []int32{-5, 0, 0}, "", "a"},
		{"who has a checkpoint since", []*workload.Job{one("a", 8, checkpoint(time.Second)), one("b", 8), one("c", 8)}, []int32{0, 0, 0}, "", "a"},
		{"a checkpoint of tomorrow is none", []*workload.Job{one("a", 8, checkpoint(-time.Hour)), one("b", 8), one("c", 8)}, []int32{0, 0, 0}, "", "c"},
		{"idle ones, whatever their priority", []*workload.Job{one("a", 8), one("b", 8), one("c", 8)}, []int32{5, 0, 0}, "a", "a"},
		{"not those that must run for a while", []*workload.Job{one("a", 8), one("b", 8), one("c", 8, protected(time.Minute))}, []int32{0, 0, -1}, "", "b"},
		{"those that have", []*workload.Job{one("a", 8, protected(time.Second)), one("b", 8), one("c", 8)}, []int32{-1, 0, 0}, "", "a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newContest(t, 8, 8, 8)
			c.policy("main", "", 24, lowerPriority)
			for i, j := range test.jobs {
				c.runs(j, test.priority[i])
				if j.Owner.Name == test.idle {
					c.idles(j)
				}
			}
			c.clock.Step(time.Second)
			c.submit(one("incoming", 8), 10)
			c.pass()
			c.wantLeaving(test.want)
		})
	}
}

func TestProtectedJobs(t *testing.T) {
	least := time.Minute
	for _, test := range []struct {
		name    string
		own     *time.Duration
		queue   *time.Duration
		cluster *time.Duration
		want    time.Duration
	}{
		{"by themselves", &least, nil, nil, time.Minute},
		{"by their LocalQueue", nil, &least, nil, time.Minute},
		{"by their ClusterQueue", nil, nil, &least, time.Minute},
		{"by their LocalQueue, whatever the ClusterQueue says", nil, &least, new(time.Hour), time.Minute},
		{"by themselves, whatever the queues say", new(2 * time.Minute), new(time.Hour), new(time.Second), 2 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newContest(t, 8)
			c.policy("main", "", 8, lowerPriority)
			c.setQueueHints(types.NamespacedName{Namespace: namespace, Name: "main"}, workload.QueueHints{MinRuntime: test.queue})
			c.setQueueHints(types.NamespacedName{Name: "main"}, workload.QueueHints{MinRuntime: test.cluster})
			c.runs(one("low", 8, func(j *workload.Job) { j.Hints.MinRuntime = test.own }), 0)
			j := one("high", 8)
			c.submit(j, 1)
			c.pass()
			c.wantLeaving()
			until := epoch0.Add(test.want).Format(time.RFC3339)
			if why := c.why(j); !strings.HasSuffix(why.Message, "; the jobs that it may preempt are protected until "+until+" at least") {
				t.Errorf("it says %s", why)
			}
			c.clock.SetTime(epoch0.Add(test.want - time.Second))
			c.expire(time.Hour)
			c.pass()
			c.wantLeaving()
			c.clock.SetTime(epoch0.Add(test.want))
			c.expire(time.Hour)
			c.pass()
			c.wantLeaving("low")
		})
	}
}

func TestWhoIdlesIsNotProtectedWhereItsQueueSaysSo(t *testing.T) {
	for _, test := range []struct {
		name   string
		queue  workload.IdlePolicy
		exempt time.Duration
		want   []string
	}{
		{"it is reported", workload.IdlePolicy{}, 0, nil},
		{"it is taken when it is needed", workload.IdlePolicy{EvictWhenNeeded: true}, 0, []string{"low"}},
		{"it has asked to be left alone", workload.IdlePolicy{EvictWhenNeeded: true}, time.Hour, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newContest(t, 8)
			c.policy("main", "", 8, lowerPriority)
			c.setQueueHints(types.NamespacedName{Name: "main"}, workload.QueueHints{MinRuntime: new(time.Minute), Idle: &test.queue})
			low := one("low", 8, func(j *workload.Job) { j.Hints.IdleExemptUntil = epoch0.Add(test.exempt) })
			c.runs(low, 0)
			c.idles(low)
			c.submit(one("high", 8), 1)
			c.pass()
			c.wantLeaving(test.want...)
			if test.want == nil {
				return
			}
			want := "it is idle: none of its 8 GPUs has been used since 2030-01-01T00:00:00Z"
			if notes := c.wishes.notes["low"]; len(notes) != 1 || !strings.HasSuffix(notes[0], want) {
				t.Errorf("events are %q, want one that ends with %q", notes, want)
			}
		})
	}
}

// The one that waits has looked for jobs to stop before, and nothing else changes than what
// agents say.
func TestWhoBeginsToIdleIsStoppedForOneThatWaits(t *testing.T) {
	c := newContest(t, 8)
	c.policy("main", "", 8, lowerPriority)
	c.setQueueHints(types.NamespacedName{Name: "main"}, workload.QueueHints{MinRuntime: new(time.Hour), Idle: &workload.IdlePolicy{EvictWhenNeeded: true}})
	low := one("low", 8)
	c.runs(low, 0)
	c.read(running(low), c.entry(low).workload, nil)
	bound := c.bindAll(pods(low, "node", "low")...)
	c.hear(v1alpha1.GPUHolder{Verdict: v1alpha1.GPUActive, Since: metav1.NewTime(epoch0)}, bound...)
	c.submit(one("high", 8), 1)
	for _, step := range []struct {
		says v1alpha1.GPUHolder
		want []string
	}{
		{v1alpha1.GPUHolder{Verdict: v1alpha1.GPUActive, Since: metav1.NewTime(epoch0)}, nil},
		{v1alpha1.GPUHolder{Verdict: v1alpha1.GPUIdle, Since: metav1.NewTime(epoch0)}, nil},
		{idleSince(epoch0), []string{"low"}},
	} {
		c.clock.Step(usesEvery)
		c.hear(step.says, bound...)
		c.expire(2 * time.Hour)
		c.pass()
		c.wantLeaving(step.want...)
	}
}

// Of 32 jobs of a queue that has borrowed 8 GPUs, 8 may go, and it matters which.
func TestReclaimTakesWhatItMayWhereItHelps(t *testing.T) {
	c := newContest(t, 8, 8, 8, 8)
	c.policy("lender", "all", 8, reclaimAny)
	c.policy("borrower", "all", 24, kueue.ClusterQueuePreemption{})
	c.fill(4, 5, in("borrower"))
	big := one("big", 8, in("lender"))
	c.submit(big, 0)
	c.pass()
	c.wantState(big, Claimed)
	if n := len(c.leaving()); n != 8 {
		t.Errorf("%d are stopped, want 8", n)
	}
	if got := c.entry(big).claimedNodes(); len(got) != 1 {
		t.Errorf("it claims %v", got)
	}
	c.leave()
	c.pass()
	c.wantState(big, Admitting)
}

func TestWhoIsWithinItsNominalQuotaIsNeverTouched(t *testing.T) {
	c := newContest(t, 8, 8)
	c.policy("lender", "all", 8, kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny, WithinClusterQueue: kueue.PreemptionPolicyLowerPriority})
	c.policy("other", "all", 8, kueue.ClusterQueuePreemption{})
	c.runs(one("mine", 8, in("lender")), 0)
	c.runs(one("theirs", 8, in("other")), -10)
	j := one("high", 8, in("lender"))
	c.submit(j, 1)
	c.pass()
	c.wantLeaving("mine")
}

func TestNobodyElseGetsWhatIsClaimed(t *testing.T) {
	c := newContest(t, 8)
	c.policy("main", "", 8, lowerPriority)
	c.policy("next", "", 8, kueue.ClusterQueuePreemption{})
	c.runs(one("low", 8), 0)
	high := one("high", 8)
	c.submit(high, 1)
	c.pass()
	c.wantState(high, Claimed)
	thief, rush := one("thief", 8, in("next")), one("rush", 8)
	c.submit(thief, 100)
	c.submit(rush, 1)
	c.pass()
	c.wantState(thief, Pending)
	c.wantState(rush, Pending)
	c.wantLeaving("low")
	c.left("low-uid")
	if got := c.pass(); !cmp.Equal(got, []string{"high"}) {
		t.Errorf("admitted are %v, want high alone", got)
	}
	c.wantState(one("low", 8), Pending)
	c.wantNoPhantoms()
}

func TestAVictimDoesNotComeBackBeforeItsPreemptor(t *testing.T) {
	c := newContest(t, 8)
	c.policy("main", "", 8, lowerPriority)
	c.runs(one("low", 8), 0)
	high := one("high", 8)
	c.submit(high, 1)
	for range 5 {
		c.pass()
		c.leave()
	}
	c.pass()
	c.wantState(high, Admitting)
	c.write(high, 1)
	for range 5 {
		c.clock.Step(2 * time.Second)
		c.expire(time.Hour)
		c.pass()
	}
	c.wantState(high, Admitted)
	c.wantState(one("low", 8), Pending)
}

func TestWhatEndsAClaim(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(*contest, *workload.Job)
		// state is where the job is then, paused that nobody is stopped for it
		// for a while.
		state  State
		paused bool
	}{
		{"the job is deleted", func(c *contest, j *workload.Job) { c.ownerGone(j.Owner.UID) }, Gone, false},
		{"the job asks for something else", func(c *contest, j *workload.Job) { c.submit(one("high", 4), 1) }, Claimed, false},
		{"the job is deactivated", func(c *contest, j *workload.Job) {
			c.read(j, c.workloadOfJob(j, func(wl *kueue.Workload) { wl.Spec.Active = new(false) }), nil)
		}, Pending, false},
		{"its Workload is deleted", func(c *contest, j *workload.Job) { c.workloadDeleted(j.Owner.UID, j.Owner.UID+"-workload") }, Pending, false},
		{"it goes elsewhere", func(c *contest, j *workload.Job) { c.submit(one("high", 8, in("none")), 1) }, Pending, false},
		{"its victims do not leave in time", func(c *contest, j *workload.Job) {
			c.clock.Step(claimFor + 31*time.Second)
			c.expire(24 * time.Hour)
		}, Pending, true},
		{"its node goes", func(c *contest, j *workload.Job) {
			if err := c.watched.RemoveNode(c.logger, flavored("node-0", "gpu", 8)); err != nil {
				c.t.Fatal(err)
			}
		}, Pending, true},
		{"its node is cordoned", func(c *contest, j *workload.Job) {
			n := flavored("node-0", "gpu", 8)
			n.Spec.Unschedulable = true
			c.watched.UpdateNode(c.logger, flavored("node-0", "gpu", 8), n)
		}, Pending, true},
		{"Kueue decides from now on", func(c *contest, j *workload.Job) {
			c.SetRival(reason.New(reason.AnotherScheduler, "a Kueue manager is alive"))
		}, Pending, false},
		{"someone else takes the room", func(c *contest, j *workload.Job) {
			if err := c.watched.AddPod(c.logger, plainPod("intruder", "node-0", 4)); err != nil {
				c.t.Fatal(err)
			}
			c.left("low-uid")
		}, Pending, true},
		{"its quota is taken away", func(c *contest, j *workload.Job) {
			c.policy("main", "", 4, lowerPriority)
			c.left("low-uid")
		}, Pending, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newContest(t, 8)
			c.policy("main", "", 8, lowerPriority)
			low := one("low", 8, func(j *workload.Job) { j.PodSets[0].Template.Spec.TerminationGracePeriodSeconds = new(int64(30)) })
			c.runs(low, 0)
			high := one("high", 8)
			c.submit(high, 1)
			c.pass()
			c.wantState(high, Claimed)
			test.do(c, high)
			c.pass()
			if test.state == Gone {
				if got := c.state(high); got != Gone {
					t.Fatalf("it is %s", got)
				}
			} else {
				c.wantState(high, test.state)
				if got := c.entry(high).noClaimBefore.after(c.clock.Now()); got != test.paused {
					t.Errorf("paused is %v, want %v", got, test.paused)
				}
			}
			if test.state != Claimed {
				c.wantNoPhantoms()
			}
			if errs := c.waitlistErrors(); len(errs) > 0 {
				t.Errorf("the waitlist: %s", strings.Join(errs, "; "))
			}
		})
	}
}

func TestAClaimThatFailsDoesNotStopOthersAgainAtOnce(t *testing.T) {
	c := newContest(t, 8, 8)
	c.policy("main", "", 16, lowerPriority)
	c.runs(one("first", 8), -1)
	c.runs(one("second", 8), 0)
	high := one("high", 8)
	c.submit(high, 1)
	c.pass()
	c.wantLeaving("first")
	c.clock.Step(claimFor + time.Minute)
	c.expire(24 * time.Hour)
	c.pass()
	c.wantState(high, Pending)
	c.wantLeaving("first")
	want := "ClaimEnded: what jobs leave that were stopped for it is no longer kept: 1 job did not leave in time; no others are stopped for it for 1m0s"
	if diff := cmp.Diff([]string{want}, c.wishes.notes["high"][1:]); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	// Then it takes what the first leaves, and stops nobody else.
	c.clock.Step(claimPause)
	c.expire(24 * time.Hour)
	c.pass()
	c.wantState(high, Claimed)
	c.wantLeaving("first")
}

func TestTwoNeverStopTheSameJob(t *testing.T) {
	c := newContest(t, 8, 8)
	c.policy("a", "all", 8, reclaimAny)
	c.policy("b", "all", 8, reclaimAny)
	c.policy("borrower", "all", 0, kueue.ClusterQueuePreemption{})
	c.runs(one("one", 8, in("borrower")), 0)
	c.runs(one("two", 8, in("borrower")), 0)
	first, second := one("first", 8, in("a")), one("second", 8, in("b"))
	c.submit(first, 0)
	c.pass()
	c.wantLeaving("two")
	c.submit(second, 0)
	c.pass()
	c.wantLeaving("one", "two")
	c.wantState(first, Claimed)
	c.wantState(second, Claimed)
	c.leave()
	c.pass()
	c.wantState(first, Admitting)
	c.wantState(second, Admitting)
	if a, b := c.entry(first).nodes(), c.entry(second).nodes(); cmp.Equal(a, b) {
		t.Errorf("both are on %v", a)
	}
}

// A scheduler that is killed in between forgets the claim, not the victims.
func TestVictimsOfAnEarlierSchedulerCountAsGone(t *testing.T) {
	c := newContest(t, 8, 8)
	c.policy("main", "", 16, lowerPriority)
	c.runs(one("first", 8), -1)
	c.runs(one("second", 8), 0)
	high := one("high", 8)
	c.submit(high, 1)
	c.pass()
	c.wantLeaving("first")
	c.mu.Lock()
	c.endClaim(c.jobs[high.Owner.UID], "a restart")
	c.mu.Unlock()
	c.pass()
	c.wantState(high, Claimed)
	c.wantLeaving("first")
	c.leave()
	c.pass()
	c.wantState(high, Admitting)
}

// Room alone can be short: then jobs are stopped although there is quota.
func TestJobsAreStoppedForRoomWhereThereIsQuota(t *testing.T) {
	c := newContest(t, 8)
	c.policy("main", "", 100, lowerPriority)
	c.runs(one("low", 5), 0)
	c.runs(one("mid", 3), 1)
	j := one("high", 4)
	c.submit(j, 2)
	c.pass()
	c.wantLeaving("low")
}

func TestNobodyIsStoppedWhereNoPolicySaysSo(t *testing.T) {
	c := newContest(t, 8)
	c.policy("main", "", 8, kueue.ClusterQueuePreemption{})
	c.runs(one("low", 8), 0)
	j := one("high", 8)
	c.submit(j, 1)
	c.pass()
	c.wantLeaving()
	if why := c.why(j); why.Class != reason.WaitingForQuota || strings.Contains(why.Message, "preempt") {
		t.Errorf("it says %s: %s", why.Class, why)
	}
}

// A job that comes later and may be stopped is found within a tick.
func TestASearchInVainIsMadeAgainWhenOthersHaveCome(t *testing.T) {
	c := newContest(t, 8, 8)
	c.policy("main", "all", 8, reclaimAny)
	c.policy("other", "all", 8, kueue.ClusterQueuePreemption{})
	if err := c.watched.AddPod(c.logger, plainPod("foreign", "node-0", 8)); err != nil {
		t.Fatal(err)
	}
	c.runs(one("theirs", 4, in("other")), 0)
	j := one("big", 8)
	c.submit(j, 0)
	c.pass()
	c.wantLeaving()
	c.wantState(j, Pending)
	c.policy("other", "all", 0, kueue.ClusterQueuePreemption{})
	c.pass()
	c.wantLeaving("theirs")
}

// A job whose pods never leave must not keep others waiting for its room.
func TestAJobThatIsStuckDoesNotCountAsGone(t *testing.T) {
	c := newContest(t, 8, 8)
	c.policy("main", "", 100, lowerPriority)
	stuck := one("stuck", 8)
	c.runs(stuck, -1)
	c.read(running(stuck), c.entry(stuck).workload, nil)
	bound := c.bindAll(pod(stuck, "node", 0, "stuck-0"))[0]
	c.runs(one("low", 8), 0)
	c.stop(stuck, eviction{reason: kueue.WorkloadEvictedByPreemption, message: "test"})
	dying := terminating(bound)
	dying.DeletionTimestamp.Time = c.clock.Now()
	if err := c.watched.UpdatePod(c.logger, bound, dying); err != nil {
		t.Fatal(err)
	}
	c.clock.Step(2 * time.Minute)
	c.submit(one("high", 8), 1)
	c.pass()
	c.wantLeaving("low", "stuck")
}

func TestAFinishedJobThatLeavesPodsRunningDoesNotCountAsGone(t *testing.T) {
	c := newContest(t, 8, 8)
	c.policy("main", "", 100, lowerPriority)
	done := one("done", 8)
	c.runs(done, -1)
	c.read(running(done), c.entry(done).workload, nil)
	c.bindAll(pod(done, "node", 0, "done-0"))
	c.read(with(running(done), func(j *workload.Job) { j.Finish = &workload.Finish{Succeeded: true} }), c.entry(done).workload, nil)
	c.runs(one("low", 8), 0)
	c.submit(one("high", 8), 1)
	c.pass()
	c.wantLeaving("done", "low")
}

func TestThePriorityThatAJobHasNowCounts(t *testing.T) {
	c := newContest(t, 8, 8)
	c.policy("main", "", 16, lowerPriority)
	risen := one("risen", 8)
	c.runs(risen, -1)
	c.runs(one("low", 8), 0)
	wl := c.entry(risen).workload.DeepCopy()
	c.version++
	wl.ResourceVersion, wl.Spec.Priority = fmt.Sprint(c.version), new(int32(50))
	c.observe(risen.Owner.UID, wl)
	c.submit(one("high", 8), 10)
	c.pass()
	c.wantLeaving("low")
}

// What is claimed of a node that others have not left makes it overfull; that
// breaks nobody's hold, and keeps nobody off who asks for something else.
func TestAClaimBreaksNoHold(t *testing.T) {
	c := newContest(t, 8)
	c.policy("main", "", 100, lowerPriority)
	low, steady := one("low", 4), one("steady", 4)
	c.runs(low, 0)
	c.runs(steady, 20)
	high := one("high", 4)
	c.submit(high, 10)
	c.pass()
	c.wantState(high, Claimed)
	c.mu.Lock()
	c.inspect("node-0", nil)
	c.intrusions.Add(1)
	fits := c.stillFits([]string{"node-0"})
	c.mu.Unlock()
	for _, j := range []*workload.Job{low, steady} {
		if s := c.slot(j, "node", 0); s.hold == nil || s.node != "node-0" {
			t.Errorf("%s has lost its hold: %+v", j.Owner.Name, *s)
		}
	}
	if !fits {
		t.Error("the node counts as overfull")
	}
}

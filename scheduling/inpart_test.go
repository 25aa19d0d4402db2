package scheduling

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// canDoWith is a Job of count pods that can do with least.
func canDoWith(name string, count, least int32, gpus int64, change ...func(*workload.Job)) *workload.Job {
	j := batchJob(name, count, gpus, &workload.Ended{})
	j.PodSets[0].MinCount = least
	for _, c := range change {
		c(j)
	}
	return j
}

// runningWith is the reading of a Job that was resumed with so many pods.
func runningWith(j *workload.Job, pods int32) *workload.Job {
	return with(running(j), func(j *workload.Job) {
		ps := &j.PodSets[0]
		ps.Count, ps.PodsPerReplica, ps.Whole = pods, pods, ps.Count
		if ps.SyncCompletions {
			ps.Completions = pods
		}
	})
}

// startedWith is with how many pods a job was started; 0 if it waits.
func (s *stage) startedWith(j *workload.Job) int32 {
	e := s.entry(j)
	if !e.holdsCapacity() {
		return 0
	}
	return e.job.PodSets[0].Count
}

func TestJobThatMayRunInPartStartsWithAsManyPodsAsFit(t *testing.T) {
	for name, tc := range map[string]struct {
		quota       int64
		nodes       []int64
		least, want int32
		gpus        int64
		change      func(*workload.Job)
		says        string
	}{
		"whole if that fits":                          {quota: 8, nodes: []int64{4, 4}, least: 2, gpus: 1, want: 8},
		"as many as there is quota for":               {quota: 5, nodes: []int64{8}, least: 2, gpus: 1, want: 5},
		"as many as there are nodes for":              {quota: 8, nodes: []int64{3}, least: 2, gpus: 1, want: 3},
		"as many as there are both for":               {quota: 6, nodes: []int64{2, 2, 1}, least: 2, gpus: 1, want: 5},
		"as few as will do":                           {quota: 2, nodes: []int64{8}, least: 2, gpus: 1, want: 2},
		"no pod in two halves":                        {quota: 100, nodes: []int64{8, 5}, least: 1, gpus: 3, want: 3},
		"not fewer than will do, for want of quota":   {quota: 1, nodes: []int64{8}, least: 2, gpus: 1, says: "; it would start with 2 of its 8 pods"},
		"not fewer than will do, for want of nodes":   {quota: 8, nodes: []int64{1}, least: 2, gpus: 1, says: "; it would start with 2 of its 8 pods"},
		"not at all where all of its pods must start": {quota: 7, nodes: []int64{8}, least: 8, gpus: 1},
		"not at all if it does not say so":            {quota: 7, nodes: []int64{8}, gpus: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContest(t, tc.nodes...)
			c.policy("main", "", tc.quota, kueue.ClusterQueuePreemption{})
			j := canDoWith("a", 8, tc.least, tc.gpus)
			c.submit(j, 0)
			c.pass()
			if got := c.startedWith(j); got != tc.want {
				t.Errorf("it started with %d pods, want %d: %v", got, tc.want, c.why(j))
			}
			if tc.want > 0 {
				count, gpus := admittedPods(c.workloadOfJob(j, c.admissionWritten(j)))
				if count != tc.want || gpus != int64(tc.want)*tc.gpus {
					t.Errorf("its Workload has %d pods and %d GPUs", count, gpus)
				}
			} else if got := c.why(j).String(); !strings.HasSuffix(got, tc.says) || strings.Contains(got, "would start") != (tc.says != "") {
				t.Errorf("it says %q", got)
			}
			if errs := c.waitlistErrors(); len(errs) > 0 {
				t.Errorf("the waitlist: %s", strings.Join(errs, "; "))
			}
		})
	}
}

func TestJobThatMayRunInPartTakesTheFlavorThatHasMost(t *testing.T) {
	s := newStage(t.Context(), t)
	s.watched.AddNode(s.logger, flavored("node-0", "old", 8))
	s.watched.AddNode(s.logger, flavored("node-1", "new", 8))
	s.queue("main", false, []string{"old", "new"}, 2, 5)
	s.Restored()
	j := canDoWith("a", 8, 1, 1)
	s.submit(j, 0)
	s.pass()
	if got, nodes := s.startedWith(j), s.entry(j).nodes(); got != 5 || !cmp.Equal(nodes, []string{"node-1"}) {
		t.Errorf("it started with %d pods on %v", got, nodes)
	}
}

// A job that may run in part starts with the largest number that fits, whatever
// there is.
func TestPartsAreAsLargeAsTheyCanBe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStage(t.Context(), t)
		free := int64(rapid.IntRange(0, 30).Draw(t, "quota"))
		s.queue("main", false, []string{"gpu"}, free)
		s.Restored()
		sizes := rapid.SliceOfN(rapid.Int64Range(1, 8), 1, 4).Draw(t, "nodes")
		for i, gpus := range sizes {
			s.watched.AddNode(s.logger, flavored(fmt.Sprintf("node-%d", i), "gpu", gpus))
		}
		for n := range 4 {
			count := int32(rapid.IntRange(1, 12).Draw(t, "pods"))
			least := int32(rapid.IntRange(1, int(count)).Draw(t, "least"))
			gpus := rapid.Int64Range(1, 3).Draw(t, "GPUs")
			room := int64(0)
			for i, has := range sizes {
				room += (has - s.taken(fmt.Sprintf("node-%d", i))) / gpus
			}
			want := int32(min(int64(count), room, free/gpus))
			if want < least {
				want = 0
			}
			j := canDoWith(fmt.Sprintf("job-%d", n), count, least, gpus)
			s.submit(j, 0)
			s.pass()
			if got := s.startedWith(j); got != want {
				t.Fatalf("%s started with %d pods, want %d", j.Owner.Name, got, want)
			}
			free -= int64(want) * gpus
			if used := s.quota.Used("main")[quota.FlavorResource{Flavor: "gpu", Resource: gpuResource}]; int64(want)*gpus > used {
				t.Fatalf("%d GPUs are charged", used)
			}
		}
	})
}

func TestJobThatMayRunInPartHasOthersStoppedWhereItThenFitsWhole(t *testing.T) {
	for name, tc := range map[string]struct {
		quota, lows int64
		nodes       []int64
		want        int32
		claimed     bool
	}{
		"stopping others makes room for all of it":             {8, 4, []int64{8}, 0, true},
		"stopping others makes room for it on the nodes alone": {100, 4, []int64{8}, 0, true},
		"stopping all others would leave too little quota":     {6, 2, []int64{8}, 4, false},
		"stopping all others would leave too few nodes":        {100, 2, []int64{6}, 4, false},
		"nobody is stopped for a part of it":                   {6, 6, []int64{8}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContest(t, tc.nodes...)
			c.policy("main", "", tc.quota, lowerPriority)
			for i := range tc.lows {
				c.runs(one(fmt.Sprintf("low-%d", i), 1), -1)
			}
			j := canDoWith("high", 8, 1, 1)
			c.submit(j, 1)
			c.pass()
			if got, claimed := c.startedWith(j), c.state(j) == Claimed; got != tc.want || claimed != tc.claimed {
				t.Errorf("it started with %d pods, has a claim: %v (%v)", got, claimed, c.why(j))
			}
		})
	}
}

func TestJobThatMayRunInPartStartsAsSoonAsAPartFits(t *testing.T) {
	for name, tc := range map[string]struct {
		quota int64
		nodes []int64
		want  int32
	}{
		"quota comes":                 {8, []int64{100}, 4},
		"nodes come":                  {100, []int64{8}, 4},
		"quota comes, nodes are few":  {8, []int64{10}, 4},
		"nodes come, quota is little": {10, []int64{8}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContest(t, tc.nodes...)
			c.queue("main", false, []string{"gpu"}, tc.quota)
			c.Restored()
			big, rest := one("big", 4), one("rest", 4)
			c.runs(big, 0)
			c.runs(rest, 0)
			j := canDoWith("a", 8, 3, 1)
			c.submit(j, 0)
			c.pass()
			if got := c.startedWith(j); got != 0 {
				t.Fatalf("it started with %d pods", got)
			}
			c.ownerGone(big.Owner.UID)
			c.left(big.Owner.UID)
			c.pass()
			if got := c.startedWith(j); got < tc.want {
				t.Errorf("it started with %d pods, want %d: %v", got, tc.want, c.why(j))
			}
		})
	}
}

func TestJobThatRunsInPartKeepsItsNumber(t *testing.T) {
	c := newContest(t, 4)
	c.policy("main", "", 8, kueue.ClusterQueuePreemption{})
	j := canDoWith("a", 8, 2, 1)
	c.runs(j, 0)
	if want := c.want(c.entry(j)); want.do != doResume || want.infos[0].Count != 4 {
		t.Errorf("to be done is %v with %+v", want.do, want.infos)
	}
	wl := c.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), c.admissionWritten(j))
	if wl.Spec.PodSets[0].Count != 8 || *wl.Spec.PodSets[0].MinCount != 2 {
		t.Errorf("the Workload asks for %+v", wl.Spec.PodSets[0])
	}
	if a, _ := c.admissionOf(j.Owner.UID); a.message != "4 GPUs on node-0 from queue main, with 4 of the 8 pods that it asks for" && a.message != "4 pods of 1 GPU on node-0 from queue main, with 4 of the 8 pods that it asks for" {
		t.Errorf("it says %q", a.message)
	}
	// The reading of before it was resumed, and those after.
	for _, now := range []*workload.Job{j, runningWith(j, 4), suspended(j), runningWith(j, 4)} {
		c.read(now, wl, nil)
		if c.state(j) != Admitted || c.startedWith(j) != 4 || c.quota.Used("main")[quota.FlavorResource{Flavor: "gpu", Resource: gpuResource}] != 4 {
			t.Fatalf("it is %s with %d pods", c.state(j), c.startedWith(j))
		}
	}
	// More room does not change it.
	c.watched.AddNode(c.logger, flavored("node-9", "gpu", 8))
	c.pass()
	if c.startedWith(j) != 4 || c.taken("node-9") != 0 {
		t.Errorf("it has %d pods", c.startedWith(j))
	}
	for name, now := range map[string]*workload.Job{"resumed whole by somebody": running(j), "changed by its author": running(canDoWith("a", 6, 2, 1))} {
		after := newContest(t, 4)
		after.policy("main", "", 8, kueue.ClusterQueuePreemption{})
		after.restore(runningWith(j, 4), wl, nil)
		if after.state(j) != Admitted {
			t.Fatalf("%s: taken over it is %s", name, after.state(j))
		}
		if after.read(now, wl, nil); after.state(j) != Leaving {
			t.Errorf("%s, it is %s", name, after.state(j))
		}
	}
}

func TestJobThatRunsInPartIsTakenOverAsItIs(t *testing.T) {
	for name, now := range map[string]func(*workload.Job) *workload.Job{
		"before it is resumed": suspended,
		"while it runs":        func(j *workload.Job) *workload.Job { return runningWith(j, 4) },
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, its admission came late: %v", name, late), func(t *testing.T) {
				c := newContest(t, 4)
				c.policy("main", "", 8, kueue.ClusterQueuePreemption{})
				j := canDoWith("a", 8, 2, 1)
				c.runs(j, 0)
				wl := c.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), c.admissionWritten(j))
				after := newContest(t, 4)
				after.policy("main", "", 8, kueue.ClusterQueuePreemption{})
				if late {
					before := c.workloadOfJob(j)
					before.ResourceVersion = "1"
					after.read(j, before, nil)
				} else {
					after.restore(now(j), wl, nil)
					if ps := after.entry(j).job.PodSets[0]; ps.Completions != 8 || ps.Whole != 8 {
						t.Errorf("it is taken over as %+v", ps)
					}
				}
				after.read(now(j), wl, nil)
				if after.state(j) != Admitted || after.startedWith(j) != 4 || after.taken("node-0") != 4 {
					t.Fatalf("it is %s with %d pods, and %d GPUs are taken: %+v", after.state(j), after.startedWith(j), after.taken("node-0"), after.entry(j).eviction)
				}
			})
		}
	}
}

func TestJobThatRanInPartIsTriedWholeAgain(t *testing.T) {
	for name, stop := range map[string]func(c *contest, j *workload.Job, wl *kueue.Workload){
		"its admission was refused": func(c *contest, j *workload.Job, wl *kueue.Workload) {
			c.written(j.Owner.UID, 0, nil, refused, apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("conflict")))
		},
		"it was stopped": func(c *contest, j *workload.Job, wl *kueue.Workload) {
			c.written(j.Owner.UID, 0, wl, wrote, nil)
			c.read(runningWith(j, 4), wl, nil)
			c.stop(j, eviction{reason: kueue.WorkloadEvictedByPreemption, message: "test"})
			c.stopped(j.Owner.UID)
			c.read(j, wl, nil)
			c.left(j.Owner.UID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContest(t, 4)
			c.policy("main", "", 8, kueue.ClusterQueuePreemption{})
			j := canDoWith("a", 8, 2, 1)
			c.submit(j, 0)
			c.pass()
			if c.startedWith(j) != 4 {
				t.Fatalf("it started with %d pods", c.startedWith(j))
			}
			stop(c, j, c.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), c.admissionWritten(j)))
			c.watched.AddNode(c.logger, flavored("node-9", "gpu", 4))
			synced := c.wishes.synced[keyOf(j.Owner)]
			if c.pass(); c.state(j) != Pending || synced == 0 {
				t.Fatalf("before it is read again it is %s with %d pods, asked for %d times", c.state(j), c.startedWith(j), synced)
			}
			c.read(j, c.workloadOfJob(j), nil)
			c.clock.Step(2 * time.Second)
			c.expire(time.Hour)
			if c.pass(); c.startedWith(j) != 8 {
				t.Errorf("it is started with %d pods: %v", c.startedWith(j), c.why(j))
			}
		})
	}
}

func TestPodsThatAreOverInAPartOfAJob(t *testing.T) {
	sync := func(j *workload.Job) { j.PodSets[0].SyncCompletions = true }
	for name, tc := range map[string]struct {
		change []func(*workload.Job)
		ended  workload.Ended
		want   workload.Ended
	}{
		"pods follow each other in fewer slots":     {nil, workload.Ended{Count: 2, Indices: []int32{0, 7}}, workload.Ended{Count: 2}},
		"with as few completions each has its slot": {[]func(*workload.Job){sync}, workload.Ended{Count: 2, Indices: []int32{0, 7}}, workload.Ended{Count: 1, Indices: []int32{0}}},
		"pods have no numbers":                      {nil, workload.Ended{Count: 6}, workload.Ended{Count: 6}},
	} {
		t.Run(name, func(t *testing.T) {
			j := endedNow(canDoWith("a", 8, 2, 1, tc.change...), tc.ended)
			if diff := cmp.Diff(&tc.want, inPart(j, 3).PodSets[0].Ended); diff != "" {
				t.Errorf("over are (-want +got):\n%s", diff)
			}
			if j.PodSets[0].Count != 8 || j.PodSets[0].Whole != 0 {
				t.Error("the whole job was changed")
			}
		})
	}
}

// A part of a job with slices within slices has whole outer ones.
func TestPartsOfNestedSlicesAreWholeSlices(t *testing.T) {
	for name, tc := range map[string]struct {
		racks []int
		least int32
		want  int32
	}{
		"as many slices as fit":             {[]int{2, 2, 1}, 1, 8},
		"the least is between two numbers":  {[]int{2, 2, 1}, 5, 8},
		"one slice is less than the least":  {[]int{2, 1, 1}, 5, 0},
		"only the whole is more than least": {[]int{2, 2, 1}, 9, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := closeStage(t, tc.racks...)
			j := canDoWith("a", 12, tc.least, 4, func(j *workload.Job) {
				j.PodSets[0] = asking(j.PodSets[0], kueue.PodSetTopologyRequest{
					PodsetSliceRequiredTopologyConstraints: []kueue.PodsetSliceRequiredTopologyConstraint{
						{Topology: "rack", Size: 4}, {Topology: corev1.LabelHostname, Size: 2},
					}})
			})
			s.submit(j, 0)
			s.pass()
			if got := s.startedWith(j); got != tc.want {
				t.Errorf("it is started with %d pods, want %d; %v", got, tc.want, s.entry(j).spot.bucket)
			}
		})
	}
}

func TestLargestIsFoundWithFewTries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := int32(rapid.IntRange(1, 1000).Draw(t, "from"))
		to := from + int32(rapid.IntRange(0, 1000).Draw(t, "more"))
		limit := int32(rapid.IntRange(0, 2100).Draw(t, "limit"))
		tries, last := 0, int32(0)
		got := largest(from, to, func(n int32) bool {
			tries++
			if n < from || n > to {
				t.Fatalf("%d was tried, of %d to %d", n, from, to)
			}
			if n <= limit {
				last = n
			}
			return n <= limit
		})
		if want := max(from, min(to, limit)); got != want || (limit >= from && last != got) || tries > 12 {
			t.Fatalf("the largest is %d, the last that fitted %d, want %d, after %d tries", got, last, want, tries)
		}
	})
}

func TestJobThatMayRunInPartStartsAsSoonAsANodeComesForAPart(t *testing.T) {
	c := newContest(t, 8)
	c.queue("main", false, []string{"gpu"}, 12)
	c.Restored()
	c.runs(one("big", 8), 0)
	j := canDoWith("a", 8, 3, 1)
	c.submit(j, 0)
	c.pass()
	c.watched.AddNode(c.logger, flavored("node-9", "gpu", 8))
	if c.pass(); c.startedWith(j) != 4 {
		t.Errorf("it started with %d pods: %v", c.startedWith(j), c.why(j))
	}
}

func TestJobIsNotStartedInPartBeforeItIsKnownThatNobodyIsToBeStoppedForIt(t *testing.T) {
	c := newContest(t, 8, 8)
	c.policy("main", "", 100, lowerPriority)
	c.runs(one("lowest", 8), -2)
	c.runs(one("low", 6), -1)
	c.submit(one("first", 8), 2)
	c.pass()
	j := canDoWith("a", 8, 2, 1)
	c.submit(j, 1)
	c.settled()
	if c.startedWith(j) != 0 || c.state(j) != Pending {
		t.Fatalf("while jobs are stopped for another one it is %s with %d pods", c.state(j), c.startedWith(j))
	}
	c.leave()
	c.settled()
	if c.state(j) != Claimed {
		t.Errorf("then it is %s with %d pods: %v", c.state(j), c.startedWith(j), c.why(j))
	}
}

func TestPartThatWouldBorrowGivesWayToAJobWithinItsQuota(t *testing.T) {
	c := newContest(t, 100)
	c.policy("a", "cohort", 2, kueue.ClusterQueuePreemption{})
	c.policy("b", "cohort", 4, kueue.ClusterQueuePreemption{})
	borrows, within := canDoWith("borrows", 8, 3, 1, in("a")), one("within", 4, in("b"))
	c.submit(borrows, 1)
	c.submit(within, 0)
	c.pass()
	if c.startedWith(within) == 0 || c.startedWith(borrows) != 0 {
		t.Errorf("they started with %d and %d pods", c.startedWith(within), c.startedWith(borrows))
	}
}

func TestPartThatCannotBeCommittedLeavesTheJobWhole(t *testing.T) {
	c := newContest(t, 4)
	c.policy("main", "", 8, kueue.ClusterQueuePreemption{})
	j := canDoWith("a", 8, 2, 1)
	c.submit(j, 0)
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.jobs[j.Owner.UID]
	some := inPart(j, 4)
	a := *c.assignPart(e, some)
	a.ClusterQueue = "another"
	err := c.chargePart(&attempt{e: e, version: e.version}, &part{job: some, assignment: &a, plan: nil})
	if err == nil || runsInPart(e.job) || e.state != Pending {
		t.Errorf("%v: it is %s with %d pods", err, e.state, e.job.PodSets[0].Count)
	}
}

func TestJobThatMayRunInPartIsTriedWhenMoreOfTheCohortIsFreeForAPart(t *testing.T) {
	c := newContest(t, 100)
	c.policy("main", "cohort", 2, kueue.ClusterQueuePreemption{})
	c.policy("lender", "cohort", 8, kueue.ClusterQueuePreemption{})
	big := one("big", 4, in("lender"))
	c.runs(big, 0)
	c.runs(one("rest", 4, in("lender")), 0)
	j := canDoWith("a", 8, 3, 1)
	c.submit(j, 0)
	c.pass()
	c.ownerGone(big.Owner.UID)
	c.left(big.Owner.UID)
	if c.pass(); c.startedWith(j) != 6 {
		t.Errorf("it started with %d pods: %v", c.startedWith(j), c.why(j))
	}
}

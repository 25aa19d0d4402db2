package scheduling

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// two is a job of two pods of 8 GPUs.
func two(name string, change ...func(*workload.Job)) *workload.Job {
	j := job(name, set("node", 0, 2, 8))
	for _, c := range change {
		c(j)
	}
	return j
}

// serving admits a pod of Deployment web, and binds it.
func (c *contest) serving(uid string, priority int32) (*workload.Job, *corev1.Pod) {
	c.t.Helper()
	p := servingPod(uid, "a", 8)
	j := serves(p)
	c.runs(j, priority)
	return j, c.bindAll(p)[0]
}

// follows submits the pod that is to replace another one.
func (c *contest) follows(uid string, priority int32) *workload.Job {
	next := servingPod(uid, "a", 8)
	c.Seen(next)
	c.submit(serves(next), priority)
	return serves(next)
}

func TestTheQuotaOfAFinishedJobThatLeavesPodsRunningDoesNotCountAsFree(t *testing.T) {
	c := newContest(t, 8, 8, 8)
	c.policy("main", "", 16, lowerPriority)
	done := one("done", 8)
	c.runs(done, -1)
	c.read(running(done), c.entry(done).workload, nil)
	c.bindAll(pod(done, "node", 0, "done-0"))
	c.read(with(running(done), func(j *workload.Job) { j.Finish = &workload.Finish{Succeeded: true} }), c.entry(done).workload, nil)
	c.runs(one("low", 8), 0)
	c.submit(two("high"), 1)
	c.pass()
	c.wantLeaving("done")
}

func TestThePlaceThatPassesToAnotherPodDoesNotCountAsFree(t *testing.T) {
	c := newContest(t, 8, 8)
	c.policy("owner", "all", 16, reclaimAny)
	c.policy("main", "all", 0, kueue.ClusterQueuePreemption{})
	first, bound := c.serving("p1", 0)
	c.runs(one("low", 8), 0)
	next := c.follows("p2", 0)
	c.goes(first, bound)
	high := two("high", in("owner"))
	c.submit(high, 0)
	c.pass()
	c.wantLeaving("p1")
	c.left(first.Owner.UID)
	c.wantState(next, Admitting)
	c.pass()
	c.wantLeaving("low", "p2")
	c.left(next.Owner.UID)
	c.leave()
	c.pass()
	c.wantState(high, Admitting)
}

// The pod that is to have the place may count on it.
func TestNobodyIsStoppedForAPodThatIsToHaveThePlaceOfAnother(t *testing.T) {
	c := newContest(t, 8, 8)
	c.policy("main", "", 16, lowerPriority)
	first, bound := c.serving("p1", 20)
	c.runs(one("low", 8), 0)
	next := c.follows("p2", 20)
	c.goes(first, bound)
	c.pass()
	c.wantLeaving("p1")
	c.left(first.Owner.UID)
	c.pass()
	c.wantState(next, Admitting)
}

func TestWhatWasPromisedOfAPlaceDoesNotPassToAnotherPod(t *testing.T) {
	c := newContest(t, 8, 8)
	c.policy("main", "", 16, lowerPriority)
	first, bound := c.serving("p1", 20)
	c.runs(one("low", 8), 0)
	c.goes(first, bound)
	high := two("high")
	c.submit(high, 10)
	c.pass()
	c.wantState(high, Claimed)
	next := c.follows("p2", 5)
	c.left(first.Owner.UID)
	c.wantState(next, Pending)
	c.leave()
	c.pass()
	if c.state(high) == Pending {
		t.Error("a job was stopped for one that did not start")
	}
}

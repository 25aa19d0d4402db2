package scheduling

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

func TestWhyPending(t *testing.T) {
	var (
		noPlace  = reason.New(reason.NoPlacement, "no node has 8")
		blocked  = reason.New(reason.RuntimeNotFound, "runtime torch does not exist")
		rival    = reason.New(reason.AnotherScheduler, "Kueue is alive")
		backsOff = func(why string) *reason.Reason {
			return reason.New(reason.BackingOff, "%s; it is tried again at 2030-01-01T00:01:00Z", why)
		}
		evictedFor = func(message string) *kueue.Workload {
			wl := &kueue.Workload{}
			at := metav1.NewTime(epoch0.Add(time.Minute))
			wl.Status.RequeueState = &kueue.RequeueState{RequeueAt: &at}
			wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: kueue.WorkloadEvictedByPodsReadyTimeout, Message: message}}
			return wl
		}
	)
	tried := spot{bucket: &bucket{why: noPlace}}
	tests := map[string]struct {
		entry    entry
		rival    *reason.Reason
		position int
		want     *reason.Reason
	}{
		"a job that was not tried yet says nothing": {},
		"a job that was tried says why in full":     {entry: entry{spot: tried}, position: exactReasons, want: noPlace},
		"one further back says its class":           {entry: entry{spot: tried}, position: exactReasons + 1, want: reason.New(reason.NoPlacement, "behind the first 20 jobs of its queue")},
		"a job that was too slow says until when it backs off": {
			entry: entry{spot: tried, requeueAt: instantOf(epoch0.Add(time.Minute)), workload: evictedFor("2 of 4 pods became ready within 30m0s")},
			want:  backsOff("its pods were not all on nodes, or not all ready, in time"),
		},
		"so does one whose owner was not to be resumed": {
			entry: entry{spot: tried, requeueAt: instantOf(epoch0.Add(time.Minute)), workload: evictedFor("it cannot start: its templates cannot be changed")},
			want:  backsOff("it could not be resumed"),
		},
		"and one whose admission was not written": {
			entry: entry{spot: tried, requeueAt: instantOf(epoch0.Add(time.Minute)), workload: &kueue.Workload{}},
			want:  backsOff("its admission could not be written"),
		},
		"a back-off that is over is not told":         {entry: entry{spot: tried, requeueAt: instantOf(epoch0)}, want: noPlace},
		"another scheduler is the reason for all":     {entry: entry{spot: tried, requeueAt: instantOf(epoch0.Add(time.Minute))}, rival: rival, want: rival},
		"but what the job itself lacks is told first": {entry: entry{spot: tried, blocked: blocked}, rival: rival, want: blocked},
		"also far back in the queue":                  {entry: entry{spot: tried, blocked: blocked}, position: 99, want: blocked},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8)
			s.rival = tc.rival
			tc.entry.job = job("a")
			if diff := cmp.Diff(tc.want, s.whyPending(&tc.entry, epoch0, tc.position)); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReasonOfAJobThatWaitsForQuotaHasTheNumbersOfNow(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.pending(job("a", set("node", 0, 1, 8)))
	s.entry(j).spot.bucket.why = reason.New(reason.WaitingForQuota, "old numbers")
	s.UpdateQuota(func(t *quota.Tree) {
		t.Charge("someone", "cq", quota.Usage{{Flavor: "gpu", Resource: gpuResource}: 6}, quota.Holder{})
	})
	lines, _ := s.picture(epoch0)
	if len(lines) != 1 || lines[0].why.Message != "needs 8 GPUs in queue main, 2 of 8 free" {
		t.Errorf("it says %+v", lines)
	}
}

func TestPictureCountsEachJobOnceInTheStateItIsIn(t *testing.T) {
	s := testScene(t, 64, 8, 8, 8, 8)
	s.admitted(job("runs", set("node", 0, 1, 8)), []string{"node-0"})
	s.stop(s.admitted(job("leaves", set("node", 0, 1, 4)), []string{"node-1"}), eviction{reason: kueue.WorkloadDeactivated})
	s.plan(s.pending(job("starts", set("node", 0, 1, 2))), []string{"node-2"})
	var waiting []string
	for i := range exactReasons + 2 {
		j := s.pending(job(fmt.Sprintf("waits-%02d", i), set("node", 0, 1, 1)))
		s.entry(j).spot.bucket.why = reason.New(reason.NoPlacement, "no node has 1")
		waiting = append(waiting, j.Owner.Name)
	}
	parked := job("zz-parked", set("node", 0, 1, 1))
	off := func(wl *kueue.Workload) { wl.Spec.Active = new(false) }
	s.read(parked, s.workloadOfJob(parked, off), nil)
	waiting = append(waiting, parked.Owner.Name)
	again := job("parked-and-let-go", set("node", 0, 1, 1))
	s.read(again, s.workloadOfJob(again, off), nil)
	s.end(s.entry(again))
	// One that has no Workload, because it cannot be read, waits and is not
	// counted; neither is it when it is gone.
	misread := job("zzz-misread", set("node", 0, 1, 1))
	s.read(misread, nil, reason.New(reason.Misconfigured, "it has no pods"))
	waiting = append(waiting, misread.Owner.Name)
	mended := job("misread-and-let-go", set("node", 0, 1, 1))
	s.read(mended, nil, reason.New(reason.Misconfigured, "it has no pods"))
	s.end(s.entry(mended))
	lines, counts := s.picture(epoch0)
	var told []string
	exact := 0
	for _, l := range lines {
		told = append(told, l.job.Owner.Name)
		if l.why.Message == "no node has 1" {
			exact++
		}
	}
	if diff := cmp.Diff(waiting, told); diff != "" {
		t.Errorf("jobs that wait, in order (-want +got):\n%s", diff)
	}
	if exact != exactReasons {
		t.Errorf("%d jobs have their reason in full, want %d", exact, exactReasons)
	}
	for name, n := range map[string]*count{
		"ClusterQueue": counts.clusterQueues["cq"],
		"LocalQueue":   counts.localQueues[types.NamespacedName{Namespace: namespace, Name: "main"}],
	} {
		got := []int64{int64(n.pending), int64(n.reserving), int64(n.admitted), n.reserved["gpu"][gpuResource], n.used["gpu"][gpuResource]}
		// The one that starts has its quota reserved and is not admitted yet.
		if diff := cmp.Diff([]int64{exactReasons + 2, 3, 2, 14, 12}, got); diff != "" {
			t.Errorf("%s: pending, reserving, admitted, GPUs reserved, GPUs used (-want +got):\n%s", name, diff)
		}
	}
}

func TestAdmittedJobThatMissesANodeSaysSoUntilItHasOne(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	j := s.admitted(job("a", set("node", 0, 2, 8)), []string{"node-0", "node-1"})
	s.NodeGone("node-1")
	e := s.entry(j)
	if lines, _ := s.picture(epoch0); len(lines) != 0 {
		t.Errorf("before a node was looked for it says %+v", lines)
	}
	e.why = reason.New(reason.NoPlacement, "no node has 8")
	now := said{event: "Replanning", why: *e.why, at: epoch0}
	s.told(j.Owner.UID, now)
	want := []pendingLine{{job: j, why: *e.why, event: "Replanning", prefix: "none of 2 pods have a node: ", said: now}}
	lines, _ := s.picture(epoch0)
	if diff := cmp.Diff(want, lines, cmp.AllowUnexported(pendingLine{}, said{}), cmp.Comparer(func(a, b *workload.Job) bool { return a.Owner == b.Owner })); diff != "" {
		t.Errorf("what it says (-want +got):\n%s", diff)
	}
	s.mu.Lock()
	e.moveTo(s.jobs[j.Owner.UID].set("node").slots[1], "node-0")
	s.enqueue(e)
	s.mu.Unlock()
	if lines, _ := s.picture(epoch0); len(lines) != 0 {
		t.Errorf("with a node it says %+v", lines)
	}
}

func TestRestartDoesNotTellAgainWhatTheWorkloadSays(t *testing.T) {
	s := testScene(t, 8, 8)
	j := job("waits", set("node", 0, 1, 16))
	wl := s.workloadOfJob(j, func(wl *kueue.Workload) {
		apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{
			Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: string(reason.ExceedsMaxQuota), Message: "needs 16 GPUs",
		})
	})
	s.read(j, wl, nil)
	want := said{event: "Pending", why: reason.Reason{Class: reason.ExceedsMaxQuota, Message: "needs 16 GPUs"}, at: s.clock.Now()}
	if got := s.entry(j).lastSaid(); got != want {
		t.Errorf("it was told %+v, want %+v", got, want)
	}
	fresh := job("fresh", set("node", 0, 1, 16))
	s.read(fresh, s.workloadOfJob(fresh), nil)
	if got := s.entry(fresh).lastSaid(); got != (said{}) {
		t.Errorf("a job that nothing was said of was told %+v", got)
	}
}

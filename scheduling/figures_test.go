package scheduling

import (
	"math"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// figuresScene has two nodes of 8 GPUs of the flavor a, and ClusterQueues "main" and
// "stopped" with quota for 12 of them.
func figuresScene(t *testing.T) *stage {
	s := newStage(t.Context(), t)
	for _, name := range []string{"node-0", "node-1"} {
		s.watched.AddNode(s.logger, flavored(name, "a", 8))
	}
	s.queue("main", false, []string{"a"}, 12)
	cq := clusterQueue("stopped", []string{"a"}, 4)
	cq.Spec.StopPolicy = new(kueue.Hold)
	s.set(cq, false)
	s.Restored()
	return s
}

// queuedIn is the job in another queue.
func queuedIn(queue string, j *workload.Job) *workload.Job {
	return with(j, func(j *workload.Job) { j.Queue = queue })
}

func TestFigures(t *testing.T) {
	s := figuresScene(t)
	s.submit(queuedIn("main", job("runs", set("node", 0, 1, 8))), 0)
	s.submit(queuedIn("main", job("refused", set("node", 0, 1, 8))), 0)
	s.submit(queuedIn("stopped", job("waits", set("node", 0, 1, 4))), 0)
	s.pass()
	s.submit(queuedIn("main", job("new", set("node", 0, 1, 6))), 0)
	s.submit(queuedIn("stopped", job("new-too", set("node", 0, 1, 2))), 0)
	s.gpuNodes.set(&v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: v1alpha1.GPUNodeStatus{LastHeartbeat: metav1.NewTime(epoch0)}})
	s.gpuNodes.set(&v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}})

	got := s.figures()
	for i := range got.ClusterQueues {
		got.ClusterQueues[i].Quota = slices.DeleteFunc(got.ClusterQueues[i].Quota, func(q metrics.Quota) bool { return q.Resource != string(gpuResource) })
	}
	none := math.Inf(1)
	want := metrics.State{
		GPUNodes: []metrics.GPUNode{{Name: "node-1", Heartbeat: epoch0}},
		ClusterQueues: []metrics.ClusterQueue{
			{
				// The admission is not written yet, so what it has is reserved.
				Name: "main", Status: metrics.QueueActive, Due: 1, Refused: 1, Reserving: 1,
				Quota: []metrics.Quota{{Flavor: "a", Resource: string(gpuResource), Nominal: 12, BorrowingLimit: none, LendingLimit: none, Reserved: 8}},
			},
			{
				Name: "stopped", Status: metrics.QueuePending, Refused: 2,
				Quota: []metrics.Quota{{Flavor: "a", Resource: string(gpuResource), Nominal: 4, BorrowingLimit: none, LendingLimit: none}},
			},
		},
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhoStandsBehindARefusedJobHasNoTurn(t *testing.T) {
	s := figuresScene(t)
	cq := clusterQueue("main", []string{"a"}, 12)
	cq.Spec.QueueingStrategy = kueue.StrictFIFO
	s.set(cq, false)
	// Jobs of other shapes are not in the same bucket.
	s.submit(queuedIn("main", job("runs", set("node", 0, 1, 8))), 3)
	s.submit(queuedIn("main", job("head", set("node", 0, 1, 6))), 2)
	s.submit(queuedIn("main", job("behind", set("node", 0, 1, 4))), 1)
	look := func(when string, due, refused int) {
		t.Helper()
		for _, q := range s.figures().ClusterQueues {
			if q.Name == "main" && (q.Due != due || q.Refused != refused) {
				t.Errorf("%s %d jobs wait for their turn and %d for something to change, want %d and %d", when, q.Due, q.Refused, due, refused)
			}
		}
	}
	look("before a pass", 3, 0)
	s.pass()
	look("where the head has no quota", 0, 2)
	more := clusterQueue("main", []string{"a"}, 16)
	more.Spec.QueueingStrategy = kueue.StrictFIFO
	s.set(more, false)
	look("where there is quota again", 2, 0)
}

func TestFiguresOfAQueueThatSharesAndGoes(t *testing.T) {
	s := figuresScene(t)
	cq := clusterQueue("main", []string{"a"}, 12)
	cq.Spec.CohortName = "all"
	cq.DeletionTimestamp = &metav1.Time{Time: epoch0}
	s.set(cq, false)
	s.UpdateQuota(func(t *quota.Tree) { t.SetFairSharing(true, quota.LessThanInitialShare) })
	for _, q := range s.figures().ClusterQueues {
		if q.Name == "main" && (q.Status != metrics.QueueTerminating || q.Cohort != "all" || q.Share == nil || *q.Share != 0) {
			t.Errorf("%+v", q)
		}
	}
	if !math.IsNaN(shareOf(math.MaxInt64)) {
		t.Error("an infinite share is a number")
	}
}

func TestHeartbeatsAreOfNodesThatThereAreAndByTheSchedulersClock(t *testing.T) {
	s := figuresScene(t)
	s.gpuNodes.set(gpuNodeOf("node-0", epoch0))
	s.clock.Step(time.Minute)
	now := s.clock.Now()
	// The clock of one node is an hour behind, that of another an hour ahead.
	s.gpuNodes.set(gpuNodeOf("node-0", now.Add(-time.Hour)))
	s.gpuNodes.set(gpuNodeOf("node-1", now.Add(time.Hour)))
	s.gpuNodes.set(gpuNodeOf("node-of-once", now))
	want := []metrics.GPUNode{{Name: "node-0", Heartbeat: now}, {Name: "node-1", Heartbeat: now}}
	if diff := gocmp.Diff(want, s.figures().GPUNodes); diff != "" {
		t.Errorf("heartbeats (-want +got):\n%s", diff)
	}
	if err := s.watched.RemoveNode(s.logger, flavored("node-1", "a", 8)); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want[:1], s.figures().GPUNodes); diff != "" {
		t.Errorf("heartbeats after a node has gone (-want +got):\n%s", diff)
	}
}

func TestTheAdmissionsOfAQueueAreCountedBeforeTheFirst(t *testing.T) {
	s := testScene(t, 8)
	j := s.jobsOn(t, interceptor.Funcs{})
	j.api, j.gpuNodes = newAPIKinds(&fakeDiscovery{}, s.clock), s.gpuNodes
	for _, source := range j.sources(t.Context()) {
		if source.gvk.Kind == "ClusterQueue" {
			source.handler.OnAdd(clusterQueue("queue-without-jobs", []string{"a"}, 8), true)
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.Scheduler(false)...)
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != "muster_admissions_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == "queue-without-jobs" && m.GetCounter().GetValue() == 0 {
				return
			}
		}
	}
	t.Error("the queue has no counter of admissions")
}

func TestFreeGPUsAreMeasuredNowAndThen(t *testing.T) {
	s := figuresScene(t)
	s.submit(queuedIn("main", job("runs", set("node", 0, 1, 4))), 0)
	s.pass()
	s.clock.Step(measureEvery)
	s.pass()
	if free := testutil.ToFloat64(metrics.FreeGPUs); free != 12 {
		t.Errorf("%v GPUs are free, want those that the job does not hold", free)
	}
	s.submit(queuedIn("main", job("large", set("node", 0, 1, 8))), 0)
	s.clock.Step(measureEvery)
	s.pass()
	if fragmented := testutil.ToFloat64(metrics.FragmentedGPUs); fragmented < 2.6 || fragmented > 2.7 {
		t.Errorf("%v GPUs are of little use; of the 4 that are left two thirds are asked for 8 at a time", fragmented)
	}
}

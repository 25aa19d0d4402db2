package scheduling

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

func TestRestoredJobWhosePodSetsCannotBeReadKeepsItsCharge(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.pending(job("a", set("node", 0, 1, 8)))
	s.plan(j, []string{"node-0"})
	wl := s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j))
	after := testScene(t, 8, 8)
	// The child JobSet is being made anew.
	after.restore(with(j, func(j *workload.Job) { j.PodSets, j.PodOwnerUID = nil, "" }), wl, nil)
	if got := after.used(); got != 8 {
		t.Errorf("%d GPUs are charged, want 8", got)
	}
	// The JobSet is there again.
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("reading the job panics: %v", r)
		}
	}()
	after.read(j, wl, nil)
}

func TestEvictionUnderWayIsCarriedOnAfterARestart(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.pending(job("a", set("node", 0, 1, 8)))
	s.plan(j, []string{"node-0"})
	wl := s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), isTrue(kueue.WorkloadEvicted), s.admissionWritten(j))
	after := testScene(t, 8, 8)
	after.restore(j, wl, nil)
	if got := after.read(j, wl, nil); got.do == doResume {
		t.Error("the job that was being stopped is resumed")
	}
}

func TestPodsOfARestoredGroupHaveTheirNumbersWhereOneIsMissing(t *testing.T) {
	s := testScene(t, 24, 8, 8, 8)
	j := s.pending(job("a", set("node", 0, 3, 8)))
	s.plan(j, []string{"node-0", "node-1", "node-2"})
	wl := s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j))
	// Of its pods the one with the number 1 is missing, so that their pod sets cannot be read.
	there := with(j, func(there *workload.Job) {
		there.PodSets = nil
		for _, n := range []int32{0, 2} {
			p := onNode(pod(j, "node", n, fmt.Sprint("pod-", n)), fmt.Sprint("node-", n))
			p.Annotations = map[string]string{"kueue.x-k8s.io/role-hash": "node"}
			p.Labels[kueue.PodGroupPodIndexLabel] = fmt.Sprint(n)
			there.Pods = append(there.Pods, p)
		}
	})
	after := testScene(t, 24, 8, 8, 8)
	after.restore(there, wl, nil)
	if got := after.entry(j).job.PodSets[0].FirstRank; got != 1 {
		t.Errorf("the first rank is %d, want 1", got)
	}
}

func TestBackOffOutlivesARestart(t *testing.T) {
	s := testScene(t, 8, 8)
	at := metav1.NewTime(epoch0.Add(time.Minute))
	j := job("a", set("node", 0, 1, 8))
	s.read(j, s.workloadOfJob(j, func(wl *kueue.Workload) {
		wl.Status.RequeueState = &kueue.RequeueState{Count: new(int32(1)), RequeueAt: &at}
	}), nil)
	if s.isHead(j) {
		t.Error("it is tried at once")
	}
}

func TestJobThatChangedItsSizeWhileNobodyLookedIsNotRunForTheOldCharge(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	j := s.pending(job("a", set("node", 0, 1, 8)))
	s.plan(j, []string{"node-0"})
	wl := s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j))
	after := testScene(t, 16, 8, 8)
	bigger := with(j, func(j *workload.Job) { j.PodSets = []workload.PodSet{set("node", 0, 2, 8)} })
	after.restore(bigger, wl, nil)
	after.read(bigger, wl, nil)
	if got := after.used(); after.state(j) == Admitted && got != 16 {
		t.Errorf("a job of 16 GPUs runs for %d", got)
	}
}

func TestRestartDoesNotHoldASlotOnANodeThatIsFullByNow(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	j := s.pending(job("a", set("node", 0, 2, 4)))
	s.plan(j, []string{"node-0", "node-0"})
	wl := s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j))
	after := testScene(t, 16, 8, 8)
	// A pod of nobody came while no scheduler was there.
	foreign := onNode(pod(j, "node", 0, "foreign"), "node-0")
	foreign.Labels = nil
	after.confirm(foreign)
	after.restore(j, wl, nil)
	if got := after.taken("node-0"); got > 8 {
		t.Errorf("node-0 has %d GPUs taken of 8", got)
	}
	if !after.slot(j, "node", 0).lost() && !after.slot(j, "node", 1).lost() {
		t.Error("no slot looks for a new node")
	}
}

func TestRestartGivesASlotToThePodThatIsOnItsNodeBeforeItsReplacement(t *testing.T) {
	j := job("a", set("node", 0, 1, 8))
	for _, names := range [][]string{{"a-old", "b-new"}, {"b-old", "a-new"}} {
		before := testScene(t, 8, 8)
		before.pending(j)
		before.plan(j, []string{"node-0"})
		wl := before.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), before.admissionWritten(j))
		after := testScene(t, 8, 8)
		after.Seen(pod(j, "node", 0, names[1]))
		after.confirm(terminating(onNode(pod(j, "node", 0, names[0]), "node-0")))
		after.restore(j, wl, nil)
		if got := after.taken("node-0"); got != 8 {
			t.Errorf("%q: node-0 has %d GPUs taken of 8", names, got)
		}
		if sl := after.slot(j, "node", 0); sl.lost() || string(sl.pod.UID) != names[0] {
			t.Errorf("%q: the slot is %+v", names, *sl)
		}
	}
}

// The informer of pods may tell of a pod long before the admitted jobs are read:
// the API is slow, or away. Its owner can be gone, and its job still be charged.
func TestAPodOfAnAdmittedJobIsNoOrphanWhileJobsAreRestored(t *testing.T) {
	before := testScene(t, 8, 8)
	j := before.pending(job("a", set("node", 0, 1, 8)))
	before.plan(j, []string{"node-0"})
	wl := before.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), before.admissionWritten(j))

	s := testScene(t, 8, 8)
	s.restored = false
	s.restoring()
	jobs := s.jobsOn(t, interceptor.Funcs{}, wl.DeepCopy())
	p := pod(j, "node", 0, "a-pod")
	p.Labels[jobset.JobSetNameKey] = j.Owner.Name
	s.confirm(onNode(p, "node-0"))
	jobs.freeOrphans(t.Context())
	s.restore(goneOwner(wl, j.Owner), wl, nil)
	if !s.entry(j).occupied() {
		t.Error("the pod is on its node, and its job does not know")
	}
}

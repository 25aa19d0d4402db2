package scheduling

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// elastic is a running elastic Job of count pods that may have any slot.
func elastic(name string, count int32, gpus int64) *workload.Job {
	j := batchJob(name, count, gpus, &workload.Ended{})
	j.Elastic = true
	return j
}

// asks is the job asking for other numbers of pods.
func asks(j *workload.Job, count int32) *workload.Job {
	return with(j, func(j *workload.Job) {
		j.PodSets[0].Count, j.PodSets[0].Completions, j.PodSets[0].PodsPerReplica = count, count, max(count, 1)
	})
}

// growOn extends a job that asks for more, onto the nodes given, as a pass does;
// it returns why it cannot.
func (s *scene) growOn(j *workload.Job, nodes ...string) *reason.Reason {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.jobs[j.Owner.UID]
	if !e.missesPods() {
		s.t.Fatalf("%s does not ask for more pods", e)
	}
	want, more := e.grown()
	_, no := s.assignAgain(e, want)
	if no != nil {
		s.growthRefused(e, more, no)
		return no
	}
	if err := s.extend(e, want, s.classesAs(e, want), [][]string{nodes}); err != nil {
		s.t.Fatalf("growing: %v", err)
	}
	return nil
}

// write has what is to be written of a job written.
func (s *scene) write(j *workload.Job) *kueue.Workload {
	s.t.Helper()
	wl := s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j))
	s.written(j.Owner.UID, s.entry(j).replanned, wl, wrote, nil)
	return wl
}

func admittedPods(wl *kueue.Workload) (count int32, gpus int64) {
	set := wl.Status.Admission.PodSetAssignments[0]
	q := set.ResourceUsage[gpuResource]
	return *set.Count, q.Value()
}

func TestElasticJobGrowsWithAllThatItAsksForMore(t *testing.T) {
	s := testScene(t, 8, 4, 4)
	j := s.admitted(elastic("a", 2, 2), []string{"node-0", "node-0"})
	s.bindAll(batchPod(j, -1, "p0"), batchPod(j, -1, "p1"))
	more := asks(j, 4)
	s.read(more, nil, nil)
	if s.state(j) != Admitted {
		t.Fatalf("it is %s while it waits for more", s.state(j))
	}
	// Its controller makes the pods at once; they wait.
	late := []*corev1.Pod{batchPod(j, -1, "p2"), batchPod(j, -1, "p3")}
	for _, p := range late {
		s.Seen(p)
		if ok, _ := s.MayEnter(p); ok {
			t.Fatal("a pod beyond those that were admitted may enter")
		}
	}
	if no := s.growOn(j, "node-1", "node-1"); no != nil {
		t.Fatal(no)
	}
	if s.used() != 8 || s.taken("node-1") != 4 {
		t.Errorf("%d GPUs are charged and %d held, want 8 and 4", s.used(), s.taken("node-1"))
	}
	if ok, _ := s.MayEnter(late[0]); ok {
		t.Error("a pod may enter before the Workload has its slot")
	}
	if count, gpus := admittedPods(s.write(more)); count != 4 || gpus != 8 {
		t.Errorf("the Workload has %d pods and %d GPUs", count, gpus)
	}
	s.bindAll(late...)
	if s.taken("node-0") != 4 || s.taken("node-1") != 4 {
		t.Errorf("%d and %d GPUs are taken, want 4 on each node", s.taken("node-0"), s.taken("node-1"))
	}
}

func TestElasticJobThatGetsNoMoreGoesOnAndSaysWhyOnce(t *testing.T) {
	s := testScene(t, 6, 8)
	j := s.admitted(elastic("a", 2, 2), []string{"node-0", "node-0"})
	s.bindAll(batchPod(j, -1, "p0"), batchPod(j, -1, "p1"))
	s.read(asks(j, 4), nil, nil)
	for range 2 {
		if no := s.growOn(j); no == nil || no.Class != reason.ExceedsMaxQuota {
			t.Fatalf("the reason is %v", no)
		}
	}
	if s.state(j) != Admitted || s.used() != 4 {
		t.Errorf("it is %s with %d GPUs", s.state(j), s.used())
	}
	told := func() []string {
		return slices.DeleteFunc(slices.Clone(s.wishes.notes["a"]), func(n string) bool { return !strings.HasPrefix(n, noteGrowthWaits) })
	}
	if notes := told(); len(notes) != 1 || !strings.Contains(notes[0], "2 of main") {
		t.Errorf("the events are %q", notes)
	}
	// It asks for more again, after it asked for what it has.
	s.read(j, nil, nil)
	s.read(asks(j, 4), nil, nil)
	if s.growOn(j) == nil || len(told()) != 2 {
		t.Errorf("it asks for more again, and the events are %q", told())
	}
	// It asks for what it has again.
	s.read(j, nil, nil)
	if s.growthDue() || s.entry(j).missesPods() {
		t.Error("it is still growing")
	}
}

func TestElasticJobGivesUpSlotsAsItsPodsGo(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(elastic("a", 4, 2), []string{"node-0", "node-0", "node-0", "node-0"})
	bound := s.bindAll(batchPod(j, -1, "p0"), batchPod(j, -1, "p1"), batchPod(j, -1, "p2"), batchPod(j, -1, "p3"))
	fewer := asks(j, 2)
	s.read(fewer, nil, nil)
	if s.state(j) != Admitted || s.used() != 8 {
		t.Fatalf("it is %s with %d GPUs while its pods are there", s.state(j), s.used())
	}
	for i, gpus := range []int64{8, 6} {
		s.gone(bound[i])
		if s.used() != gpus || s.taken("node-0") != gpus {
			t.Fatalf("before the Workload says so %d GPUs are charged and %d taken", s.used(), s.taken("node-0"))
		}
		a, _ := s.admissionOf(j.Owner.UID)
		told := a.message
		wl := s.write(fewer)
		left := int32(3 - i)
		if want := fmt.Sprintf("%d GPUs on node-0 from queue main", 2*left); told != want {
			t.Fatalf("its admission says %q, want %q", told, want)
		}
		if count, gpus := admittedPods(wl); count != left || gpus != int64(2*left) {
			t.Fatalf("the Workload has %d pods and %d GPUs", count, gpus)
		}
		if s.used() != int64(2*left) || s.taken("node-0") != int64(2*left) {
			t.Fatalf("%d GPUs are charged and %d taken, want %d", s.used(), s.taken("node-0"), 2*left)
		}
	}
	for i, sl := range s.entry(j).set("main").slots {
		if sl.index != i || sl.pod == nil {
			t.Errorf("slot %d has the number %d and pod %v", i, sl.index, sl.pod)
		}
	}
	// A replacement has the slot of a pod that fails.
	s.gone(bound[3])
	s.settle(false)
	s.bindAll(batchPod(j, -1, "p4"))
}

func TestElasticJobMayAskForNoPodsForAWhile(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(elastic("a", 2, 2), []string{"node-0", "node-0"})
	bound := s.bindAll(batchPod(j, -1, "p0"), batchPod(j, -1, "p1"))
	none := asks(j, 0)
	s.read(none, nil, nil)
	s.gone(bound[0])
	s.gone(bound[1])
	a, _ := s.admissionOf(j.Owner.UID)
	if want := "no pods, as it asks for none, from queue main"; a.message != want {
		t.Errorf("its admission says %q, want %q", a.message, want)
	}
	wl := s.write(none)
	if count, gpus := admittedPods(wl); count != 0 || gpus != 0 {
		t.Errorf("the Workload has %d pods and %d GPUs", count, gpus)
	}
	if s.state(j) != Admitted || s.used() != 0 || s.taken("node-0") != 0 {
		t.Fatalf("it is %s with %d GPUs, and %d are taken", s.state(j), s.used(), s.taken("node-0"))
	}
	after := testScene(t, 8, 8)
	after.restore(running(none), wl, nil)
	for name, s := range map[string]*scene{"the same scheduler": s, "the next": after} {
		s.read(running(none), wl, nil)
		if s.state(j) != Admitted || s.used() != 0 {
			t.Fatalf("%s: it is %s with %d GPUs", name, s.state(j), s.used())
		}
		s.read(running(j), wl, nil)
		if no := s.growOn(j, "node-1", "node-1"); no != nil {
			t.Fatalf("%s: it gets no pods again: %v", name, no)
		}
		if s.used() != 4 || s.taken("node-1") != 4 {
			t.Errorf("%s: %d GPUs are charged and %d taken, want 4", name, s.used(), s.taken("node-1"))
		}
	}
}

func TestElasticJobKeepsSlotsThatItAsksForAgainBeforeTheyAreGivenUp(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(elastic("a", 2, 2), []string{"node-0", "node-0"})
	s.read(asks(j, 1), nil, nil)
	shrunk := s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j))
	at := s.entry(j).replanned
	s.read(j, nil, nil)
	// The write of before comes through late, and is followed by another.
	s.written(j.Owner.UID, at, shrunk, wrote, nil)
	if s.used() != 4 {
		t.Errorf("%d GPUs are charged, want 4", s.used())
	}
	if count, _ := admittedPods(s.write(j)); count != 2 {
		t.Errorf("the Workload has %d pods, want 2", count)
	}
}

func TestElasticJobIsTakenOverWithTheNumbersThatItWasAdmittedWith(t *testing.T) {
	for _, asked := range []int32{1, 2, 4} {
		t.Run(fmt.Sprintf("asks for %d", asked), func(t *testing.T) {
			s := testScene(t, 8, 8)
			j := s.admitted(elastic("a", 2, 2), []string{"node-0", "node-0"})
			wl := s.workloadOfJob(asks(j, asked), isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j))
			after := testScene(t, 8, 8)
			now := running(asks(j, asked))
			after.restore(now, wl, nil)
			if after.used() != 4 || after.taken("node-0") != 4 {
				t.Fatalf("%d GPUs are charged and %d held, want 4", after.used(), after.taken("node-0"))
			}
			after.read(now, wl, nil)
			if after.state(j) != Admitted || after.entry(j).missesPods() != (asked > 2) {
				t.Errorf("it is %s, and misses pods: %v", after.state(j), after.entry(j).missesPods())
			}
			if asked == 1 {
				after.write(now)
				if after.used() != 2 {
					t.Errorf("%d GPUs are charged, want 2", after.used())
				}
			}
		})
	}
}

func TestElasticJobIsReadAnewWhenItWasStopped(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(elastic("a", 2, 2), []string{"node-0", "node-0"})
	s.read(asks(j, 3), nil, nil)
	s.stop(j, eviction{reason: kueue.WorkloadDeactivated, message: "test"})
	s.stopped(j.Owner.UID)
	suspended := with(asks(j, 3), func(j *workload.Job) { j.Suspended = true })
	s.read(suspended, nil, nil)
	s.left(j.Owner.UID)
	s.pending(suspended)
	s.plan(suspended, []string{"node-0", "node-0", "node-0"})
	if s.used() != 6 || s.entry(j).wants() != nil {
		t.Errorf("%d GPUs are charged, and it wants %v", s.used(), s.entry(j).wants())
	}
}

func TestJobThatIsNotElasticIsStoppedWhenItAsksForOtherNumbers(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(batchJob("a", 2, 2, &workload.Ended{}), []string{"node-0", "node-0"})
	s.read(asks(j, 3), nil, nil)
	if s.state(j) != Leaving {
		t.Errorf("it is %s", s.state(j))
	}
}

func TestElasticJobThatIsAdmittedAgainSaysAgainWhyItGetsNoMore(t *testing.T) {
	s := testScene(t, 6, 8)
	j := s.admitted(elastic("a", 2, 2), []string{"node-0", "node-0"})
	refused := func() int {
		t.Helper()
		s.read(asks(j, 4), nil, nil)
		if s.growOn(j) == nil {
			t.Fatal("it grows beyond the quota")
		}
		n := 0
		for _, note := range s.wishes.notes["a"] {
			if strings.HasPrefix(note, noteGrowthWaits) {
				n++
			}
		}
		return n
	}
	if n := refused(); n != 1 {
		t.Fatalf("it is told %d times", n)
	}
	s.stop(j, eviction{reason: kueue.WorkloadEvictedByPreemption})
	s.stopped(j.Owner.UID)
	s.read(suspended(j), nil, nil)
	s.read(suspended(j), s.workloadOfJob(j), nil)
	s.left(j.Owner.UID)
	s.read(suspended(j), nil, nil)
	s.plan(j, []string{"node-0", "node-0"})
	s.write(j)
	if n := refused(); n != 2 {
		t.Errorf("it is told %d times after it was admitted twice", n)
	}
	// Other numbers are told now and then.
	for i, want := range []int{2, 3} {
		s.read(asks(j, 6), nil, nil)
		if s.growOn(j) == nil {
			t.Fatal("it grows beyond the quota")
		}
		if n := strings.Count(strings.Join(s.wishes.notes["a"], "\n"), noteGrowthWaits+": "); n != want {
			t.Errorf("after %d times 30 s other numbers were told, %d events in all", i, n)
		}
		s.clock.Step(eventEvery)
	}
}

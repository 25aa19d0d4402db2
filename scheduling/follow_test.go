package scheduling

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// besideKueue is a stage on which Kueue decides, with two nodes of 8 GPUs.
func besideKueue(t *testing.T) *stage {
	t.Helper()
	s := newStage(t.Context(), t)
	s.follow()
	s.plain.AddNode(s.logger, flavored("node-0", "gpu", 8))
	s.plain.AddNode(s.logger, flavored("node-1", "gpu", 8))
	s.queue("main", false, []string{"gpu"}, 4)
	s.Restored()
	return s
}

// byKueue is an admission as Kueue writes it, which names no nodes.
func byKueue(j *workload.Job) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		isTrue(kueue.WorkloadAdmitted)(wl)
		wl.Status.Admission = &kueue.Admission{ClusterQueue: "main"}
		for i := range j.PodSets {
			ps := &j.PodSets[i]
			wl.Status.Admission.PodSetAssignments = append(wl.Status.Admission.PodSetAssignments, kueue.PodSetAssignment{
				Name: kueue.NewPodSetReference(ps.Name), Count: &ps.Count,
				Flavors:       map[corev1.ResourceName]kueue.ResourceFlavorReference{gpuResource: "gpu"},
				ResourceUsage: corev1.ResourceList{gpuResource: *resource.NewQuantity(int64(ps.Count)*workload.GPUs(ps.PerPod()), resource.DecimalSI)},
			})
		}
	}
}

// starts reads a job as Kueue has admitted and resumed it.
func (s *stage) starts(j *workload.Job, change ...func(*kueue.Workload)) *workload.Job {
	s.t.Helper()
	j = running(j)
	if want := s.read(j, s.workloadOfJob(j, append([]func(*kueue.Workload){byKueue(j)}, change...)...), nil); want.do != doNothing {
		s.t.Fatalf("to be done is %v, want nothing", want.do)
	}
	s.pass()
	return j
}

// place does what the writes would do that the Ledger has asked for.
func (s *stage) place() {
	for _, uid := range s.wishes.order {
		if a, ok := s.admissionOf(uid); ok {
			(&Jobs{ledger: s.Ledger}).placeFollowing(s.ctx, a)
		}
	}
}

func TestWhereKueueDecidesNothingIsAdmittedAndNobodyIsSuspended(t *testing.T) {
	s := besideKueue(t)
	waits, runs := job("waits", set("node", 0, 1, 1)), job("runs", set("node", 0, 1, 1))
	waits.Queue, runs.Queue = "main", "main"
	s.submit(waits, 0)
	if want := s.read(running(runs), s.workloadOfJob(runs), nil); want.do != doNothing {
		t.Errorf("to be done with a job that runs is %v, want nothing", want.do)
	}
	if got := s.pass(); len(got) > 0 {
		t.Errorf("%v were planned", got)
	}
	s.Seen(pod(waits, "node", 0, "p"))
	if ok, why := s.MayEnter(pod(waits, "node", 0, "p")); ok || why != "waiting for Kueue to admit its job" {
		t.Errorf("the pod of a waiting job may enter: %v, %q", ok, why)
	}
}

func TestAGangThatKueueAdmitsIsHeldWholeBeforeItsPodsAreLetIn(t *testing.T) {
	s := besideKueue(t)
	// Its queue has 4 GPUs: that is Kueue's business.
	j := s.starts(job("a", set("node", 0, 4, 4)))
	s.place()
	for _, n := range []string{"node-0", "node-1"} {
		if got := s.taken(n); got != 8 {
			t.Errorf("%d GPUs are held on %s, want 8", got, n)
		}
	}
	pods := []*corev1.Pod{pod(j, "node", 0, "a-0"), pod(j, "node", 1, "a-1"), pod(j, "node", 2, "a-2"), pod(j, "node", 3, "a-3")}
	s.Seen(pods[0])
	if ok, _ := s.MayEnter(pods[0]); ok {
		t.Error("the first pod does not wait for the others")
	}
	s.bindAll(pods...)
}

func TestAGangWithoutAPlaceHoldsNothingAndAllItsPodsSayWhy(t *testing.T) {
	s := besideKueue(t)
	j := s.starts(job("a", set("node", 0, 5, 4)))
	for i, uid := range []string{"a-0", "a-1", "a-2", "a-3", "a-4"} {
		s.Seen(pod(j, "node", int32(i), uid))
	}
	s.pass()
	if got := s.taken("node-0") + s.taken("node-1"); got != 0 {
		t.Errorf("%d GPUs are held", got)
	}
	lines, _ := s.picture(s.clock.Now())
	if len(lines) != 1 || len(lines[0].pods) != 5 || lines[0].why.Class != reason.NoPlacement && lines[0].why.Class != reason.ExceedsCluster {
		t.Fatalf("reported is %+v, want one reason of nodes for 5 pods", lines)
	}
	s.watched.AddNode(s.logger, flavored("node-2", "gpu", 8))
	s.pass()
	if got := s.taken("node-0") + s.taken("node-1") + s.taken("node-2"); got != 20 {
		t.Errorf("with a third node %d GPUs are held, want 20", got)
	}
}

func TestAJobThatKueueStopsIsForgottenWhenItsPodsAreGone(t *testing.T) {
	for name, stop := range map[string]func(*workload.Job, *kueue.Workload) *workload.Job{
		"it is being evicted": func(j *workload.Job, wl *kueue.Workload) *workload.Job {
			isTrue(kueue.WorkloadEvicted)(wl)
			return j
		},
		"it has lost its admission": func(j *workload.Job, wl *kueue.Workload) *workload.Job {
			wl.Status = kueue.WorkloadStatus{}
			return suspended(j)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := besideKueue(t)
			j := s.starts(job("a", set("node", 0, 2, 8)))
			s.place()
			bound := s.bindAll(pod(j, "node", 0, "a-0"), pod(j, "node", 1, "a-1"))
			wl := s.workloadOfJob(j, byKueue(j))
			stopped := stop(j, wl)
			if want := s.read(stopped, wl, nil); want.do != doNothing {
				t.Errorf("to be done while its pods run is %v, want nothing", want.do)
			}
			for _, p := range bound {
				s.gone(p)
			}
			s.settle(false)
			if want := s.read(stopped, wl, nil); want.do != doForget {
				t.Fatalf("to be done when they are gone is %v, want to forget it", want.do)
			}
			s.left(j.Owner.UID)
			if got := s.taken("node-0") + s.taken("node-1"); got != 0 {
				t.Errorf("%d GPUs stay held", got)
			}
			if want := s.read(stopped, wl, nil); want.do != doNothing || s.state(j) != Pending {
				t.Errorf("then it is %s, and to be done is %v", s.state(j), want.do)
			}
			s.starts(j)
			if got := s.state(j); got != Admitted {
				t.Errorf("when Kueue starts it again it is %s", got)
			}
		})
	}
}

func TestNoDeadlineOfOursRunsWhereKueueDecides(t *testing.T) {
	s := besideKueue(t)
	j := s.starts(job("a", set("node", 0, 2, 8)))
	// The first look starts the clocks.
	s.giveUpLate(Timing{StartTimeout: time.Minute, ReadyTimeout: time.Minute})
	s.clock.Step(24 * time.Hour)
	s.giveUpLate(Timing{StartTimeout: time.Minute, ReadyTimeout: time.Minute})
	if got := s.state(j); got != Admitted {
		t.Errorf("it is %s", got)
	}
}

func TestAJobThatKueueStartsWithFewerPodsIsPlannedAsItIs(t *testing.T) {
	s := besideKueue(t)
	j := s.starts(job("a", set("node", 0, 4, 4)))
	s.place()
	bound := s.bindAll(pod(j, "node", 0, "a-0"), pod(j, "node", 1, "a-1"), pod(j, "node", 2, "a-2"), pod(j, "node", 3, "a-3"))
	fewer := job("a", set("node", 0, 2, 4))
	s.starts(fewer)
	for i, p := range bound {
		if got, want := s.entry(j).seats[p.UID] != nil, i < 2; got != want {
			t.Errorf("pod %d has a slot: %v, want %v", i, got, want)
		}
	}
}

func TestPodsThatKueueHoldsBackHoldBackTheirGang(t *testing.T) {
	s := besideKueue(t)
	j := s.starts(job("a", set("node", 0, 2, 8)))
	s.place()
	gated := pod(j, "node", 1, "a-1")
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}}
	free := pod(j, "node", 0, "a-0")
	s.Seen(free)
	s.Seen(gated)
	if ok, _ := s.MayEnter(free); ok {
		t.Error("a pod is let in while another of its gang is gated")
	}
	s.wishes.woken[free.UID] = 0
	ungated := pod(j, "node", 1, "a-1")
	s.Seen(ungated)
	if s.wishes.woken[free.UID] == 0 {
		t.Error("the gang is not woken when the last gate is taken off")
	}
	s.bindAll(free, ungated)
}

func TestKueuesChoiceOfDomainsIsKept(t *testing.T) {
	nodes := func(names ...string) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			wl.Status.Admission.PodSetAssignments[0].TopologyAssignment = workload.EncodeNodes(names)
		}
	}
	let := func(p *corev1.Pod, node string) *corev1.Pod {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node, "flavor": "gpu"}
		return p
	}
	t.Run("each pod goes where its own selector says, in whatever order Kueue gave them out", func(t *testing.T) {
		s := besideKueue(t)
		s.setTopology("gpu", true)
		j := s.starts(job("a", set("node", 0, 2, 2)), nodes("node-1", "node-0"))
		s.place()
		first, second := let(pod(j, "node", 0, "a-0"), "node-0"), let(pod(j, "node", 1, "a-1"), "node-1")
		s.Seen(first)
		s.Seen(second)
		s.pass()
		s.place()
		got := map[string]string{}
		for _, p := range s.bindAll(first, second) {
			got[p.Name] = p.Spec.NodeName
		}
		if diff := cmp.Diff(map[string]string{"a-0": "node-0", "a-1": "node-1"}, got); diff != "" {
			t.Errorf("nodes (-want +got):\n%s", diff)
		}
		if len(s.wishes.notes["a"]) > 0 {
			t.Errorf("the events are %q", s.wishes.notes["a"])
		}
	})
	t.Run("no other node is taken where the chosen one is full", func(t *testing.T) {
		s := besideKueue(t)
		s.setTopology("gpu", true)
		if err := s.plain.AddPod(s.logger, plainPod("other", "node-1", 8)); err != nil {
			t.Fatal(err)
		}
		s.starts(job("a", set("node", 0, 1, 2)), nodes("node-1"))
		if got := s.taken("node-0"); got != 0 {
			t.Errorf("%d GPUs are held on a node that Kueue did not choose", got)
		}
	})
	t.Run("nodes that Muster wrote itself, for a flavor without a topology, bind nobody", func(t *testing.T) {
		s := besideKueue(t)
		if err := s.plain.AddPod(s.logger, plainPod("other", "node-1", 8)); err != nil {
			t.Fatal(err)
		}
		s.starts(job("a", set("node", 0, 1, 2)), nodes("node-1"))
		if got := s.taken("node-0"); got != 2 {
			t.Errorf("%d GPUs are held on the node that is free, want 2", got)
		}
	})
}

func TestWhileAKueueManagerLivesItIsFollowedAndThenTheJobsAreTakenOver(t *testing.T) {
	s := besideKueue(t)
	s.follows = false
	s.SetRival(reason.New(reason.AnotherScheduler, "Kueue lives"))
	j := s.starts(job("a", set("node", 0, 1, 4)))
	s.place()
	s.bindAll(pod(j, "node", 0, "a-0"))
	if want := s.read(suspended(job("b", set("node", 0, 1, 1))), s.workloadOfJob(job("b", set("node", 0, 1, 1))), nil); want.do != doNothing {
		t.Errorf("to be done with a waiting job is %v", want.do)
	}
	clear(s.wishes.writes)
	if !s.SetRival(nil) {
		t.Error("that Kueue is gone is no news")
	}
	if want := s.read(j, nil, nil); want.do == doSuspend || s.state(j) != Admitted {
		t.Errorf("the running job is %s, and to be done is %v", s.state(j), want.do)
	}
	if s.wishes.writes[j.Owner.UID] == 0 {
		t.Error("its nodes are not written to its Workload")
	}
	if got := s.quota.Used("main"); len(got) == 0 {
		t.Error("it is not charged")
	}
}

func TestWhatKueueRunsIsNotReadOnceASecond(t *testing.T) {
	s := besideKueue(t)
	s.starts(job("a", set("node", 0, 1, 8)))
	s.place()
	for _, e := range s.jobs {
		for _, set := range e.sets {
			for _, slot := range set.slots {
				slot.wasReady = true
			}
		}
	}
	clear(s.wishes.synced)
	s.tick(Timing{StartTimeout: time.Hour})
	if len(s.jobs) != 1 || len(s.wishes.synced) > 0 {
		t.Errorf("of %d jobs these are read: %v", len(s.jobs), s.wishes.synced)
	}
}

package scheduling

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

func TestALostSlotOfAJobThatAskedForNoDomainStaysNearTheOthers(t *testing.T) {
	pair := set("node", 0, 2, 8)
	anywhere := asking(pair, kueue.PodSetTopologyRequest{Unconstrained: new(true)})
	for name, tc := range map[string]struct {
		racks []int
		sets  []workload.PodSet
		on    [][]string
		lost  string
		want  string
	}{
		"nothing asked for":                   {[]int{4, 3}, []workload.PodSet{pair}, [][]string{{"b0", "b1"}}, "b0", "b2 b1"},
		"any domain will do":                  {[]int{4, 3}, []workload.PodSet{anywhere}, [][]string{{"b0", "b1"}}, "b0", "b2 b1"},
		"one of the racks that it is in":      {[]int{2, 3, 3}, []workload.PodSet{set("node", 0, 3, 8)}, [][]string{{"b0", "c0", "c1"}}, "c0", "b0 b1 c1"},
		"a rack without room":                 {[]int{4, 2}, []workload.PodSet{pair}, [][]string{{"b0", "b1"}}, "b0", "a0 b1"},
		"a single pod beside those of others": {[]int{4, 4}, []workload.PodSet{set("launcher", 0, 1, 8), pair}, [][]string{{"b2"}, {"b0", "b1"}}, "b2", "b3 | b0 b1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := closeStage(t, tc.racks...)
			j := s.pending(job("a", tc.sets...))
			s.plan(j, tc.on...)
			s.write(j)
			s.removeNode(t, tc.lost)
			s.pass()
			if got := s.placed(j); got != tc.want {
				t.Errorf("after the loss of %s it is on %s, want %s", tc.lost, got, tc.want)
			}
		})
	}
}

func TestPodsThatAreGoneHaveATimeOfTheirOwnToComeBack(t *testing.T) {
	const start, recovery = time.Hour, time.Minute
	both := func(s *scene, j *workload.Job) []*corev1.Pod { return s.bindAll(pods(j, "node", "first")...) }
	for name, tc := range map[string]struct {
		live     func(s *scene, j *workload.Job)
		recovery time.Duration
		want     time.Duration
	}{
		"none has come":                   {func(*scene, *workload.Job) {}, recovery, start},
		"one is gone":                     {func(s *scene, j *workload.Job) { s.gone(both(s, j)[0]) }, recovery, recovery},
		"one is gone, and no time is set": {func(s *scene, j *workload.Job) { s.gone(both(s, j)[0]) }, 0, start},
		"of those that come later one has come, and one has not": {func(s *scene, j *workload.Job) {
			both(s, j)
			s.Seen(pod(j, "later", 0, "later"))
		}, recovery, start},
	} {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 32, 8, 8, 8, 8)
			j := s.admitted(job("a", set("node", 0, 2, 8), set("later", 1, 2, 8)), []string{"node-0", "node-1"}, []string{"node-2", "node-3"})
			tc.live(s, j)
			timing := Timing{StartTimeout: start, RecoveryTimeout: tc.recovery}
			s.giveUpLate(timing)
			s.clock.Step(tc.want - time.Second)
			if s.giveUpLate(timing); s.state(j) != Admitted {
				t.Fatalf("%s before its time it is %s", time.Second, s.state(j))
			}
			s.clock.Step(time.Second)
			if s.giveUpLate(timing); s.state(j) != Leaving {
				t.Errorf("after %s it is %s", tc.want, s.state(j))
			}
		})
	}
}

func TestTheTimeToComeBackIsNotThatWhichOthersTookToStart(t *testing.T) {
	const start, recovery = time.Hour, time.Minute
	s := testScene(t, 16, 8, 8)
	j := s.admitted(job("a", set("node", 0, 2, 8)), []string{"node-0", "node-1"})
	timing := Timing{StartTimeout: start, RecoveryTimeout: recovery}
	both := pods(j, "node", "first")
	for _, p := range both {
		s.Seen(p)
	}
	first := s.bindAll(both[:1]...)
	s.giveUpLate(timing)
	s.clock.Step(start / 2)
	s.giveUpLate(timing)
	s.gone(first[0])
	s.confirm(onNode(both[1], "node-1"))
	if s.giveUpLate(timing); s.state(j) != Admitted {
		t.Fatal("a pod has no time to come back whose sibling has come late")
	}
	s.clock.Step(recovery)
	if s.giveUpLate(timing); s.state(j) != Leaving {
		t.Errorf("after %s it is %s", recovery, s.state(j))
	}
}

// The room of pods that have succeeded was given away when the JobSet starts all over.
func TestPodsThatComeAgainAfterTheySucceededGoToTheirOwnNodesIfThoseAreFree(t *testing.T) {
	for name, tc := range map[string]struct {
		taken string
		want  string
	}{
		"nobody has taken them":                 {"", "b0 b3 b2"},
		"one is taken":                          {"b3", "b0 b1 b2"},
		"what another one was on is left to it": {"b2", "b0 b3 b1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := closeStage(t, 4, 4)
			j := s.pending(job("a", set("node", 0, 3, 8)))
			s.plan(j, []string{"b0", "b3", "b2"})
			s.write(j)
			bound := s.bindAll(pods(j, "node", "first")...)
			for _, p := range bound[1:] {
				s.gone(p)
			}
			s.settle(true)
			s.gone(bound[0])
			if tc.taken != "" {
				s.confirm(plainPod("other", tc.taken, 8))
			}
			s.Seen(ofAttempt(1, pod(j, "node", 0, "second")))
			s.pass()
			if got := s.placed(j); got != tc.want {
				t.Errorf("they are on %s, want %s", got, tc.want)
			}
		})
	}
}

// members is what there is of a gang: those on nodes, those that wait, and those that
// have succeeded.
type members struct{ bound, waiting, succeeded []*corev1.Pod }

func TestMembersOfAGangAreToldApartByTheirUIDs(t *testing.T) {
	const others = "waiting for the other pods of its gang"
	const before = "waiting for the pod before it to leave its slot"
	for name, tc := range map[string]struct {
		live func(s *scene, j *workload.Job) members
		// want is why each pod that waits does not enter, "" for one that does.
		want []string
	}{
		"the next waits until the one before it is gone": {func(s *scene, j *workload.Job) members {
			bound := s.bindAll(pods(j, "node", "old")...)
			dying, next := terminating(bound[0]), pod(j, "node", 0, "next")
			if err := s.watched.UpdatePod(s.logger, bound[0], dying); err != nil {
				s.t.Fatalf("deleting: %v", err)
			}
			s.Seen(next)
			return members{bound: []*corev1.Pod{dying, bound[1]}, waiting: []*corev1.Pod{next}}
		}, []string{before}},
		"and enters alone then": {func(s *scene, j *workload.Job) members {
			bound := s.bindAll(pods(j, "node", "old")...)
			next := pod(j, "node", 0, "next")
			s.Seen(next)
			s.gone(bound[0])
			return members{bound: bound[1:], waiting: []*corev1.Pod{next}}
		}, []string{""}},
		"two pods of one number do not make up the gang": {func(s *scene, j *workload.Job) members {
			one, other := pod(j, "node", 0, "one"), pod(j, "node", 0, "other")
			s.Seen(one)
			s.Seen(other)
			return members{waiting: []*corev1.Pod{one, other}}
		}, []string{others, before}},
		"one that is deleted before it was bound does not count": {func(s *scene, j *workload.Job) members {
			p := pods(j, "node", "p")
			s.Seen(p[0])
			s.Seen(p[1])
			p[1] = terminating(p[1])
			s.Seen(p[1])
			return members{waiting: p}
		}, []string{others, others}},
		"one that has succeeded is not waited for": {func(s *scene, j *workload.Job) members {
			bound := s.bindAll(pods(j, "node", "old")...)
			s.gone(bound[1])
			s.settle(true)
			s.gone(bound[0])
			s.settle(false)
			next := pod(j, "node", 0, "next")
			s.Seen(next)
			return members{waiting: []*corev1.Pod{next}, succeeded: bound[1:]}
		}, []string{""}},
		"one of an attempt that is over is, though it has": {func(s *scene, j *workload.Job) members {
			bound := s.bindAll(pods(j, "node", "old")...)
			s.gone(bound[1])
			s.settle(true)
			s.gone(bound[0])
			s.settle(false)
			next := ofAttempt(1, pod(j, "node", 0, "next"))
			s.Seen(next)
			return members{waiting: []*corev1.Pod{next}, succeeded: bound[1:]}
		}, []string{others}},
	} {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 16, 8, 8)
			j := s.admitted(job("a", set("node", 0, 2, 8)), []string{"node-0", "node-1"})
			wl := s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j))
			there := tc.live(s, j)
			after := testScene(t, 16, 8, 8)
			for _, p := range there.bound {
				after.confirm(p)
			}
			after.Ledger.restore(j, wl, there.succeeded)
			for _, p := range there.waiting {
				after.Seen(p)
			}
			for when, s := range map[string]*scene{"as it happens": s, "after a restart": after} {
				for i, p := range there.waiting {
					if _, why := s.MayEnter(p); why != tc.want[i] {
						t.Errorf("%s pod %s: %q, want %q", when, p.Name, why, tc.want[i])
					}
				}
			}
		})
	}
}

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

package scheduling

import (
	"testing"

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

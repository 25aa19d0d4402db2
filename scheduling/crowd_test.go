package scheduling

import (
	"fmt"
	"testing"

	"github.com/muster-gpu/muster/workload"
)

// What a pod of a group costs when it comes must not grow with the pods that
// came before it: the scheduling queue waits for the Ledger meanwhile.
func TestAPodOfALargeGroupCostsNoMoreThanTheFirst(t *testing.T) {
	const size = 300
	for name, admitted := range map[string]bool{"the group waits": false, "the group was admitted with one pod": true} {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8, 8)
			g := &worldGroup{size: size, gpus: 1}
			first := g.pod("crowd", "pod-0")
			owner, _ := workload.PodJob(first)
			j := &workload.Job{
				Owner: owner, Gated: true, Suspended: true, Queue: "main", PodOwnerUID: owner.UID,
				PodSets: []workload.PodSet{set(workload.RoleOf(first), 0, 1, 1)},
			}
			if admitted {
				s.admitted(j, []string{"node-0"})
			} else {
				s.pending(j)
			}
			s.Seen(first)
			// The fewest allocations of some pods: a map grows now and then.
			came := 0
			allocations := func() float64 {
				least := 1e9
				for range 5 {
					came++
					p := g.pod("crowd", fmt.Sprintf("pod-%d", came))
					least = min(least, testing.AllocsPerRun(1, func() { s.Seen(p) }))
				}
				return least
			}
			few := allocations()
			for came < size {
				came++
				s.Seen(g.pod("crowd", fmt.Sprintf("pod-%d", came)))
			}
			if many := allocations(); many > few+10 {
				t.Errorf("a pod makes %v allocations when %d are there, and %v when few are", many, size, few)
			}
		})
	}
}

package scheduling

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-gpu/muster/workload"
)

func TestAJobThatTheAPIServerHasNotSeenIsRefusedIfItCannotBePlanned(t *testing.T) {
	changed := func(change func(*workload.PodSet)) workload.PodSet {
		ps := set("node", 0, 2, 4)
		change(&ps)
		return ps
	}
	for name, test := range map[string]struct {
		set  workload.PodSet
		good bool
	}{
		"a usual one":          {set("node", 0, 2, 4), true},
		"no pods":              {set("node", 0, 0, 4), true},
		"too many pods":        {set("node", 0, mostImaginedPods+1, 1), false},
		"fewer than none":      {set("node", 0, -1, 1), false},
		"less than no GPUs":    {changed(func(ps *workload.PodSet) { negative(ps) }), false},
		"replicas without pod": {changed(func(ps *workload.PodSet) { emptyReplicas(ps) }), false},
		"too many replicas": {changed(func(ps *workload.PodSet) {
			emptyReplicas(ps)
			ps.Count, ps.PodsPerReplica = mostImaginedClasses+1, 1
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := bearable(job("a", test.set)); (err == nil) != test.good || (err != nil && !errors.Is(err, ErrInvalidJob)) {
				t.Errorf("%v", err)
			}
		})
	}
}

func negative(ps *workload.PodSet) {
	for name := range ps.Template.Spec.Containers[0].Resources.Requests {
		ps.Template.Spec.Containers[0].Resources.Requests[name] = resource.MustParse("-1")
	}
}

// emptyReplicas tells the replicas from each other, and gives them no pods.
func emptyReplicas(ps *workload.PodSet) {
	ps.Exclusive, ps.PodsPerReplica = workload.Exclusive{ByNodeSelector: true}, 0
	ps.Stamp.IndexLabel = "index"
}

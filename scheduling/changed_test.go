package scheduling

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-gpu/muster/workload"
)

func TestAJobThatIsAnotherOneNowIsStoppedForThat(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(*workload.Job)
		reason  string
		message string
	}{
		"another queue": {
			func(j *workload.Job) { j.Queue, j.Suspended = "other", true },
			"QueueChanged", "it was admitted in queue main, and names queue other now",
		},
		"more pods": {
			func(j *workload.Job) { j.PodSets[0].Count = 3 },
			"PodSetsChanged", "it asks for other pods than it was admitted with: node had 2 pods, and has 3",
		},
		"larger pods": {
			func(j *workload.Job) { j.PodSets[0].Template = set("node", 0, 1, 4).Template },
			"PodSetsChanged", "it asks for other pods than it was admitted with: each pod of node asked for 2 GPUs, and asks for 4 GPUs",
		},
		"other sets": {
			func(j *workload.Job) { j.PodSets = append(j.PodSets, set("more", 0, 1, 1)) },
			"PodSetsChanged", "it asks for other pods than it was admitted with: its pod sets were node, and are node, more",
		},
	} {
		s := testScene(t, 8, 8)
		j := s.admitted(job("a", set("node", 0, 2, 2)), []string{"node-0", "node-0"})
		got := s.read(with(j, tt.change), nil, nil)
		if got.eviction == nil {
			t.Errorf("%s: it is not evicted, but %+v", name, got)
			continue
		}
		want := eviction{reason: tt.reason, message: tt.message}
		if diff := cmp.Diff(want, *got.eviction, cmp.AllowUnexported(eviction{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

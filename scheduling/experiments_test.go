package scheduling

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/workload"
)

func TestExperimentIsWarnedOfMoreThanItsQueueCanEverHave(t *testing.T) {
	for name, tc := range map[string]struct {
		parallel int32
		pods     int32
		gpus     int64
		queue    string
		want     string
	}{
		"as many as the queue has":                     {2, 2, 2, "main", ""},
		"more than the queue has":                      {5, 2, 2, "main", "5 trials at a time of 4 GPUs each are more than queue main can ever have: at most 2 run at a time, the others wait: set parallelTrialCount to 2"},
		"one that is too large alone":                  {3, 1, 16, "main", "not even one can run"},
		"endless ones":                                 {1 << 30, 1, 1, "main", "set parallelTrialCount to 8"},
		"nothing is said of a queue that is not there": {5, 2, 2, "none", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8, 8)
			// What runs now is in nobody's way.
			s.admitted(job("other", set("node", 0, 1, 8)), []string{"node-0"})
			trial := job("trial", set("node", 0, tc.pods, tc.gpus))
			trial.Queue = tc.queue
			got := s.beyondReach(&workload.Experiment{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "search"}, Parallel: tc.parallel, Trial: trial})
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("it is told %q, want %q", got, tc.want)
			}
		})
	}
}

func TestExperimentIsToldTheSameOnce(t *testing.T) {
	var x experiments
	told := func(message string) bool { return x.news("e", message) }
	if !told("a") || told("a") || !told("b") || told("") || !told("b") {
		t.Error("it is told twice, or not at all")
	}
}

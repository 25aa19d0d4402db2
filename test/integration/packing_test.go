package integration

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func init() { scenarios = append(scenarios, packingScenarios...) }

var packingScenarios = []scenario{
	{name: "single pods of 1, 2 and 4 GPUs, with a queue and without, leave whole nodes", run: func(t *testing.T, e *env) {
		for i := range 4 {
			e.Node(t, fmt.Sprintf("node-%d", i), 8)
		}
		e.Queue(t, e.namespace, "team", 64)
		var pods []*corev1.Pod
		for i, gpus := range []int64{1, 4, 2, 1, 2, 1, 4, 1} {
			pod := e.pod(fmt.Sprintf("single-%d", i), gpus, nil)
			if i%2 == 1 {
				pod.Labels = queued("team")
			}
			e.Create(t, pod)
			e.onNode(t, pod)
			pods = append(pods, pod)
		}
		on := map[string]bool{}
		for _, pod := range pods {
			have, err := e.now(t.Context(), pod)
			if err != nil {
				t.Fatal(err)
			}
			on[have.Spec.NodeName] = true
		}
		if len(on) != 2 {
			t.Errorf("16 GPUs are taken on %d nodes, want 2", len(on))
		}
		job := e.job("whole", "team", 2, 8)
		e.Create(t, job)
		e.runs(t, job, 2)
	}},
}

package integration

import (
	"fmt"
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func init() {
	scenarios = append(scenarios, scenario{name: "a scheduler that starts knows who comes first before it admits anybody", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.preempting(t, "team", 8)
		e.stop()
		const jobs = 60
		for i := range jobs {
			e.Create(t, e.job(fmt.Sprintf("low-%d", i), "team", 1, 8))
		}
		urgent := e.urgent(t, "urgent", 1, 8)
		e.start(t)
		e.runs(t, urgent, 1)
		e.usage(t, "team", 8, 1, jobs)
		var list kueue.WorkloadList
		if err := e.Client.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if wl := &list.Items[i]; wl.Namespace == e.namespace && isTrue(wl, kueue.WorkloadEvicted) {
				t.Errorf("Workload %s was started, and stopped for who came first", wl.Name)
			}
		}
	}})
}

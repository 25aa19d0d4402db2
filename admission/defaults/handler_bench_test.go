package defaults

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

// large is a JobSet of four replicated jobs of eight containers each, every one with
// GPUs and 20 variables.
func large() string {
	var b strings.Builder
	b.WriteString("metadata: {name: llm}\nspec:\n  suspend: true\n  replicatedJobs:\n")
	for j := range 4 {
		fmt.Fprintf(&b, "  - {name: job%d, template: {spec: {template: {spec: {containers: [", j)
		for c := range 8 {
			fmt.Fprintf(&b, "{name: c%d, image: example.com/train, resources: {limits: {nvidia.com/gpu: 1, memory: 100Gi}}, env: [", c)
			for e := range 20 {
				fmt.Fprintf(&b, "{name: VARIABLE_%d, value: value-%d}, ", e, e)
			}
			b.WriteString("]}, ")
		}
		b.WriteString("]}}}}}\n")
	}
	return b.String()
}

// BenchmarkHandle is an answer to the creation of a JobSet of 32 containers, by the
// number of RuntimeDefaults that select it.
func BenchmarkHandle(b *testing.B) {
	for _, n := range []int{1, 5} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var all []*v1alpha1.RuntimeDefaults
			for i := range n {
				all = append(all, named(b, fmt.Sprintf("d%d", i), fmt.Sprintf(`{pod: {tolerations: [{key: k%d}], schedulerName: muster, labels: {l%d: x}},
					containers: {env: [{name: A%d, value: a}, {name: B%d, value: b}, {name: C, value: c}], sharedMemory: {memoryPercent: 50}, capabilities: [IPC_LOCK]}}`, i, i, i, i)))
			}
			catalog, _ := known(b, all...)
			h := NewHandler(catalog, nil)
			req := request(b, aJobSet, large())
			b.ReportAllocs()
			for b.Loop() {
				if got, err := h.Handle(b.Context(), req); err != nil || len(got.Patches) == 0 {
					b.Fatalf("%d changes (%v)", len(got.Patches), err)
				}
			}
		})
	}
}

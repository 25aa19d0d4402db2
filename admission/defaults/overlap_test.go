package defaults

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

func TestStatus(t *testing.T) {
	const debug = `containers: {env: [{name: NCCL_DEBUG, value: WARN}]}`
	for name, tc := range map[string]struct {
		of, other string
		want      []v1alpha1.DefaultsOverlap
		missing   []string
	}{
		"other values of the same variable": {
			of: `{` + debug + `}`, other: `{containers: {env: [{name: NCCL_DEBUG, value: INFO}]}}`,
			want: []v1alpha1.DefaultsOverlap{{With: "other", First: "of", Fields: []string{"env NCCL_DEBUG"}}},
		},
		"the other one is heavier": {
			of: `{` + debug + `}`, other: `{weight: 1, containers: {env: [{name: NCCL_DEBUG, value: INFO}]}}`,
			want: []v1alpha1.DefaultsOverlap{{With: "other", First: "other", Fields: []string{"env NCCL_DEBUG"}}},
		},
		"the same values": {of: `{` + debug + `}`, other: `{` + debug + `}`},
		"everything that can differ": {
			of: `{pod: {labels: {a: x}, annotations: {b: x}, schedulerName: x, runtimeClassName: x, priorityClassName: x, terminationGracePeriodSeconds: 1},
				containers: {sharedMemory: {sizeLimit: 1Gi}, imagePullPolicy: Always, resources: [{name: rdma/hca, count: 1}]}}`,
			other: `{pod: {labels: {a: y}, annotations: {b: y}, schedulerName: y, runtimeClassName: y, priorityClassName: y, terminationGracePeriodSeconds: 2},
				containers: {sharedMemory: {memoryPercent: 1}, imagePullPolicy: Never, resources: [{name: rdma/hca, count: 1, perGPU: true}]}}`,
			want: []v1alpha1.DefaultsOverlap{{With: "other", First: "of", Fields: []string{
				"/dev/shm", "annotation b", "imagePullPolicy", "label a", "priorityClassName", "resource rdma/hca", "runtimeClassName", "schedulerName", "terminationGracePeriodSeconds",
			}}},
			missing: []string{"PriorityClass x", "RuntimeClass x"},
		},
		"classes that exist": {of: `{pod: {priorityClassName: high, runtimeClassName: nvidia}}`, other: `{}`},
		"tolerations and capabilities are united": {
			of: `{pod: {tolerations: [{key: a}]}, containers: {capabilities: [A]}}`, other: `{pod: {tolerations: [{key: b}]}, containers: {capabilities: [B]}}`,
		},
		"other kinds":               {of: `{match: {kinds: [Job]}, ` + debug + `}`, other: `{match: {kinds: [JobSet]}, containers: {env: [{name: NCCL_DEBUG}]}}`},
		"other queues":              {of: `{match: {queues: [a]}, ` + debug + `}`, other: `{match: {queues: [b]}, containers: {env: [{name: NCCL_DEBUG}]}}`},
		"other labels of namespace": {of: `{match: {namespaceSelector: {matchLabels: {a: b}}}, ` + debug + `}`, other: `{match: {namespaceSelector: {matchLabels: {a: c}}}, containers: {env: [{name: NCCL_DEBUG}]}}`},
		"labels of which both can hold": {
			of: `{match: {podSelector: {matchLabels: {a: b}}}, ` + debug + `}`, other: `{match: {podSelector: {matchLabels: {c: d}}}, containers: {env: [{name: NCCL_DEBUG}]}}`,
			want: []v1alpha1.DefaultsOverlap{{With: "other", First: "of", Fields: []string{"env NCCL_DEBUG"}}},
		},
		"other containers of one pod": {
			of: `{pod: {schedulerName: a}, containers: {names: [x], env: [{name: A, value: a}]}}`, other: `{pod: {schedulerName: b}, containers: {names: [y], env: [{name: A, value: b}]}}`,
			want: []v1alpha1.DefaultsOverlap{{With: "other", First: "of", Fields: []string{"schedulerName"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			of, other := named(t, "of", tc.of), named(t, "other", tc.other)
			got := Status(of, []*v1alpha1.RuntimeDefaults{other, of}, Around{PriorityClasses: sets.New("high"), RuntimeClasses: sets.New("nvidia")})
			want := v1alpha1.RuntimeDefaultsStatus{ObservedGeneration: 1, Overlaps: tc.want, Missing: tc.missing}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

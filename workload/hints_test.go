package workload

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestHintsOf(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name        string
		annotations map[string]string
		want        Hints
	}{
		{"nothing is said", nil, Hints{}},
		{"both are said", map[string]string{MinRuntimeAnnotation: "1h30m", CheckpointedAtAnnotation: "2030-01-01T12:00:00Z"},
			Hints{MinRuntime: new(90 * time.Minute), CheckpointedAt: noon}},
		{"a minimum of nothing is one", map[string]string{MinRuntimeAnnotation: "0s"}, Hints{MinRuntime: new(time.Duration(0))}},
		{"a duration without a unit", map[string]string{MinRuntimeAnnotation: "30"},
			Hints{Invalid: `annotation muster.dev/min-runtime is "30", which is no duration like 30m`}},
		{"a negative duration, beside a checkpoint that can be read", map[string]string{MinRuntimeAnnotation: "-1m", CheckpointedAtAnnotation: "2030-01-01T12:00:00Z"},
			Hints{CheckpointedAt: noon, Invalid: `annotation muster.dev/min-runtime is "-1m", which is no duration like 30m`}},
		{"a long text for a time", map[string]string{CheckpointedAtAnnotation: "yesterday, shortly before it became really dark outside"},
			Hints{Invalid: `annotation muster.dev/checkpointed-at is "yesterday, shortly before it became real...", which is no time like 2006-01-02T15:04:05Z`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, HintsOf(&metav1.ObjectMeta{Annotations: test.annotations})); diff != "" {
				t.Errorf("hints (-want +got):\n%s", diff)
			}
		})
	}
}

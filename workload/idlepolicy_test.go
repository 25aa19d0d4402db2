package workload

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhatQueuesSayOfTheirJobs(t *testing.T) {
	const asked = `, which is none of report, evict-when-needed and suspend-after=2h`
	said := func(v string) map[string]string { return map[string]string{IdlePolicyAnnotation: v} }
	for name, test := range map[string]struct {
		annotations map[string]string
		want        QueueHints
	}{
		"nothing":                       {nil, QueueHints{}},
		"that idle jobs are reported":   {said("report"), QueueHints{Idle: &IdlePolicy{}}},
		"that they are taken first":     {said("evict-when-needed"), QueueHints{Idle: &IdlePolicy{EvictWhenNeeded: true}}},
		"that they are suspended":       {said("suspend-after=90m"), QueueHints{Idle: &IdlePolicy{EvictWhenNeeded: true, SuspendAfter: 90 * time.Minute}}},
		"that they are after no time":   {said("suspend-after=0s"), QueueHints{Invalid: `annotation muster.dev/idle-policy is "suspend-after=0s"` + asked}},
		"that they are after some time": {said("suspend-after=2"), QueueHints{Invalid: `annotation muster.dev/idle-policy is "suspend-after=2"` + asked}},
		"nothing that can be read": {map[string]string{IdlePolicyAnnotation: "", MinRuntimeAnnotation: "soon"},
			QueueHints{Invalid: `annotation muster.dev/min-runtime is "soon", which is no duration like 30m; annotation muster.dev/idle-policy is ""` + asked}},
		"one thing that can be read": {map[string]string{IdlePolicyAnnotation: "kill", MinRuntimeAnnotation: "1h"},
			QueueHints{MinRuntime: new(time.Hour), Invalid: `annotation muster.dev/idle-policy is "kill"` + asked}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, QueueHintsOf(&metav1.ObjectMeta{Annotations: test.annotations})); diff != "" {
				t.Errorf("hints (-want +got):\n%s", diff)
			}
		})
	}
}

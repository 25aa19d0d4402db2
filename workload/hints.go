package workload

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// MinRuntimeAnnotation on a job, its LocalQueue or its ClusterQueue is for
	// how long a job is not preempted after its admission, as a Go duration such
	// as "30m".
	MinRuntimeAnnotation = "muster.dev/min-runtime"
	// CheckpointedAtAnnotation on a job is when it has last written a checkpoint,
	// as an RFC 3339 time: only what it did since is lost when it is preempted.
	CheckpointedAtAnnotation = "muster.dev/checkpointed-at"
)

// Hints are what a job says about being preempted. The zero Hints say nothing.
type Hints struct {
	// MinRuntime is nil where the job has none of its own.
	MinRuntime *time.Duration
	// CheckpointedAt is zero where the job names no checkpoint.
	CheckpointedAt time.Time
	// Invalid says which annotations cannot be read, and why; it is empty
	// normally. They count as absent.
	Invalid string
}

// HintsOf reads the annotations of a job.
func HintsOf(o metav1.Object) Hints {
	var h Hints
	var invalid []string
	var err error
	if h.MinRuntime, err = MinRuntime(o); err != nil {
		invalid = append(invalid, err.Error())
	}
	if v, set := o.GetAnnotations()[CheckpointedAtAnnotation]; set {
		if h.CheckpointedAt, err = time.Parse(time.RFC3339, v); err != nil {
			h.CheckpointedAt = time.Time{}
			invalid = append(invalid, fmt.Sprintf("annotation %s is %q, which is no time like 2006-01-02T15:04:05Z", CheckpointedAtAnnotation, shortValue(v)))
		}
	}
	if pod, ok := o.(*corev1.Pod); ok {
		if owner, alone := PodJob(pod); alone && owner.GroupVersionKind == podGVK {
			if name, _ := volcanoGroup(pod); name != "" {
				invalid = append(invalid, fmt.Sprintf("the pod names group %q in an annotation of Volcano, and %s is %q, which is not how many pods of it start together",
					shortValue(name), VolcanoMinMemberAnnotation, shortValue(pod.Annotations[VolcanoMinMemberAnnotation])))
			}
		}
	}
	h.Invalid = strings.Join(invalid, "; ")
	return h
}

// MinRuntime is what an object's annotation says; nil without one. The error
// says what is wrong with it.
func MinRuntime(o metav1.Object) (*time.Duration, error) {
	v, set := o.GetAnnotations()[MinRuntimeAnnotation]
	if !set {
		return nil, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return nil, fmt.Errorf("annotation %s is %q, which is no duration like 30m", MinRuntimeAnnotation, shortValue(v))
	}
	return &d, nil
}

// shortValue bounds what is repeated of a value that anybody can write.
func shortValue(v string) string {
	const most = 40
	if len(v) > most {
		return strings.ToValidUTF8(v[:most], "") + "..."
	}
	return v
}

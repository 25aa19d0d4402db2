package workload

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/workload/identity"
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

// QueueHints are what a LocalQueue or a ClusterQueue says of its jobs. The zero
// QueueHints say nothing.
type QueueHints struct {
	// MinRuntime and Idle are nil where the queue says nothing about that.
	MinRuntime *time.Duration
	Idle       *IdlePolicy
	// Invalid says which annotations cannot be read, and why; it is empty
	// normally. They count as absent.
	Invalid string
}

// Equal says that both say the same.
func (h QueueHints) Equal(o QueueHints) bool {
	return ptr.Equal(h.MinRuntime, o.MinRuntime) && ptr.Equal(h.Idle, o.Idle) && h.Invalid == o.Invalid
}

// QueueHintsOf reads the annotations of a queue.
func QueueHintsOf(queue metav1.Object) QueueHints {
	var h QueueHints
	var wrong [2]error
	h.MinRuntime, wrong[0] = minRuntime(queue)
	h.Idle, wrong[1] = idlePolicy(queue)
	if err := errors.Join(wrong[:]...); err != nil {
		h.Invalid = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return h
}

// HintAnnotations are the annotations from which QueueHintsOf reads: where they are the
// same, so are the hints.
func HintAnnotations(queue metav1.Object) [2]string {
	a := queue.GetAnnotations()
	return [2]string{a[MinRuntimeAnnotation], a[IdlePolicyAnnotation]}
}

// Hints are what a job says about being preempted. The zero Hints say nothing.
type Hints struct {
	// MinRuntime is nil where the job has none of its own.
	MinRuntime *time.Duration
	// CheckpointedAt is zero where the job names no checkpoint.
	CheckpointedAt time.Time
	// IdleExemptUntil is until when it is not to be stopped for what it does not do
	// with its GPUs; zero where it has not asked for that.
	IdleExemptUntil time.Time
	// Invalid says which annotations cannot be read, and why; it is empty
	// normally. They count as absent.
	Invalid string
}

// HintsOf reads the annotations of a job.
func HintsOf(o metav1.Object) Hints {
	var h Hints
	var invalid []string
	var err error
	if h.MinRuntime, err = minRuntime(o); err != nil {
		invalid = append(invalid, err.Error())
	}
	if v, set := o.GetAnnotations()[CheckpointedAtAnnotation]; set {
		if h.CheckpointedAt, err = time.Parse(time.RFC3339, v); err != nil {
			h.CheckpointedAt = time.Time{}
			invalid = append(invalid, fmt.Sprintf("annotation %s is %q, which is no time like 2006-01-02T15:04:05Z", CheckpointedAtAnnotation, shortValue(v)))
		}
	}
	if pod, ok := o.(*corev1.Pod); ok {
		if owner, alone := PodJob(pod); alone && owner.GroupVersionKind == identity.PodGVK {
			if name, _ := identity.VolcanoGroup(pod); name != "" {
				invalid = append(invalid, fmt.Sprintf("the pod names group %q in an annotation of Volcano, and %s is %q, which is not how many pods of it start together",
					shortValue(name), VolcanoMinMemberAnnotation, shortValue(pod.Annotations[VolcanoMinMemberAnnotation])))
			}
		}
	}
	h.Invalid = strings.Join(invalid, "; ")
	return h
}

// minRuntime is what an object's annotation says; nil without one. The error
// says what is wrong with it.
func minRuntime(o metav1.Object) (*time.Duration, error) {
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

package workload

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IdlePolicyAnnotation on a LocalQueue or a ClusterQueue is what becomes of its jobs that
// do nothing with their GPUs: "report", "evict-when-needed", or "suspend-after=" with a Go
// duration such as "2h". Each does what those before it do. Without it they are reported.
const IdlePolicyAnnotation = "muster.dev/idle-policy"

// The values of the annotation.
const (
	idleReport          = "report"
	idleEvictWhenNeeded = "evict-when-needed"
	idleSuspendAfter    = "suspend-after="
)

// IdlePolicy is what becomes of a job that does nothing with its GPUs. With the zero
// IdlePolicy it is reported, and goes first of those that may be preempted.
type IdlePolicy struct {
	// EvictWhenNeeded: no minimum of runtime protects it from being preempted.
	EvictWhenNeeded bool
	// SuspendAfter is after how long of doing nothing it is suspended for good,
	// 0 for never.
	SuspendAfter time.Duration
}

// idlePolicy is what an object's annotation says; nil without one. The error says what
// is wrong with it.
func idlePolicy(o metav1.Object) (*IdlePolicy, error) {
	v, set := o.GetAnnotations()[IdlePolicyAnnotation]
	switch {
	case !set:
		return nil, nil
	case v == idleReport:
		return &IdlePolicy{}, nil
	case v == idleEvictWhenNeeded:
		return &IdlePolicy{EvictWhenNeeded: true}, nil
	}
	if after, ok := strings.CutPrefix(v, idleSuspendAfter); ok {
		if d, err := time.ParseDuration(after); err == nil && d > 0 {
			return &IdlePolicy{EvictWhenNeeded: true, SuspendAfter: d}, nil
		}
	}
	return nil, fmt.Errorf("annotation %s is %q, which is none of report, evict-when-needed and suspend-after=2h", IdlePolicyAnnotation, shortValue(v))
}

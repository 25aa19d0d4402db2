package workload

import (
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/api/reason"
)

// maxExecTime is the label of an owner, nil without it.
func maxExecTime(obj client.Object) *string {
	if v, ok := obj.GetLabels()[MaxExecTimeLabel]; ok {
		return &v
	}
	return nil
}

// MaxExecutionSeconds is how long, in seconds, a job may be admitted in all
// before it is deactivated; nil without a limit. A label that is no positive
// 32-bit number is a reason.
func MaxExecutionSeconds(job *Job) (*int32, *reason.Reason) {
	if job.MaxExecTime == nil {
		return nil, nil
	}
	n, err := strconv.ParseInt(*job.MaxExecTime, 10, 32)
	if err != nil || n < 1 {
		return nil, reason.New(reason.Misconfigured,
			"the label %s is %q, which is no number of seconds from 1 to 2147483647", MaxExecTimeLabel, *job.MaxExecTime)
	}
	return new(int32(n)), nil
}

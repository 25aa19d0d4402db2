package workload

import (
	"math"
	"strconv"
	"time"

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

// Deadline is how long a job may run once it has started, by the
// activeDeadlineSeconds of what makes its pods: the phases one after the other,
// each as long as its longest pod set. It is false where a pod set has none. A
// JobSet that restarts its Jobs gives each of them the whole time again.
func (j *Job) Deadline() (time.Duration, bool) {
	longest := map[int]int64{}
	for i := range j.PodSets {
		ps := &j.PodSets[i]
		if ps.Deadline == nil {
			return 0, false
		}
		longest[ps.Phase] = max(longest[ps.Phase], *ps.Deadline)
	}
	const most = math.MaxInt64 / int64(time.Second)
	var sum int64
	for _, d := range longest {
		sum = min(sum, most-min(d, most)) + min(d, most)
	}
	return time.Duration(sum) * time.Second, len(longest) > 0
}

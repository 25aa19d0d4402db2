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

// Deadline is how long a job may run once it has started: its TimeLimit, or what
// its pods have, whichever is less. The phases run one after the other, each as
// long as its longest pod set. It is false where neither bounds it.
func (j *Job) Deadline() (time.Duration, bool) {
	pods, bounded := j.podsDeadline()
	if j.TimeLimit != nil && (!bounded || *j.TimeLimit < pods) {
		pods, bounded = *j.TimeLimit, true
	}
	return time.Duration(min(pods, mostSeconds)) * time.Second, bounded
}

// podsDeadline is how many seconds the pods may run, false where a set of them has
// no end.
func (j *Job) podsDeadline() (int64, bool) {
	longest := map[int]int64{}
	for i := range j.PodSets {
		ps := &j.PodSets[i]
		if ps.Deadline == nil {
			return 0, false
		}
		longest[ps.Phase] = max(longest[ps.Phase], *ps.Deadline)
	}
	var sum int64
	for _, d := range longest {
		sum = min(sum, mostSeconds-min(d, mostSeconds)) + min(d, mostSeconds)
	}
	return sum, len(longest) > 0
}

// mostSeconds is the longest time.Duration.
const mostSeconds = math.MaxInt64 / int64(time.Second)

// times is a deadline that may be had so often; nil stays nil.
func times(seconds *int64, often int64) *int64 {
	if seconds == nil || often == 1 {
		return seconds
	}
	if *seconds > mostSeconds/often {
		return new(mostSeconds)
	}
	return new(*seconds * often)
}

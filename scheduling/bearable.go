package scheduling

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/workload"
)

// What a job may be at most that nobody but its sender has looked at.
const (
	mostImaginedPods    = 100_000
	mostImaginedClasses = 10_000
)

// bearable refuses, with ErrInvalidJob, a job that the API server would not have let in or
// that is too large to be planned beside others: the API server has not looked at a job
// that is simulated.
func bearable(job *workload.Job) error {
	var pods, classes int64
	bases := make([]*corev1.Pod, len(job.PodSets))
	for i := range job.PodSets {
		bases[i] = &corev1.Pod{Spec: job.PodSets[i].PlacedTemplate().Spec}
	}
	d := divisionOf(bases)
	for i := range job.PodSets {
		ps := &job.PodSets[i]
		if ps.Count < 0 {
			return fmt.Errorf("%w: it has %d pods of %s", ErrInvalidJob, ps.Count, ps.Name)
		}
		for name, amount := range workload.Requests(&ps.Template) {
			if amount.Sign() < 0 {
				return fmt.Errorf("%w: its pods of %s ask for %s of %s", ErrInvalidJob, ps.Name, amount.String(), name)
			}
		}
		if ps.Count == 0 {
			continue
		}
		step := int64(d.step(ps))
		if step <= 0 {
			return fmt.Errorf("%w: its replicas of %s have %d pods", ErrInvalidJob, ps.Name, step)
		}
		pods += int64(ps.Count)
		classes += (int64(ps.Count) + step - 1) / step
	}
	if pods > mostImaginedPods || classes > mostImaginedClasses {
		return fmt.Errorf("%w: %d pods of %d kinds are more than are simulated (%d of %d)", ErrInvalidJob, pods, classes, mostImaginedPods, mostImaginedClasses)
	}
	return nil
}

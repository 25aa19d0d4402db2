package scheduling

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
)

// victim is a job that the quota policies allow to be stopped for another one.
type victim struct {
	quota.Candidate
	e *entry
	// version is the entry's when it was looked at.
	version int
	// pods are what leaves the nodes with it: its pods and its holds.
	pods []*corev1.Pod
	// idle: its work can be taken from it without a loss, because of what it does with
	// its GPUs.
	idle bool
	use  gpuUse
	// lost is how much work it loses.
	lost time.Duration
}

// sortVictims puts those first that are stopped first: idle ones, those of
// other ClusterQueues, those of the lowest priority, those that lose the least
// work. They come in Kueue's order, which decides between equals; where it is by
// the shares of ClusterQueues, it stands, but for the idle.
func sortVictims(victims []victim, byShares bool) {
	slices.SortStableFunc(victims, func(a, b victim) int {
		c := cmp.Compare(rankOf(!a.idle), rankOf(!b.idle))
		if c != 0 || byShares {
			return c
		}
		own := func(v victim) bool { return v.Reason == kueue.InClusterQueueReason }
		return cmp.Or(
			cmp.Compare(rankOf(own(a)), rankOf(own(b))),
			cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(a.lost, b.lost))
	})
}

func rankOf(later bool) int {
	if later {
		return 1
	}
	return 0
}

// lostWork is what a job loses that is stopped now: all since its last
// checkpoint, or since it was admitted.
func (e *entry) lostWork(since, now time.Time) time.Duration {
	if at := e.job.Hints.CheckpointedAt; at.After(since) && !at.After(now) {
		since = at
	}
	return max(0, now.Sub(since))
}

// hasBegun says that a pod of the job has been on its node since the admission.
func (e *entry) hasBegun() bool {
	return slices.ContainsFunc(e.sets, func(set *setSlots) bool { return slices.ContainsFunc(set.slots, (*slot).hasCome) })
}

// why says why just this job is stopped, as the end of a sentence.
func (v victim) why(priority int32) string {
	loses := fmt.Sprintf("it loses %s of work", v.lost.Round(time.Second))
	if !v.e.hasBegun() {
		loses = "no pod of it has come onto its node yet"
	}
	switch {
	case v.idle:
		return "it is idle: " + v.use.inWords()
	case v.Priority == priority:
		return fmt.Sprintf("its priority is %d too, and %s", v.Priority, loses)
	}
	return fmt.Sprintf("its priority is %d, that of the other one %d, and %s", v.Priority, priority, loses)
}

// preempting says by which of Kueue's rules a job is stopped.
func preempting(reason string) string {
	switch reason {
	case kueue.InClusterQueueReason:
		return "prioritization in the ClusterQueue"
	case kueue.InCohortReclamationReason:
		return "reclamation within the cohort"
	case kueue.InCohortReclaimWhileBorrowingReason:
		return "reclamation within the cohort while borrowing"
	case kueue.InCohortFairSharingReason:
		return "fair sharing within the cohort"
	}
	return reason
}

// occupying are the pods and holds of a job that take up room.
func (e *entry) occupying() []*corev1.Pod {
	var out []*corev1.Pod
	for _, set := range e.sets {
		for _, s := range set.slots {
			switch {
			case s.hold != nil:
				out = append(out, s.hold)
			case s.pod != nil && s.node != "":
				pod := s.pod
				if pod.Spec.NodeName == "" {
					// It is on its way there.
					on := *pod
					on.Spec.NodeName = s.node
					pod = &on
				}
				out = append(out, pod)
			}
		}
	}
	for _, pod := range e.unplaced {
		if pod.Spec.NodeName != "" {
			out = append(out, pod)
		}
	}
	return out
}

// stays says that another job is not to count on what a leaving one has.
func (l *Ledger) stays(e, other *entry, now time.Time) bool {
	return e.outstays(now) || (e.job.Keeper != other.job.Keeper && l.passesOn(e))
}

// outstays says that a pod of a leaving job should have left its node by now, or
// that nobody has asked it to: a job that has finished may leave pods running.
func (e *entry) outstays(now time.Time) bool {
	outstays := func(p *corev1.Pod) bool {
		return outlives(p, now) || (p.DeletionTimestamp == nil && e.job.Finish != nil)
	}
	for _, set := range e.sets {
		if slices.ContainsFunc(set.slots, func(s *slot) bool { return s.bound && outstays(s.pod) }) {
			return true
		}
	}
	for _, p := range e.unplaced {
		if p.Spec.NodeName != "" && outstays(p) {
			return true
		}
	}
	return false
}

// outlives says that a pod should have left its node for so long that nothing is
// expected of it any more.
func outlives(p *corev1.Pod, now time.Time) bool {
	return p.DeletionTimestamp != nil && now.Sub(p.DeletionTimestamp.Time) > outstayFor
}

// outstayFor is by how much a pod may outlive the time that it has to end, until
// nothing is expected of it any more.
const outstayFor = time.Minute

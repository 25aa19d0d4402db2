package scheduling

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// runtime is how long a job will run at most once it is admitted: what is left
// of its maximum execution time, else its deadline. It is false where it has
// neither.
func (e *entry) runtime(now time.Time) (time.Duration, bool) {
	if e.workload != nil && e.workload.Spec.MaximumExecutionTimeSeconds != nil {
		return max(0, seconds(e.workload.Spec.MaximumExecutionTimeSeconds)-executed(e.workload, now)), true
	}
	return e.job.Deadline()
}

// ends is when a job that holds capacity will have ended, false where nothing
// says so. One that is leaving is as good as gone, unless its pods stay although it
// has finished, or longer than they may.
func (e *entry) ends(now time.Time) (time.Time, bool) {
	if e.state == Leaving {
		return now, !e.outstays(now)
	}
	left, bounded := e.runtime(now)
	if bounded && isAdmitted(e.workload) && e.workload.Spec.MaximumExecutionTimeSeconds == nil {
		// A deadline counts from the start; the other time is what is left.
		left = max(0, left-now.Sub(admittedAt(e.workload)))
	}
	return now.Add(left), bounded
}

// departure is a job that holds capacity, with its pods and holds.
type departure struct {
	pods []*corev1.Pod
	// at is when it will have ended; not bounded: nothing says when.
	at      time.Time
	bounded bool
	// since is since when it has been admitted.
	since time.Time
	uid   string
}

// departures are the jobs that hold capacity: those first that end first, then
// those of which nothing is known, in the order of their admission.
func (l *Ledger) departures() []departure {
	now := l.clock.Now()
	var out []departure
	for e := range l.waits.charged {
		d := departure{since: now, uid: string(e.job.Owner.UID)}
		d.at, d.bounded = e.ends(now)
		if isAdmitted(e.workload) {
			d.since = admittedAt(e.workload)
		}
		for _, set := range e.sets {
			for _, s := range set.slots {
				switch {
				case s.hold != nil:
					d.pods = append(d.pods, s.hold)
				case s.occupied():
					d.pods = append(d.pods, onItsNode(s.pod, s.node))
				}
			}
		}
		out = append(out, d)
	}
	first := func(d departure) int {
		if d.bounded {
			return 0
		}
		return 1
	}
	slices.SortFunc(out, func(a, b departure) int {
		if c := cmp.Compare(first(a), first(b)); c != 0 {
			return c
		}
		if a.bounded {
			return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.uid, b.uid))
		}
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.uid, b.uid))
	})
	return out
}

// onItsNode is the pod with the node that the scheduler has assumed it on.
func onItsNode(pod *corev1.Pod, node string) *corev1.Pod {
	if pod.Spec.NodeName != "" {
		return pod
	}
	there := *pod
	there.Spec.NodeName = node
	return &there
}

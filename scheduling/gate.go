package scheduling

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/workload"
)

// MayEnter is the gate: whether the pod may be scheduled now, and if not, why.
// It runs under the scheduling queue's lock.
func (l *Ledger) MayEnter(pod *corev1.Pod) (bool, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, e, _ := l.jobOf(pod)
	switch {
	case m == foreign && l.holdUnqueued && pod.Labels[workload.QueueLabel] == "" && (workload.AsksGPU(pod) || l.claimsGPU(pod)):
		return false, "GPU pods of jobs without a queue are held here: set the label " + workload.QueueLabel + " on the job"
	case m == foreign:
		return true, ""
	case m == stray:
		return false, "waiting for the job that owns the pod to be read"
	case !e.letsIn() && l.kueueDecides():
		return false, "waiting for Kueue to admit its job"
	case !e.letsIn():
		return false, "waiting for its job to be admitted"
	}
	s, seated := e.seats[pod.UID]
	switch {
	case !seated:
		return false, "waiting for the pod before it to leave its slot"
	case s.lost() || s.unwritten:
		return false, "waiting for a new node"
	case l.isAway(e, s):
		return false, fmt.Sprintf("waiting for node %s to return", s.node)
	case !e.groupReady(s.group()):
		return false, "waiting for the other pods of its gang"
	}
	if node := l.awaited(e, s.group()); node != "" {
		return false, fmt.Sprintf("waiting with its gang for node %s to return", node)
	}
	return true, ""
}

// Take is called when the scheduler has popped a pod and is about to schedule
// it: the pod's phantom makes room for the pod. A pod that is being deleted
// will be skipped by the scheduler without a word, so its phantom stays.
func (l *Ledger) Take(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, e, _ := l.jobOf(pod)
	if m != member || !e.letsIn() || pod.DeletionTimestamp != nil {
		return
	}
	s, seated := e.seats[pod.UID]
	if !seated || s.bound || s.lost() || s.unwritten || s.pod.DeletionTimestamp != nil || l.isAway(e, s) {
		return
	}
	s.inFlight, s.moves = true, l.nodeMoves
	l.dropHold(s)
}

// NodeFor returns the planned node of a pod that was taken. managed is false
// for pods that Muster leaves to the scheduler; node is empty for a member
// that has no slot to go to now.
func (l *Ledger) NodeFor(pod *corev1.Pod) (node string, managed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, e, _ := l.jobOf(pod)
	switch m {
	case foreign:
		return "", false
	case stray:
		return "", true
	}
	if s, seated := e.seats[pod.UID]; seated && s.inFlight {
		return s.node, true
	}
	return "", true
}

// Reserve records that the pod has its node, and returns whether it must wait
// for others of its start group, or else who may go on with it.
func (l *Ledger) Reserve(pod *corev1.Pod) (wait bool, release []types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, e, _ := l.jobOf(pod)
	if m != member {
		return false, nil
	}
	s, seated := e.seats[pod.UID]
	if !seated || !s.inFlight {
		return false, nil
	}
	s.reserved = true
	for o := range e.group(s.group()) {
		switch {
		case o.done || o.surplus || o.bound:
		case !o.reserved:
			return true, nil
		case o != s:
			release = append(release, o.pod.UID)
		}
	}
	return false, release
}

// GiveBack records that a pod which was taken will not be bound now. Its slot
// is held again before the scheduler's cache frees the room. With replan, a
// slot whose pod was refused there gives up its node, so that a new one is
// looked for; a pod that was past that and is sent back keeps it. So does one
// that may have been refused because its node was away for a moment.
func (l *Ledger) GiveBack(pod *corev1.Pod, replan bool) (managed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, e, _ := l.jobOf(pod)
	if m == foreign {
		return false
	}
	if m == stray {
		return true
	}
	s, seated := e.seats[pod.UID]
	if !seated || s.bound || !s.inFlight {
		return true
	}
	s.inFlight, s.reserved = false, false
	switch {
	case e.state == Leaving:
		l.holdAgain(e, s)
		l.effects.Sync(keyOf(e.job.Owner))
	case replan && e.state == Admitted && !l.isAway(e, s) && s.moves == l.nodeMoves:
		l.lose(e, s)
	default:
		l.holdAgain(e, s)
	}
	l.leftUnbound(e, s)
	return true
}

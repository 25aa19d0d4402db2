package scheduling

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// sawReady takes in whether the pod of a slot is ready.
func (l *Ledger) sawReady(e *entry, s *slot) {
	if s.wasReady || !podutil.IsPodReady(s.pod) {
		return
	}
	s.wasReady = true
	if e.unsaidReady() {
		l.effects.Sync(keyOf(e.job.Owner))
	}
}

// hasBeenReady says that a pod of the slot has been ready, or has succeeded,
// since the admission.
func (s *slot) hasBeenReady() bool { return s.wasReady || s.done || s.surplus }

// credit has a slot count as ready whose pod has succeeded and is followed by
// another; where pods share slots, any slot that has had no ready pod yet.
func (s *setSlots) credit(w workload.Slot) {
	if own, numbered := s.own(w); numbered {
		if own != nil {
			own.wasReady = true
		}
		return
	}
	for _, sl := range s.slots {
		if sl.pod == nil && !sl.hasBeenReady() {
			sl.wasReady = true
			return
		}
	}
}

// started says that all pods of a phase are on their nodes, or have succeeded.
func (e *entry) started(phase int) bool {
	for _, set := range e.phase(phase) {
		if slices.ContainsFunc(set.slots, func(s *slot) bool { return !s.bound && !s.done && !s.surplus }) {
			return false
		}
	}
	return true
}

// startedAt is when the last pod of a phase that has started came onto its
// node: what the pods say, since this process may be younger than that. The
// time of a job that another program admitted begins now.
func (e *entry) startedAt(phase int, now time.Time) time.Time {
	if e.workload == nil || apimeta.FindStatusCondition(e.workload.Status.Conditions, kueue.WorkloadPodsReady) == nil {
		return now
	}
	var last time.Time
	for _, set := range e.phase(phase) {
		for _, s := range set.slots {
			if s.pod == nil {
				continue
			}
			if _, c := podutil.GetPodCondition(&s.pod.Status, corev1.PodScheduled); c != nil && c.LastTransitionTime.After(last) {
				last = c.LastTransitionTime.Time
			}
		}
	}
	if last.IsZero() || last.After(now) {
		return now
	}
	return last
}

// readiness is the number of slots of a phase that have been ready, of all.
func (e *entry) readiness(phase int) (ready, all int) {
	for _, set := range e.phase(phase) {
		for _, s := range set.slots {
			all++
			if s.hasBeenReady() {
				ready++
			}
		}
	}
	return ready, all
}

// allReady says that a pod of every slot has been ready, or has succeeded.
func (e *entry) allReady() bool {
	for _, set := range e.sets {
		if slices.ContainsFunc(set.slots, func(s *slot) bool { return !s.hasBeenReady() }) {
			return false
		}
	}
	return true
}

// unsaidReady says that the job has started for good, and that its Workload
// does not say so: it is not PodsReady, or still counts failed starts.
func (e *entry) unsaidReady() bool {
	return e.state == Admitted && (!saysReady(e.workload) || starts(e.workload) > 0) && e.allReady()
}

// readyAgain takes over from the Workload of a job that this process finds
// running that all its pods have been ready; some may not be now.
func (e *entry) readyAgain() {
	if !saysReady(e.workload) {
		return
	}
	for _, set := range e.sets {
		for _, s := range set.slots {
			s.wasReady = true
		}
	}
}

// saysReady says that a Workload tells that all its pods have been ready, whether all
// of them are there now or not.
func saysReady(wl *kueue.Workload) bool {
	if wl == nil {
		return false
	}
	c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady)
	return c != nil && (c.Status == metav1.ConditionTrue || c.Reason == kueue.WorkloadWaitForRecovery)
}

// recovery says whether the Workload of a job whose pods have all been ready is to be
// told of pods that have gone since, and what; or, with nothing to say, that all have
// come again.
func (e *entry) recovery(now time.Time) (news bool, gone string) {
	if e.state != Admitted || !saysReady(e.workload) {
		return false, ""
	}
	if n := e.gone(now); n > 0 && e.lateSince != 0 && now.Sub(e.lateSince.time()) >= goneFor {
		_, all := e.progress(now)
		gone = goneNow(n, all) + "; others are waited for"
	}
	return (gone != "") == apimeta.IsStatusConditionTrue(e.workload.Status.Conditions, kueue.WorkloadPodsReady), gone
}

// sayWaiting, sayReady and sayRecovery write the condition PodsReady, with the reasons that
// Kueue gives.
func (j *Jobs) sayWaiting(wl *kueue.Workload) {
	j.condition(wl, kueue.WorkloadPodsReady, metav1.ConditionFalse, kueue.WorkloadWaitForStart, "Not every pod has been ready yet")
}

func (j *Jobs) sayReady(wl *kueue.Workload) {
	j.condition(wl, kueue.WorkloadPodsReady, metav1.ConditionTrue, kueue.WorkloadStarted, "Every pod has been ready, or has succeeded")
}

// sayRecovery says of a job that has been ready what has gone of it, or that all is
// there again.
func (j *Jobs) sayRecovery(wl *kueue.Workload, gone string) {
	if gone != "" {
		j.condition(wl, kueue.WorkloadPodsReady, metav1.ConditionFalse, kueue.WorkloadWaitForRecovery, gone)
		return
	}
	j.condition(wl, kueue.WorkloadPodsReady, metav1.ConditionTrue, kueue.WorkloadRecovered, "Every pod that had gone has been replaced")
}

package scheduling

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// lapse is a deadline that an admitted job has let pass.
type lapse struct {
	job      *workload.Job
	eviction eviction
	// admitted is since when the job is admitted.
	admitted time.Time
	// uncreated: a pod that is missing on its node was not created. creators
	// are the objects that are known to create pods of the job.
	uncreated bool
	creators  sets.Set[types.UID]
}

// expire releases, whole, the jobs that have let a deadline pass. What kept
// their pods from being created is asked off the Ledger's lock.
func (j *Jobs) expire(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, refusalBound)
	defer cancel()
	for _, late := range j.ledger.tick(j.timing) {
		cause := ""
		if late.uncreated {
			cause = j.refusal(ctx, late)
		}
		j.ledger.giveUp(late.job.Owner.UID, j.timing, cause)
	}
}

// tick does what time brings about, and returns the jobs that have let a
// deadline pass; they are to be given up.
func (l *Ledger) tick(t Timing) []lapse {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	l.renew()
	l.tendReservations()
	l.tendClaims(now)
	if !l.kueueDecides() {
		l.tendUses(now)
	}
	l.searchAgain(now)
	for e := range l.waits.sleeping {
		l.enqueue(e)
	}
	var out []lapse
	for e := range l.waits.charged {
		e.runClocks(now)
		if l.kueueDecides() {
			continue
		}
		if news, _ := e.recovery(now); news || e.unsaidReady() {
			l.effects.Sync(keyOf(e.job.Owner))
		}
		if late := l.lapse(e, now, t); late != nil {
			out = append(out, *late)
		}
	}
	l.tendGroups(now, t)
	l.tendLeaving(now)
	l.noteHeld(now)
	return out
}

// giveUp releases a job, whole, if the deadline is still passed. cause is why
// pods of it were not created, empty if that is not known.
func (l *Ledger) giveUp(uid types.UID, t Timing, cause string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e == nil || l.kueueDecides() {
		return
	}
	now := l.clock.Now()
	e.runClocks(now)
	late := l.lapse(e, now, t)
	if late == nil {
		return
	}
	why := late.eviction
	if late.uncreated && cause != "" {
		why.message += "; a pod could not be created: " + cause
	}
	l.evict(e, why)
}

// runClocks starts and stops the clocks of a job.
func (e *entry) runClocks(now time.Time) {
	starts := e.startsLate(now)
	switch {
	case e.state != Admitted || !e.late(now):
		e.lateSince = 0
	case e.lateSince == 0 || e.lateStart != starts:
		// Those that are gone have another time than those that have never come.
		e.lateSince, e.lateStart = instantOf(now), starts
	}
	if e.state != Admitted {
		return
	}
	for _, set := range e.sets {
		if set.startedAt.IsZero() && e.started(set.set.Phase) {
			set.startedAt = e.startedAt(set.set.Phase, now)
		}
	}
}

// lapse is the deadline that a job has let pass, nil if there is none.
func (l *Ledger) lapse(e *entry, now time.Time, t Timing) *lapse {
	late := e.lapse(now, t)
	if late == nil && e.state == Admitted {
		late = l.idleTooLong(e, now)
	}
	return late
}

// lapse is the deadline that a job has let pass whatever it does with its GPUs, nil if
// there is none.
func (e *entry) lapse(now time.Time, t Timing) *lapse {
	if e.state != Admitted {
		return nil
	}
	late := lapse{job: e.job, admitted: admittedAt(e.workload)}
	if limit, over := e.overran(now); over {
		late.eviction = eviction{
			reason:  deactivatedDueTo + kueue.WorkloadMaximumExecutionTimeExceeded,
			message: fmt.Sprintf("it has used up its maximum execution time of %s", limit),
		}
		return &late
	}
	late.eviction = eviction{reason: kueue.WorkloadEvictedByPodsReadyTimeout, backOff: true}
	if limit := e.mayMiss(t); e.lateSince != 0 && now.Sub(e.lateSince.time()) >= limit {
		late.uncreated, late.creators = e.uncreated(), e.creators()
		late.eviction.message = e.notThere(now, limit)
		if no := e.refusal(); no != "" {
			late.eviction.message += "; it could not be resumed: " + no
		}
		late.eviction.message += "; " + released
		return &late
	}
	if phase, over := e.neverReady(now, t.ReadyTimeout); over {
		ready, all := e.readiness(phase)
		late.eviction.message = fmt.Sprintf("%s pods became ready within %s on their nodes%s; %s",
			onlySome(ready, all), t.ReadyTimeout, e.notReady(phase), released)
		return &late
	}
	return nil
}

// mayMiss is how long pods of a job may be missing on their nodes; it is another time
// where all of them have been there.
func (e *entry) mayMiss(t Timing) time.Duration {
	if t.RecoveryTimeout == 0 || e.lateStart {
		return t.StartTimeout
	}
	return t.RecoveryTimeout
}

// startsLate says that a pod which should be on its node has never been there.
func (e *entry) startsLate(now time.Time) bool {
	due := e.due()
	for _, set := range e.sets {
		starts := func(s *slot) bool { return s.missing(now) && !s.hasCome() }
		if due[set.set.Phase] && slices.ContainsFunc(set.slots, starts) {
			return true
		}
	}
	return false
}

// neverReady is a phase whose pods have all been on their nodes for the time
// given, and not all of which have been ready; 0 is no time.
func (e *entry) neverReady(now time.Time, timeout time.Duration) (phase int, over bool) {
	if timeout == 0 || saysReady(e.workload) {
		return 0, false
	}
	for _, set := range e.sets {
		phase := set.set.Phase
		if set.startedAt.IsZero() || now.Sub(set.startedAt) < timeout || !e.started(phase) {
			continue
		}
		if ready, all := e.readiness(phase); ready < all {
			return phase, true
		}
	}
	return 0, false
}

// released does not say what comes next: whether the job is tried again or
// deactivated is decided when its eviction is written.
const released = "all are released"

// overran says that the job has been admitted for longer in all than it may
// be, and how long it may.
func (e *entry) overran(now time.Time) (limit time.Duration, over bool) {
	if !isAdmitted(e.workload) || e.workload.Spec.MaximumExecutionTimeSeconds == nil {
		return 0, false
	}
	limit = seconds(e.workload.Spec.MaximumExecutionTimeSeconds)
	return limit, executed(e.workload, now) >= limit
}

// executed is how long a Workload has been admitted in all.
func executed(wl *kueue.Workload, now time.Time) time.Duration {
	past := seconds(wl.Status.AccumulatedPastExecutionTimeSeconds)
	if !isAdmitted(wl) {
		return past
	}
	return past + max(0, now.Sub(admittedAt(wl)))
}

func seconds(n *int32) time.Duration {
	if n == nil {
		return 0
	}
	return time.Duration(*n) * time.Second
}

// uncreated says that a pod which should be on its node does not exist.
func (e *entry) uncreated() bool {
	due := e.due()
	for _, set := range e.sets {
		for _, s := range set.slots {
			if due[set.set.Phase] && s.pod == nil && !s.done && !s.surplus {
				return true
			}
		}
	}
	return false
}

// creators are the UIDs of the job's owner, and of the controllers of its pods.
func (e *entry) creators() sets.Set[types.UID] {
	out := sets.New(e.job.Owner.UID)
	out.Insert(e.job.PodOwners()...)
	for _, set := range e.sets {
		for _, s := range set.slots {
			if s.pod == nil {
				continue
			}
			if o := metav1.GetControllerOfNoCopy(s.pod); o != nil {
				out.Insert(o.UID)
			}
		}
	}
	return out
}

// notReady names the first pod of a phase that has not been ready, and what its
// container waits for, as the end of a sentence; empty where it says nothing.
func (e *entry) notReady(phase int) string {
	for _, set := range e.phase(phase) {
		for _, s := range set.slots {
			if s.hasBeenReady() || s.pod == nil {
				continue
			}
			for _, statuses := range [][]corev1.ContainerStatus{s.pod.Status.InitContainerStatuses, s.pod.Status.ContainerStatuses} {
				for i := range statuses {
					if w := statuses[i].State.Waiting; w != nil && w.Reason != "" {
						return strings.TrimSuffix(fmt.Sprintf("; pod %s waits: %s, %s", s.pod.Name, w.Reason, shorten(w.Message)), ", ")
					}
				}
			}
		}
	}
	return ""
}

package scheduling

import (
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// conditionIdle is the condition of the Workload of a job that does nothing with its
// GPUs. Its reason is a gpuState, or stoppedIdle. It is how a scheduler that starts
// knows what its predecessor has told.
const conditionIdle = "muster.dev/Idle"

// stoppedIdle: the job is stopped or has ended.
const stoppedIdle = "Stopped"

// The events of jobs that do nothing with their GPUs, one for each time that it begins.
const (
	noteIdle    = "GPUsIdle"
	noteStalled = "GPUsStalled"
)

// usesEvery is the shortest time between two looks at what all jobs do with their GPUs.
// Agents write no more often.
const usesEvery = 10 * time.Second

// tendUses has the jobs looked at that do something else with their GPUs than their
// Workloads say, and jobs to be stopped looked for anew where more may be stopped now.
func (l *Ledger) tendUses(now time.Time) {
	if now.Sub(l.usesAt) < usesEvery {
		return
	}
	l.usesAt = now
	for e := range l.waits.charged {
		u, news := l.unsaidUse(e, now)
		if news {
			l.effects.Sync(keyOf(e.job.Owner))
		}
		before := e.unprotected
		e.unprotected = l.reclaimable(e, u, now) && l.idlePolicy(e).EvictWhenNeeded
		if e.unprotected && !before {
			l.waits.seen.idle++
		}
	}
}

// unsaidUse is what a job does with its GPUs, and whether its Workload says something
// else. What is not known is no news, nor is it that a job works which was never said
// to do nothing.
func (l *Ledger) unsaidUse(e *entry, now time.Time) (u gpuUse, news bool) {
	u = l.useOf(e, now)
	if u.state == gpusUnknown || e.workload == nil {
		return u, false
	}
	c := apimeta.FindStatusCondition(e.workload.Status.Conditions, conditionIdle)
	said := gpusInUse
	if c != nil && c.Status == metav1.ConditionTrue {
		said = gpuState(c.Reason)
	}
	return u, u.state != said
}

// sayUse writes what a job does with its GPUs.
func (j *Jobs) sayUse(wl *kueue.Workload, state gpuState, message string) {
	if state == gpusInUse {
		j.sayNotIdle(wl, string(state))
		return
	}
	j.condition(wl, conditionIdle, metav1.ConditionTrue, string(state), message)
}

// sayNotIdle ends what a Workload says of a job that does nothing, if it says so.
func (j *Jobs) sayNotIdle(wl *kueue.Workload, why string) {
	if c := apimeta.FindStatusCondition(wl.Status.Conditions, conditionIdle); c != nil && c.Status == metav1.ConditionTrue {
		j.condition(wl, conditionIdle, metav1.ConditionFalse, why, "Previously: "+c.Message)
	}
}

// useInWords is what is told of a job that does nothing with its GPUs: also what will
// become of it.
func (l *Ledger) useInWords(e *entry, u gpuUse) string {
	message := u.inWords()
	if after := l.idlePolicy(e).SuspendAfter; u.state == gpusIdle && after > 0 && !e.job.Gated {
		message += fmt.Sprintf("; its queue suspends such a job after %s", after)
	}
	return message
}

// idleTooLong is the deadline of a job that has used none of its GPUs for as long as
// its queue lets it, nil if there is none. Pods that nobody can suspend are left alone:
// their controllers would make them anew.
func (l *Ledger) idleTooLong(e *entry, now time.Time) *lapse {
	after := l.idlePolicy(e).SuspendAfter
	if after == 0 || e.job.Gated {
		return nil
	}
	u := l.useOf(e, now)
	if !l.reclaimable(e, u, now) || now.Sub(u.since) < after {
		return nil
	}
	return &lapse{job: e.job, admitted: admittedAt(e.workload), eviction: eviction{
		reason:  deactivatedDueTo + string(gpusIdle),
		message: fmt.Sprintf("%s, and its queue suspends such a job after %s", u.inWords(), after),
	}}
}

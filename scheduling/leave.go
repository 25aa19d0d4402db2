package scheduling

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// evict begins to stop a job that is charged. It is a no-op for a job that is
// leaving already.
func (l *Ledger) evict(e *entry, why eviction) {
	if e.state == Leaving || !e.move(evEvict) {
		return
	}
	e.eviction = &why
	l.leave(e, why.message)
	l.enqueue(e)
}

// deactivatedDueTo is the head of Kueue's Evicted reasons of jobs that are
// deactivated with their eviction; the cause follows.
const deactivatedDueTo = kueue.WorkloadDeactivated + "DueTo"

// deactivates says that the job is not to come back by itself.
func (w eviction) deactivates() bool { return strings.HasPrefix(w.reason, deactivatedDueTo) }

// cannotStart begins the message of an eviction whose job could not be resumed.
const cannotStart = "it cannot start: "

// failToStart releases an admitted job whose owner cannot be resumed.
func (l *Ledger) failToStart(uid types.UID, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.jobs[uid]; e != nil {
		l.evict(e, eviction{reason: kueue.WorkloadEvictedByPodsReadyTimeout, message: cannotStart + message, backOff: true})
	}
}

// end begins to release a job whose owner has finished or is deleted.
func (l *Ledger) end(e *entry) {
	if e.ended {
		return
	}
	e.ended = true
	if e.move(evEnd) && e.state == Leaving {
		l.leave(e, "the job has ended")
	}
	l.enqueue(e)
	l.effects.Sync(keyOf(e.job.Owner))
	l.effects.Report()
}

// leave has the owner stopped. Charge and holds stay until the API has been
// told that the job is off its nodes: whoever reads the API after a crash
// finds the room that it says is taken.
func (l *Ledger) leave(e *entry, message string) {
	l.quota.Leave(e.job.Owner.UID)
	var back []types.UID
	for _, set := range e.sets {
		for _, s := range set.slots {
			if s.reserved && !s.bound {
				back = append(back, s.pod.UID)
			}
		}
	}
	if len(back) > 0 {
		l.effects.Return(back, message)
	}
	l.inspectAgain()
	l.effects.Sync(keyOf(e.job.Owner))
	l.effects.Report()
}

// left ends the charge of a job that is off its nodes, after the API has been
// told: nobody is admitted on a quota that the API still shows as taken. A
// job that has ended is forgotten.
func (l *Ledger) left(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.jobs[uid]; e != nil {
		l.depart(e)
	}
}

// depart is left for a job of the Ledger. The place of a pod that is replaced by
// another one passes to that one, or is kept for it.
func (l *Ledger) depart(e *entry) {
	uid := e.job.Owner.UID
	if e.state == Leaving && !e.occupied() {
		heir, place := l.heirOf(e), ""
		switch {
		case heir != nil:
			place = e.sets[0].slots[0].node
		case l.isKept(e):
			return
		}
		ev := evReleased
		if e.ended {
			ev = evReleasedEnded
		}
		e.move(ev)
		l.dropHolds(e)
		root := l.quota.Root(e.assignment.ClusterQueue)
		l.quota.Release(uid)
		l.unseat(e)
		assignment := e.assignment
		e.assignment, e.lateSince, e.tried, e.remains = nil, 0, 0, nil
		e.requeueAt = instantOf(requeueAt(e.workload))
		l.enqueue(e)
		if e.stale {
			l.effects.Sync(keyOf(e.job.Owner))
		}
		if heir != nil {
			l.inherit(heir, assignment, place)
		}
		l.claimsGone(uid)
		l.released(root)
		l.roomCame()
	}
	if e.state == Gone {
		l.forget(e)
	}
}

// forget removes a job that is gone from every index.
func (l *Ledger) forget(e *entry) {
	uid := e.job.Owner.UID
	delete(l.jobs, uid)
	l.unkeeps(e.job)
	for _, owner := range e.podOwners {
		if l.podOwners[owner] == uid {
			delete(l.podOwners, owner)
		}
	}
	l.enqueue(e)
	if e.job.Gated {
		// Pods that came when it had ended make up a job of their own.
		for _, pod := range e.unplaced {
			l.record(pod)
		}
	}
	l.effects.Report()
}

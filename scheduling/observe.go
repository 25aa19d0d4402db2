package scheduling

import (
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// knows says that the job is in the Ledger.
func (l *Ledger) knows(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.jobs[uid] != nil
}

// workloadOf is the newest Workload known of a job.
func (l *Ledger) workloadOf(uid types.UID) *kueue.Workload {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.jobs[uid]; e != nil {
		return e.workload
	}
	return nil
}

// waitingWorkload is the same for a job that waits, nil for another.
func (l *Ledger) waitingWorkload(uid types.UID) *kueue.Workload {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.jobs[uid]; e != nil && e.spot.waits {
		return e.workload
	}
	return nil
}

// observe takes in a Workload that was written or changed by someone, and says
// whether its job has not been read with it yet.
func (l *Ledger) observe(uid types.UID, wl *kueue.Workload) (unread bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e == nil || !e.newer(wl) {
		return true
	}
	if e.workload == nil {
		// A Workload made anew is a new chance.
		e.version++
		l.effects.Admit()
	}
	if e.spot.waits && saysPending(e.workload) != saysPending(wl) {
		l.waits.untold.add(e)
		l.effects.Report()
	}
	e.workload = wl
	if p := wl.Spec.Priority; p != nil && *p != e.priority {
		l.setPriority(e, *p)
		l.effects.Admit()
		l.effects.Report()
	}
	l.enqueue(e)
	return e.readWith != wl.ResourceVersion
}

// setPriority takes in the priority of a job, which also says who may stop it.
func (l *Ledger) setPriority(e *entry, priority int32) {
	if e.priority == priority {
		return
	}
	e.priority = priority
	if e.state == Admitting || e.state == Admitted {
		l.quota.Charge(e.job.Owner.UID, e.assignment.ClusterQueue, e.assignment.Usage, e.holder(reservedAt(e.workload, l.clock.Now())))
		l.waits.seen.quota++
	}
}

// workloadDeleted forgets a Workload that someone deleted. A job that was
// admitted by it stops, since nothing durable says that it may run.
func (l *Ledger) workloadDeleted(uid, workloadUID types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e == nil || e.workload == nil || e.workload.UID != workloadUID {
		return
	}
	e.workload = nil
	e.version++
	defer l.enqueue(e)
	l.evict(e, eviction{reason: evictedForDeletion, message: "its Workload was deleted"})
}

// isCharged says that a job holds quota and room.
func (l *Ledger) isCharged(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	return e != nil && e.holdsCapacity()
}

// syncFirst has the first waiting jobs of each queue looked at again.
func (l *Ledger) syncFirst() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, queues := range l.queuesBy() {
		for _, e := range l.waits.first(queues) {
			l.effects.Sync(keyOf(e.job.Owner))
		}
	}
}

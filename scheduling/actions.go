package scheduling

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// doing is what an owner needs now.
type doing int

const (
	doNothing doing = iota
	doSuspend
	doResume
	// doRequeue: the job has left its nodes; its Workload becomes pending again.
	doRequeue
	// doFinish: the job has ended; its Workload says so.
	doFinish
)

// action is one step towards what the Ledger has decided.
type action struct {
	do       doing
	message  string
	eviction *eviction
	infos    []workload.PodSetInfo
}

// read takes in what was read of an owner and its Workload, and says what the
// owner needs. no is why the job cannot run as it stands.
func (l *Ledger) read(job *workload.Job, wl *kueue.Workload, no *reason.Reason) action {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[job.Owner.UID]
	if e == nil {
		if job.Deleting {
			return action{}
		}
		if job.Finish != nil && !isAdmitted(wl) {
			return action{do: finishAction(wl)}
		}
		e = &entry{job: job, state: Pending}
		l.jobs[job.Owner.UID] = e
		l.byName[keyOf(job.Owner)] = job.Owner.UID
	}
	l.update(e, job, wl, no)
	return l.want(e)
}

func finishAction(wl *kueue.Workload) doing {
	if wl == nil || isFinished(wl) {
		return doNothing
	}
	return doFinish
}

// update takes the newest reading into the entry.
func (l *Ledger) update(e *entry, job *workload.Job, wl *kueue.Workload, no *reason.Reason) {
	if e.newer(wl) {
		e.workload = wl
	}
	if e.holdsCapacity() && len(job.PodSets) == 0 {
		// The pod templates are gone (the child JobSet is being replaced);
		// what was admitted stands.
		job.PodSets, job.PodOwnerUID = e.job.PodSets, e.job.PodOwnerUID
	}
	changed := e.job != job && !sameRequest(e.job, job)
	e.job = job
	if e.workload != nil && e.workload.Spec.Priority != nil {
		changed = changed || e.priority != *e.workload.Spec.Priority
		e.priority = *e.workload.Spec.Priority
	}
	blocked := no
	if blocked == nil && e.workload != nil && e.workload.Spec.Active != nil && !*e.workload.Spec.Active {
		blocked = reason.New(reason.Deactivated, "the Workload is deactivated: spec.active is false")
	}
	if (e.blocked == nil) != (blocked == nil) || (blocked != nil && *blocked != *e.blocked) {
		changed = true
		l.effects.Report()
	}
	e.blocked = blocked
	if at := requeueAt(e.workload); e.state == Pending && at.After(e.requeueAt) {
		e.requeueAt = at
	}
	if changed || e.version == 0 {
		e.version++
		e.tried = 0
		l.effects.Admit()
		l.effects.Report()
	}
	if job.PodOwnerUID != "" && l.podOwners[job.PodOwnerUID] != job.Owner.UID {
		l.podOwners[job.PodOwnerUID] = job.Owner.UID
		l.adopt(job.PodOwnerUID)
	}
	switch {
	case job.Finish != nil || job.Deleting:
		if !e.ended {
			l.end(e)
		}
	case blocked != nil && blocked.Class == reason.Deactivated && (e.state == Admitting || e.state == Admitted):
		l.evict(e, eviction{reason: kueue.WorkloadDeactivated, message: blocked.Message})
	}
}

// sameRequest says that two readings of a job ask for the same.
func sameRequest(a, b *workload.Job) bool {
	if a.Queue != b.Queue || len(a.PodSets) != len(b.PodSets) {
		return false
	}
	for i := range a.PodSets {
		if a.PodSets[i].Name != b.PodSets[i].Name || a.PodSets[i].Count != b.PodSets[i].Count {
			return false
		}
	}
	return true
}

// want is the step that brings the owner towards the entry's state.
func (l *Ledger) want(e *entry) action {
	job := e.job
	switch e.state {
	case Pending:
		if !job.Suspended && !e.ended {
			return action{do: doSuspend, message: "it runs without being admitted"}
		}
	case Admitted:
		if job.Suspended {
			return action{do: doResume, infos: injections(job, e.assignment, l.quota)}
		}
	case Leaving:
		switch {
		case !e.ended && !e.stopSent:
			return action{do: doSuspend, message: e.eviction.message, eviction: e.eviction}
		case l.release(e, job.Suspended && e.stopSent):
			if e.state == Gone {
				l.forget(e)
				return action{do: finishAction(e.workload)}
			}
			return action{do: doRequeue}
		}
	case Gone:
		l.forget(e)
		return action{do: finishAction(e.workload)}
	}
	return action{}
}

// stopped records that the owner of a leaving job was suspended by us. It
// reports whether that was news.
func (l *Ledger) stopped(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e == nil || e.state != Leaving || e.stopSent {
		return false
	}
	e.stopSent = true
	l.effects.Sync(keyOf(e.job.Owner))
	return true
}

// ownerGone ends the job that was known under key, unless it is the one with
// the UID that is there now.
func (l *Ledger) ownerGone(key JobKey, now types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	uid, ok := l.byName[key]
	if !ok || uid == now {
		return
	}
	e := l.jobs[uid]
	if e == nil {
		delete(l.byName, key)
		return
	}
	if !e.ended {
		l.end(e)
	}
	if e.state == Gone || l.release(e, true) {
		l.forget(e)
		return
	}
	if now != "" {
		// The name has passed to another object: this one is found by its UID.
		delete(l.byName, key)
	}
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

// observe takes in a Workload that was written or changed by someone.
func (l *Ledger) observe(uid types.UID, wl *kueue.Workload) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.jobs[uid]; e != nil && e.newer(wl) {
		e.workload = wl
		if p := wl.Spec.Priority; p != nil {
			e.priority = *p
		}
	}
}

// admission is what an admission writes: a copy taken under the lock.
type admission struct {
	job        *workload.Job
	workload   *kueue.Workload
	assignment *quota.Assignment
	nodes      [][]string
	state      State
	message    string
}

// admissionOf returns what is to be written for a job that is admitting, or
// was admitted and has changed nodes.
func (l *Ledger) admissionOf(uid types.UID) (admission, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e == nil || (e.state != Admitting && e.state != Admitted) || e.workload == nil {
		return admission{}, false
	}
	a := admission{job: e.job, workload: e.workload, assignment: e.assignment, state: e.state}
	for _, set := range e.sets {
		var nodes []string
		for _, s := range set.slots {
			if s.node == "" {
				// A lost slot is written when it has a node again.
				return admission{}, false
			}
			nodes = append(nodes, s.node)
		}
		a.nodes = append(a.nodes, nodes)
	}
	a.message = fmt.Sprintf("%s on %s from queue %s", amount(e.gpus(), e.podCount()), nodeRange(e.nodes()), e.job.Queue)
	return a, true
}

// written records the outcome of writing an admission. It reports whether the
// job may be resumed.
func (l *Ledger) written(uid types.UID, wl *kueue.Workload, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e == nil {
		return false
	}
	if e.newer(wl) {
		e.workload = wl
	}
	if e.state == Admitted {
		return err == nil
	}
	if err == nil {
		e.move(evWritten)
		if e.state != Admitted {
			l.effects.Sync(keyOf(e.job.Owner))
			return false
		}
		l.wakeAll(e)
		l.effects.Sync(keyOf(e.job.Owner))
		l.effects.Report()
		return true
	}
	if e.move(evRefused) && e.state == Pending {
		l.dropHolds(e)
		l.quota.Release(uid)
		e.sets, e.assignment, e.tried = nil, nil, 0
		if !apierrors.IsConflict(err) {
			// The API is away or refuses: not at once again.
			e.requeueAt = l.clock.Now().Add(time.Second)
		}
		l.touch()
	}
	return false
}

// requeueAt is when a Workload may be tried again.
func requeueAt(wl *kueue.Workload) time.Time {
	if wl == nil || wl.Status.RequeueState == nil || wl.Status.RequeueState.RequeueAt == nil {
		return time.Time{}
	}
	return wl.Status.RequeueState.RequeueAt.Time
}

// resyncBlocked has every job that cannot be read looked at again.
func (l *Ledger) resyncBlocked() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.jobs {
		if e.blocked != nil {
			l.effects.Sync(keyOf(e.job.Owner))
		}
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
	if e.state == Admitting || e.state == Admitted {
		l.evict(e, eviction{reason: kueue.WorkloadDeactivated, message: "its Workload was deleted"})
	}
}

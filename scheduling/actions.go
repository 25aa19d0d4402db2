package scheduling

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// doing is what an owner needs now.
type doing int

const (
	doNothing doing = iota
	doSuspend
	doResume
	// doReady: all pods of the job have been ready; its Workload says so, and
	// its failed starts count no more.
	doReady
	// doRequeue: the job has left its nodes; its Workload becomes pending again.
	doRequeue
	// doReclaim: the job has finished and left only some pods running; its
	// Workload says which are no longer charged.
	doReclaim
	// doLater: nothing now, look again after a while.
	doLater
	// doFinish: the job has finished and left; its Workload says so.
	doFinish
	// doForget: the job has left its nodes, and Kueue does the rest.
	doForget
	// doDelete: the owner is gone and its pods too; so goes its Workload.
	doDelete
)

// action is one step towards what the Ledger has decided.
type action struct {
	do       doing
	message  string
	eviction *eviction
	infos    []workload.PodSetInfo
	// live and reclaim are of doReclaim: the pods of each set that are left,
	// and what the Workload says of the others.
	live    []int32
	reclaim []kueue.ReclaimablePod
	// after is how long doLater waits.
	after time.Duration
	// first: nobody has resumed the owner since its job was admitted.
	first bool
}

// read takes in what was read of an owner and its Workload, and says what the
// owner needs. no is why the job cannot run as it stands.
func (l *Ledger) read(job *workload.Job, wl *kueue.Workload, no *reason.Reason) action {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[job.Owner.UID]
	if l.kueueDecides() {
		return l.readFollowing(e, job, wl, no)
	}
	if e == nil {
		switch {
		case job.Deleting:
			return action{}
		case job.Finish != nil && isFinished(wl):
			return action{}
		case job.Finish != nil:
			return action{do: doFinish}
		case claimsAdmission(wl):
			// Admitted by someone before us: it is charged like our own.
			e = l.takeOver(job, wl, nil)
		default:
			e = newEntry(job)
			e.requeueAt = requeueAt(wl)
			e.said = saidBefore(wl, l.clock.Now())
			l.jobs[job.Owner.UID] = e
			l.keeps(job)
		}
	}
	l.update(e, job, wl, no)
	if e.claim != nil && claimsAdmission(e.workload) {
		l.endClaim(e, "the job is admitted", false)
	}
	if e.state == Pending && claimsAdmission(e.workload) {
		e = l.takeOverLate(e)
	}
	l.enqueue(e)
	l.succeedIn(e)
	return l.want(e)
}

// update takes the newest reading into the entry.
func (l *Ledger) update(e *entry, job *workload.Job, wl *kueue.Workload, no *reason.Reason) {
	changed := e.version == 0 || (e.workload == nil && wl != nil)
	if e.newer(wl) {
		e.workload = wl
	}
	if e.holdsCapacity() {
		e.stale = !sameSize(e.job, job)
		job = l.keepAdmitted(e, job)
	} else {
		e.stale, e.wants = false, nil
		changed = changed || !sameRequest(e.job, job)
	}
	e.setJob(job)
	if job.Hints.Invalid != e.unread {
		if e.unread = job.Hints.Invalid; e.unread != "" {
			l.effects.Note(e.job, noteInvalidAnnotation, e.unread+"; it is ignored")
		}
	}
	if e.renew() {
		l.place(e)
		l.wakeAll(e)
	}
	l.endSlots(e)
	l.resize(e)
	if e.workload != nil && e.workload.Spec.Priority != nil {
		changed = changed || e.priority != *e.workload.Spec.Priority
		l.setPriority(e, *e.workload.Spec.Priority)
	}
	blocked := no
	if e.workload != nil && e.workload.Spec.Active != nil && !*e.workload.Spec.Active {
		// Also of a job that cannot be read any more: what runs is to stop.
		blocked = reason.New(reason.Deactivated, "the Workload is deactivated: spec.active is false%s", deactivatedBecause(e.workload))
	}
	changed = changed || (e.blocked == nil) != (blocked == nil) || (blocked != nil && *blocked != *e.blocked)
	if blocked == nil || e.blocked == nil || *blocked != *e.blocked {
		e.blocked = blocked
	}
	if changed {
		e.version++
		l.effects.Admit()
		l.effects.Report()
	}
	for _, podOwner := range job.PodOwners() {
		if l.podOwners[podOwner] != job.Owner.UID {
			l.ownedBy(e, podOwner)
			l.adopt(podOwner)
			l.found(job.Pods)
		}
	}
	switch {
	case job.Finish != nil || job.Deleting:
		l.end(e)
	case blocked != nil && blocked.Class == reason.Deactivated:
		l.evict(e, eviction{reason: kueue.WorkloadDeactivated, message: blocked.Message})
	}
}

// deactivatedBecause is why we have deactivated a job, as the end of a
// sentence; empty if someone else has.
func deactivatedBecause(wl *kueue.Workload) string {
	c := saysEvicted(wl)
	if c == nil || !(eviction{reason: c.Reason}).deactivates() {
		return ""
	}
	return ", because " + c.Message
}

// keepAdmitted is the reading of a job that is charged, with the pod sets that
// it was admitted with: what is charged and held stands until the job leaves.
// A job that asks for something else now is stopped, and admitted anew.
func (l *Ledger) keepAdmitted(e *entry, job *workload.Job) *workload.Job {
	e.wants = nil
	switch {
	case sameSize(e.job, job):
		if job.Elastic {
			e.wants = countsOf(job)
		}
		return keepRendered(e.job, job)
	case otherCounts(e.job, job):
		e.wants = countsOf(job)
		return keepRendered(e.job, withCounts(job, countsOf(e.job)))
	}
	if job.Gated && job.Queue == e.job.Queue && (!job.Templated || !job.Suspended || len(job.PodSets) == 0) {
		// Its pods come and go one by one.
		kept := *job
		kept.PodSets = e.job.PodSets
		return &kept
	}
	kept := *job
	kept.PodSets, kept.Queue = e.job.PodSets, e.job.Queue
	if len(job.PodSets) == 0 {
		// The pod templates are away, perhaps to be made anew.
		kept.PodOwnerUID, kept.OtherPodOwners = e.job.PodOwnerUID, e.job.OtherPodOwners
		return &kept
	}
	if job.Finish == nil && !job.Deleting {
		l.evict(e, eviction{reason: kueue.WorkloadDeactivated, message: "its queue or its pods are not those that were admitted"})
	}
	return &kept
}

// keepRendered is a reading of a job with the pods that had was charged for
// and planned with: what is added to pods may be something else by now.
func keepRendered(had, job *workload.Job) *workload.Job {
	kept := *job
	kept.PodSets = slices.Clone(job.PodSets)
	for i := range kept.PodSets {
		kept.PodSets[i].Rendered = had.PodSets[i].Rendered
	}
	return &kept
}

// sameRequest says that two readings of a job ask for the same.
func sameRequest(a, b *workload.Job) bool {
	return a.Queue == b.Queue && ptr.Equal(a.MaxExecTime, b.MaxExecTime) && equality.Semantic.DeepEqual(a.PodSets, b.PodSets)
}

// sameSize says that two readings of a job take the same quota and the same
// room; their templates may differ in what matters to neither.
func sameSize(a, b *workload.Job) bool {
	if a.Queue != b.Queue || len(a.PodSets) != len(b.PodSets) {
		return false
	}
	for i := range a.PodSets {
		x, y := &a.PodSets[i], &b.PodSets[i]
		if x.Name != y.Name || x.Count != y.Count ||
			!equality.Semantic.DeepEqual(workload.Requests(&x.Template), workload.Requests(&y.Template)) {
			return false
		}
	}
	return true
}

// want is the step that brings the owner towards the entry's state.
func (l *Ledger) want(e *entry) action {
	if l.kueueDecides() {
		return l.wantFollowing(e)
	}
	job := e.job
	switch e.state {
	case Pending, Claimed:
		if !job.Suspended && !job.Gated {
			return action{do: doSuspend, message: "it runs without being admitted"}
		}
	case Admitted:
		switch {
		case job.Gated && e.lackTolerations():
			return action{do: doResume, infos: injections(job, e.assignment, l.quota)}
		case job.Suspended && !job.Gated:
			return action{do: doResume, infos: injections(job, e.assignment, l.quota), first: !e.resumed}
		case e.unsaidReady():
			return action{do: doReady}
		}
	case Leaving:
		switch {
		case !e.ended && (!e.stopSent || !job.Suspended):
			return action{do: doSuspend, message: e.eviction.message, eviction: e.eviction}
		case e.occupied():
			return l.reclaim(e)
		case !e.ended:
			return action{do: doRequeue}
		case job.Finish != nil && !job.Deleting:
			return action{do: doFinish}
		default:
			return action{do: doDelete}
		}
	case Gone:
		if job.Finish != nil && !job.Deleting {
			return action{do: doFinish}
		}
		return action{do: doDelete}
	}
	return action{}
}

// lackTolerations says that pods of a gated job wait to be given tolerations.
func (e *entry) lackTolerations() bool {
	for _, set := range e.sets {
		if slices.ContainsFunc(set.slots, func(s *slot) bool { return !s.bound && !set.admits(s.pod) }) {
			return true
		}
	}
	return false
}

// stopped records that an owner was suspended by us. It reports whether that
// is worth an event: not a second time for a job that is leaving.
func (l *Ledger) stopped(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e == nil || e.state != Leaving {
		return true
	}
	news := !e.stopSent
	e.stopSent = true
	l.effects.Sync(keyOf(e.job.Owner))
	return news
}

// started records that the owner of an admitted job was resumed by us. It
// reports whether someone else had suspended it meanwhile.
func (l *Ledger) started(uid types.UID) (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e == nil || e.state != Admitted || e.job.Gated {
		return false
	}
	again, e.resumed = e.resumed, true
	return again
}

// ownerGone ends a job whose owner does not exist any more, or is not managed
// any more, and says what is left to do.
func (l *Ledger) ownerGone(uid types.UID) (*workload.Job, action) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e == nil {
		return nil, action{}
	}
	l.end(e)
	if e.job.Finish == nil {
		gone := *e.job
		gone.Deleting = true
		e.job = &gone
	}
	l.enqueue(e)
	return e.job, l.want(e)
}

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

// observe takes in a Workload that was written or changed by someone.
func (l *Ledger) observe(uid types.UID, wl *kueue.Workload) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e == nil || !e.newer(wl) {
		return
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
	l.evict(e, eviction{reason: kueue.WorkloadDeactivated, message: "its Workload was deleted"})
}

// isCharged says that a job holds quota and room.
func (l *Ledger) isCharged(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	return e != nil && e.holdsCapacity()
}

// syncWaiting has the jobs that wait in a namespace, or in all with an empty
// name, looked at again: their pods will be others now.
func (l *Ledger) syncWaiting(namespace string) {
	l.syncAll(func(e *entry) bool {
		return e.spot.waits && (namespace == "" || namespace == e.job.Owner.Namespace)
	})
}

// syncBlocked has every job that cannot be read looked at again.
func (l *Ledger) syncBlocked() { l.syncAll(func(e *entry) bool { return e.blocked != nil }) }

func (l *Ledger) syncAll(are func(*entry) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.jobs {
		if are(e) {
			l.effects.Sync(keyOf(e.job.Owner))
		}
	}
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

// ownedBy records a UID by which pods may name the job.
func (l *Ledger) ownedBy(e *entry, podOwner types.UID) {
	l.podOwners[podOwner] = e.job.Owner.UID
	e.podOwners = append(e.podOwners, podOwner)
}

// requeueAt is when a Workload may be tried again.
func requeueAt(wl *kueue.Workload) time.Time {
	if wl == nil || wl.Status.RequeueState == nil || wl.Status.RequeueState.RequeueAt == nil {
		return time.Time{}
	}
	return wl.Status.RequeueState.RequeueAt.Time
}

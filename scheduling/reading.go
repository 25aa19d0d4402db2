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
			e.requeueAt = instantOf(requeueAt(wl))
			if s := saidBefore(wl, l.clock.Now()); s != (said{}) {
				e.said = &s
			}
			l.jobs[job.Owner.UID] = e
			l.keeps(job)
		}
	}
	l.update(e, job, wl, no)
	if e.claim != nil && claimsAdmission(e.workload) {
		l.endClaim(e, "the job is admitted")
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
	differs := e.version == 0 || (e.workload == nil && wl != nil)
	if e.newer(wl) {
		e.workload, e.readWith = wl, wl.ResourceVersion
	}
	if e.holdsCapacity() {
		e.stale = !sameSize(e.job, job)
		job = l.keepAdmitted(e, l.inHeldQueue(e, job))
	} else {
		e.stale = false
		e.setWants(nil)
		differs = differs || !sameRequest(e.job, job)
	}
	e.setJob(job)
	if invalid := job.Hints.Invalid; invalid != ptr.Deref(e.unread, "") {
		if e.unread = nil; invalid != "" {
			e.unread = &invalid
			l.effects.Note(e.job, noteInvalidAnnotation, invalid+"; it is ignored")
		}
	}
	if e.renew() {
		l.place(e)
		l.wakeAll(e)
	}
	l.endSlots(e)
	l.resize(e)
	if e.workload != nil && e.workload.Spec.Priority != nil {
		differs = differs || e.priority != *e.workload.Spec.Priority
		l.setPriority(e, *e.workload.Spec.Priority)
	}
	blocked := no
	if e.workload != nil && e.workload.Spec.Active != nil && !*e.workload.Spec.Active {
		// Also of a job that cannot be read any more: what runs is to stop.
		blocked = reason.New(reason.Deactivated, "the Workload is deactivated: spec.active is false%s", deactivatedBecause(e.workload))
	}
	differs = differs || (e.blocked == nil) != (blocked == nil) || (blocked != nil && *blocked != *e.blocked)
	if blocked == nil || e.blocked == nil || *blocked != *e.blocked {
		e.blocked = blocked
	}
	if differs {
		e.version++
		l.effects.Admit()
		l.effects.Report()
	}
	for _, podOwner := range job.PodOwners() {
		if l.podOwners[podOwner] == job.Owner.UID {
			continue
		}
		for _, pod := range job.Pods {
			put(&e.justRead, pod.UID, pod)
		}
		l.ownedBy(e, podOwner)
		l.adopt(podOwner)
		l.found(job.Pods)
		e.justRead = nil
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
	e.setWants(nil)
	switch {
	case sameSize(e.job, job):
		if job.Elastic {
			e.setWants(countsOf(job))
		}
		return keepRendered(e.job, job)
	case job.Suspended && sameWhole(e.job, job):
		// It is not started yet, or stopped again.
		return keepRendered(e.job, inPart(job, e.job.PodSets[0].Count))
	case otherCounts(e.job, job):
		e.setWants(countsOf(job))
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
		l.evict(e, changed(e.job, job))
	}
	return &kept
}

// keepRendered is a reading of a job with the pods that had was charged for
// and planned with: what is added to pods may be something else by now.
func keepRendered(had, job *workload.Job) *workload.Job {
	kept := *job
	kept.PodSets = slices.Clone(job.PodSets)
	for i := range kept.PodSets {
		kept.PodSets[i].Rendered, kept.PodSets[i].Claimed = had.PodSets[i].Rendered, had.PodSets[i].Claimed
	}
	return &kept
}

// sameRequest says that two readings of a job ask for the same.
func sameRequest(a, b *workload.Job) bool {
	return a.Queue == b.Queue && ptr.Equal(a.MaxExecTime, b.MaxExecTime) && ptr.Equal(a.TimeLimit, b.TimeLimit) && equality.Semantic.DeepEqual(a.PodSets, b.PodSets)
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

// ownedBy records a UID by which pods may name the job.
func (l *Ledger) ownedBy(e *entry, podOwner types.UID) {
	l.podOwners[podOwner] = e.job.Owner.UID
	delete(l.free, podOwner)
	e.podOwners = append(e.podOwners, podOwner)
}

// requeueAt is when a Workload may be tried again.
func requeueAt(wl *kueue.Workload) time.Time {
	if wl == nil || wl.Status.RequeueState == nil || wl.Status.RequeueState.RequeueAt == nil {
		return time.Time{}
	}
	return wl.Status.RequeueState.RequeueAt.Time
}

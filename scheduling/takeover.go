package scheduling

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// restore takes an admitted job in, once.
func (l *Ledger) restore(job *workload.Job, wl *kueue.Workload, succeeded []*corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.jobs[job.Owner.UID]; e != nil && e.state != Pending {
		return
	}
	e := l.takeOver(job, wl, succeeded)
	if job.Finish != nil || job.Deleting {
		l.end(e)
	}
	l.effects.Sync(keyOf(job.Owner))
}

// takeOver makes an admitted job's entry as its Workload has it. Slots whose
// node is gone, or which the Workload does not name, are planned anew; those
// whose pod has succeeded are done. A job that was being stopped goes on
// leaving.
func (l *Ledger) takeOver(job *workload.Job, wl *kueue.Workload, succeeded []*corev1.Pod) *entry {
	if !l.kueueDecides() || len(job.PodSets) == 0 {
		job = asAdmitted(job, wl)
	}
	e := newEntry(job)
	e.workload, e.version = wl, 1
	if wl.Spec.Priority != nil {
		e.priority = *wl.Spec.Priority
	}
	before := l.jobs[job.Owner.UID]
	l.jobs[job.Owner.UID] = e
	l.keeps(job)
	if before != nil {
		// It was read as a waiting one.
		e.podOwners = before.podOwners
		e.unplaced = maps.Clone(before.unplaced)
		l.enqueue(before)
	}
	e.assignment = assignmentOf(job, wl.Status.Admission)
	l.quota.Charge(job.Owner.UID, e.assignment.ClusterQueue, e.assignment.Usage, e.holder(reservedAt(wl, l.clock.Now())))
	for i := range job.PodSets {
		nodes := nodesOf(wl.Status.Admission, job.PodSets[i].Name)
		e.sets = append(e.sets, newSet(job.PodSets[i], nodes))
	}
	if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted); c != nil {
		e.close = closenessIn(c.Message)
	}
	l.restoreLive(e)
	if l.kueueDecides() {
		l.fixDomains(e, wl.Status.Admission)
	} else {
		l.setTolerations(e)
	}
	for _, pod := range succeeded {
		e.succeed(pod)
	}
	e.readyAgain()
	e.move(evRestored)
	e.resumed = !job.Suspended
	for _, podOwner := range job.PodOwners() {
		l.ownedBy(e, podOwner)
		l.adopt(podOwner)
		for _, pod := range l.early[podOwner] {
			l.effects.Settle(job.Owner.UID, pod)
		}
	}
	l.place(e)
	l.endSlots(e)
	classes := prototypes(e, e.assignment, l.quota)
	l.sees(wholeSets(job, classes))
	for _, c := range classes {
		for _, s := range e.slotsOf(c) {
			if s.node != "" && !s.done && !s.occupied() {
				l.holdIfRoom(s, phantom(c.pod, s.index, s.node))
			}
		}
	}
	if c := saysEvicted(wl); c != nil {
		l.evict(e, eviction{reason: c.Reason, message: c.Message})
	}
	l.enqueue(e)
	l.touch()
	return e
}

// takeOverLate takes in an admission that this process has not made, of a job
// that waited until now: a scheduler that leads no more had sent it, and it
// came through late. It stands unless its quota or its room was given away
// meanwhile.
func (l *Ledger) takeOverLate(waiting *entry) *entry {
	admitted := waiting.workload.Status.Admission
	if part := admittedPart(waiting.job, admitted); part != nil {
		waiting.setJob(part)
	}
	job := waiting.job
	_, no := l.assignIn(waiting, assignmentOf(job, admitted))
	fits := no == nil && admittedWith(job, admitted)
	e := l.takeOver(job, waiting.workload, nil)
	for _, set := range e.sets {
		fits = fits && !slices.ContainsFunc(set.slots, (*slot).lost)
	}
	if !fits {
		l.evict(e, eviction{
			reason:  evictedTooLate,
			message: "it was admitted by a scheduler that leads no more, onto quota or nodes that were given to others since",
		})
	}
	return e
}

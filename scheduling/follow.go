package scheduling

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// kueueDecides says that Kueue's manager has the say about quota: by the
// configuration, or because one is alive. Nothing is admitted, suspended,
// resumed or written to a Workload then; what Kueue admits is planned as a whole,
// held and steered. There is one exception: a job that idles for longer than its queue
// lets it is suspended by way of Kueue, by spec.active of its Workload (suspendFollowed).
func (l *Ledger) kueueDecides() bool { return l.follows || l.rival != nil }

// followsKueue is kueueDecides for those who do not have the lock.
func (l *Ledger) followsKueue() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kueueDecides()
}

// follow says that Kueue decides, whoever is alive. It is called before the
// Ledger is used.
func (l *Ledger) follow() { l.follows = true }

// started by Kueue are the jobs that it has admitted, whose eviction it has not
// begun, and whose owner it has resumed: then pods and templates are final.
func startedByKueue(job *workload.Job, wl *kueue.Workload) bool {
	return claimsAdmission(wl) && saysEvicted(wl) == nil && (job.Gated || !job.Suspended)
}

// readFollowing is read while Kueue decides.
func (l *Ledger) readFollowing(e *entry, job *workload.Job, wl *kueue.Workload, no *reason.Reason) action {
	runs := startedByKueue(job, wl) && job.Finish == nil && !job.Deleting
	switch {
	case e == nil && (job.Deleting || job.Finish != nil):
		return action{}
	case e == nil:
		e = newEntry(job)
		l.jobs[job.Owner.UID] = e
	case e.state == Admitted && runs && !job.Gated && len(job.PodSets) > 0 && !sameSize(e.job, job):
		// Kueue may start a job with fewer pods, and change that while it runs.
		l.dropHolds(e)
		l.unseat(e)
		e = l.takeOver(job, wl, nil)
	}
	l.update(e, job, wl, no)
	switch {
	case e.state == Pending && runs && no == nil && len(job.PodSets) > 0:
		e = l.takeOver(job, e.workload, nil)
	case (e.state == Admitting || e.state == Admitted) && !startedByKueue(job, e.workload):
		l.evict(e, eviction{reason: kueue.WorkloadEvictedByPreemption, message: "Kueue has stopped it"})
	}
	l.enqueue(e)
	return l.wantFollowing(e)
}

// wantFollowing is the step that is left to do where Kueue does the others: to
// forget the quota and the room of a job that has left.
func (l *Ledger) wantFollowing(e *entry) action {
	if e.state == Gone || (e.state == Leaving && !e.occupied()) {
		return action{do: doForget}
	}
	return action{}
}

// forgetLeft ends the charge of a job that Kueue has stopped. One that comes
// back is looked at again, because Kueue may have started it meanwhile.
func (j *Jobs) forgetLeft(job *workload.Job) {
	j.ledger.left(job.Owner.UID)
	if j.ledger.knows(job.Owner.UID) {
		j.effects.Sync(keyOf(job.Owner))
	}
}

// kueuesWorkload is the Workload that Kueue has made for a job, nil if it has
// made none yet.
func (j *Jobs) kueuesWorkload(ctx context.Context, job *workload.Job) (*kueue.Workload, error) {
	wl := &kueue.Workload{}
	key := client.ObjectKey{Namespace: job.Owner.Namespace, Name: job.WorkloadName()}
	err := j.reader.Get(ctx, key, wl)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading Workload %s: %w", key, err)
	}
	return wl, nil
}

// placeFollowing does for a job that Kueue has admitted what writeAdmission does
// for others: the nodes of its slots stand, without a Workload that says so.
func (j *Jobs) placeFollowing(ctx context.Context, a admission) {
	if a.state == Admitting {
		// It was planned before Kueue came; Kueue may have given the quota away.
		j.ledger.written(a.job.Owner.UID, a.replanned, nil, refused, errKueueDecides)
		return
	}
	klog.FromContext(ctx).V(2).Info("Places of a job stand", "workload", klog.KObj(a.workload), "nodes", a.message)
	j.ledger.written(a.job.Owner.UID, a.replanned, nil, wrote, nil)
}

var errKueueDecides = fmt.Errorf("a Kueue manager decides now")

// placelessPods are the pods of an admitted job that have come and have no place:
// an autoscaler is told of all of them at once.
func (e *entry) placelessPods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, set := range e.sets {
		for _, s := range set.slots {
			if s.pod != nil && !s.occupied() && s.pod.DeletionTimestamp == nil && len(s.pod.Spec.SchedulingGates) == 0 {
				out = append(out, s.pod)
			}
		}
	}
	return out
}

package scheduling

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// A job that runs stays in the queue in which it holds quota, whatever its label
// says by now: nobody loses a run by moving a label, or by taking it away. What the
// label says counts when the job has been stopped, by whomever, and at once for one
// whose owner is suspended.

// inHeldQueue is the reading of a job that is charged, in the queue in which it is if
// it runs. That its label says something else is told once.
func (l *Ledger) inHeldQueue(e *entry, job *workload.Job) *workload.Job {
	over := job.Finish != nil || job.Deleting
	if job.Queue == e.job.Queue || (job.Suspended && !over) {
		e.ignored = nil
		return job
	}
	if !over && e.state != Leaving && (e.ignored == nil || *e.ignored != job.Queue) {
		queue := job.Queue
		e.ignored = &queue
		l.effects.Note(e.job, noteQueueChangeIgnored, fmt.Sprintf("%s; the job runs on in %s, where it holds quota, until it is stopped%s",
			namesQueue(job), inQueue(e.job.Queue), whenStopped(job)))
	}
	held := *job
	held.Queue = e.job.Queue
	return &held
}

// namesQueue says which queue a job names; inQueue is a LocalQueue's name, which may
// be empty.
func namesQueue(job *workload.Job) string {
	switch {
	case job.Queue != "":
		return fmt.Sprintf("the label %s names %s now", workload.QueueLabel, inQueue(job.Queue))
	case len(job.Pods) > 1:
		return "its pods do not name one queue any more"
	}
	return "the label " + workload.QueueLabel + " was taken away"
}

func inQueue(queue string) string {
	if queue == "" {
		return "no queue"
	}
	return "queue " + queue
}

// whenStopped is what somebody can do who wants the job in the queue that it names,
// or what comes of one that names none.
func whenStopped(job *workload.Job) string {
	deactivate := "set spec.active of its Workload to false, and to true again"
	switch {
	case job.Gated:
		return ": " + deactivate
	case job.Queue == "":
		return "; then it stays suspended until it names a queue"
	}
	return ": suspend it, or " + deactivate
}

// heldQueue is the queue in which a job holds quota that has not ended, empty for
// another. One that is to stop is stopped without its label too.
func (l *Ledger) heldQueue(uid types.UID) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.jobs[uid]; e != nil && e.holdsCapacity() && !e.ended && !l.kueueDecides() {
		return e.job.Queue
	}
	return ""
}

// readHeld reads an owner as Kind.Read does. One that runs in a queue and has lost
// its label is read as one that is managed, and names no queue.
func (j *Jobs) readHeld(ctx context.Context, kind workload.Kind, obj client.Object) (*workload.Job, bool, *reason.Reason, error) {
	job, managed, no, err := kind.Read(ctx, j.reader, obj)
	if err != nil || managed {
		return job, managed, no, err
	}
	queue := j.ledger.heldQueue(obj.GetUID())
	if queue == "" || obj.GetLabels()[workload.QueueLabel] != "" {
		return nil, false, nil, nil
	}
	job, managed, no, err = kind.Read(ctx, j.reader, workload.InQueue(obj, queue))
	if err != nil || !managed || (job.Suspended && job.Finish == nil) {
		return nil, false, nil, err
	}
	job.Queue = ""
	return job, true, no, nil
}

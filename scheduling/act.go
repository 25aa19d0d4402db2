package scheduling

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// act does what the Ledger wants of an owner.
func (j *Jobs) act(ctx context.Context, kind workload.Kind, obj client.Object, job *workload.Job, want action) error {
	logger := klog.FromContext(ctx)
	switch want.do {
	case doNothing:
		return nil
	case doSuspend:
		logger.V(2).Info("Suspending a job", "job", klog.KRef(job.Owner.Namespace, job.Owner.Name), "why", want.message)
		if want.eviction != nil {
			if err := j.writeEviction(ctx, job.Owner.UID, *want.eviction); err != nil {
				return err
			}
		}
		if err := j.suspend(ctx, kind, obj); err != nil {
			if isRefusal(err) {
				j.sayStopRefused(job, want.message, err)
			}
			return err
		}
		if j.ledger.stopped(job.Owner.UID) {
			j.note(job, stopWord(job), want.message)
		}
		return nil
	case doResume:
		logger.V(2).Info("Resuming a job", "job", klog.KRef(job.Owner.Namespace, job.Owner.Name))
		var err error
		if want.first {
			// What was just read is suspended. Should it be older than the API, the
			// write changes nothing, or is refused and tried again.
			err = kind.Resume(ctx, j.client, obj, want.infos)
		} else {
			err = j.resume(ctx, kind, obj, want.infos)
		}
		var no *reason.Reason
		if errors.As(err, &no) && no.Class == reason.Misconfigured {
			// Trying again would not help: it is tried later, or changed.
			j.ledger.failToStart(job.Owner.UID, no.Message)
			return nil
		}
		if isRefusal(err) {
			if err := j.sayStartRefused(ctx, job, err); err != nil {
				return err
			}
		}
		if errors.Is(err, errRunsAlready) {
			return nil
		}
		if err != nil {
			return err
		}
		again, refused := j.ledger.started(job.Owner.UID)
		if again {
			j.note(job, "Resumed", "it was suspended while it is admitted, and is resumed; to stop it, set spec.active of its Workload to false")
		}
		if refused {
			return j.change(ctx, job.Owner.UID, j.sayWaiting)
		}
		return nil
	case doUngate:
		for _, pod := range want.pods {
			if err := workload.Ungate(ctx, j.client, pod); err != nil {
				return err
			}
		}
		return nil
	case doReady:
		return j.change(ctx, job.Owner.UID, func(wl *kueue.Workload) {
			wl.Status.RequeueState = nil
			j.sayReady(wl)
		})
	case doRecovery:
		return j.change(ctx, job.Owner.UID, func(wl *kueue.Workload) { j.sayRecovery(wl, want.message) })
	case doSayUse:
		err := j.change(ctx, job.Owner.UID, func(wl *kueue.Workload) { j.sayUse(wl, want.use, want.message) })
		switch {
		case err != nil:
			return err
		case want.use == gpusIdle:
			j.note(job, noteIdle, want.message)
		case want.use == gpusStalled:
			j.note(job, noteStalled, want.message)
		}
		return nil
	case doLater:
		j.effects.jobs.AddAfter(keyOf(job.Owner), want.after)
		return nil
	case doReclaim:
		err := j.change(ctx, job.Owner.UID, func(wl *kueue.Workload) { wl.Status.ReclaimablePods = want.reclaim })
		if err != nil {
			return err
		}
		j.ledger.reclaimed(job.Owner.UID, want.live)
		return nil
	case doRequeue:
		err := j.restoreOwner(ctx, kind, obj)
		if errors.Is(err, workload.ErrStillActive) {
			// Its pods have gone, and its controllers will see that in a moment.
			j.ledger.stillActive(job.Owner.UID, err.Error())
			j.effects.jobs.AddAfter(keyOf(job.Owner), stillSoon)
			return nil
		}
		if err != nil {
			return err
		}
		return j.writeRequeue(ctx, job)
	case doForget:
		j.forgetLeft(job)
		return nil
	case doFinish:
		return j.writeFinish(ctx, job)
	case doDelete:
		return j.deleteWorkload(ctx, job)
	}
	return errors.New("unknown action")
}

// stopWord is the reason of the event of a job that is stopped: pods that no
// job owns cannot be suspended.
func stopWord(job *workload.Job) string {
	if job.Gated {
		return "Evicted"
	}
	return "Suspended"
}

// suspend suspends the owner as the API has it now: what the cache has may be
// from before its resumption.
func (j *Jobs) suspend(ctx context.Context, kind workload.Kind, obj client.Object) error {
	current, err := j.current(ctx, kind, client.ObjectKeyFromObject(obj))
	if isGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s %s to suspend it: %w", kind.GroupVersionKind().Kind, client.ObjectKeyFromObject(obj), err)
	}
	if current.GetUID() != obj.GetUID() {
		return nil
	}
	return client.IgnoreNotFound(kind.Suspend(ctx, j.client, current))
}

// stillSoon is how long a job that has left is given to be still.
const stillSoon = 200 * time.Millisecond

// restoreOwner takes out of a job that has left what was injected for its last
// admission, where that would stay. obj is nil for an owner that is gone.
func (j *Jobs) restoreOwner(ctx context.Context, kind workload.Kind, obj client.Object) error {
	r, ok := kind.(workload.Restorer)
	if !ok || obj == nil {
		return nil
	}
	var admitted []kueue.PodSet
	if wl := j.ledger.workloadOf(obj.GetUID()); wl != nil {
		admitted = wl.Spec.PodSets
	}
	return r.Restore(ctx, j.client, obj, admitted)
}

// errRunsAlready says that an owner was resumed before; what the cache has is
// older.
var errRunsAlready = errors.New("it runs already")

// resume resumes the owner as the API has it now.
func (j *Jobs) resume(ctx context.Context, kind workload.Kind, obj client.Object, infos []workload.PodSetInfo) error {
	current, err := j.current(ctx, kind, client.ObjectKeyFromObject(obj))
	if err != nil {
		return fmt.Errorf("reading %s %s to resume it: %w", kind.GroupVersionKind().Kind, client.ObjectKeyFromObject(obj), err)
	}
	if current.GetUID() != obj.GetUID() {
		return errRunsAlready
	}
	job, managed, _, err := kind.Read(ctx, j.reader, current)
	switch {
	case err != nil:
		return fmt.Errorf("reading the pod sets of %s %s to resume it: %w", kind.GroupVersionKind().Kind, client.ObjectKeyFromObject(obj), err)
	case !managed || (!job.Suspended && !job.Gated):
		return errRunsAlready
	}
	return kind.Resume(ctx, j.client, current, infos)
}

package scheduling

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// ensureWorkload makes the Workload that stands for job, and keeps its spec
// true to the job as long as the job is not admitted.
func (j *Jobs) ensureWorkload(ctx context.Context, job *workload.Job) (*kueue.Workload, *reason.Reason, error) {
	priority, ref, no, err := workload.Priority(ctx, j.reader, job)
	if err != nil || no != nil {
		return nil, no, err
	}
	if _, no := workload.MaxExecutionSeconds(job); no != nil {
		return nil, no, nil
	}
	want := workload.NewWorkload(job, priority, ref)
	have, err := j.newestWorkload(ctx, job.Owner.UID, client.ObjectKeyFromObject(want))
	if err != nil {
		return nil, nil, fmt.Errorf("reading Workload %s: %w", klog.KObj(want), err)
	}
	if have == nil {
		if job.Finish != nil {
			return nil, nil, nil
		}
		err := j.client.Create(ctx, want)
		switch {
		case err == nil:
			return want, nil, nil
		case !apierrors.IsAlreadyExists(err):
			return nil, nil, fmt.Errorf("creating Workload %s: %w", klog.KObj(want), err)
		}
		// The cache has not seen it yet: read what is there.
		have = &kueue.Workload{}
		if err := j.client.Get(ctx, client.ObjectKeyFromObject(want), have); err != nil {
			return nil, nil, fmt.Errorf("reading Workload %s: %w", klog.KObj(want), err)
		}
	}
	if isFinished(have) && job.Finish == nil {
		// It was of an earlier group of the same name.
		if err := j.client.Delete(ctx, have, client.Preconditions{UID: &have.UID}); client.IgnoreNotFound(err) != nil {
			return nil, nil, fmt.Errorf("deleting Workload %s of an earlier group: %w", klog.KObj(want), err)
		}
		if err := j.client.Create(ctx, want); err != nil {
			return nil, nil, fmt.Errorf("creating Workload %s: %w", klog.KObj(want), err)
		}
		return want, nil, nil
	}
	changed := have.DeepCopy()
	owners := workload.AddOwners(changed, job)
	admitted := isAdmitted(have)
	resized := admitted && job.Elastic && !job.Suspended && sameSets(have, want) && otherSizes(have, want)
	reclassed := admitted && otherClass(have, want)
	if !owners && !resized && !reclassed && (admitted || matches(have, want, job)) {
		return have, nil, nil
	}
	if reclassed {
		changed.Spec.Priority, changed.Spec.PriorityClassRef = want.Spec.Priority, want.Spec.PriorityClassRef
	}
	if resized {
		// What it has is in the status. The templates stay: those of a job that
		// Kueue started are others now.
		for i := range changed.Spec.PodSets {
			changed.Spec.PodSets[i].Count = want.Spec.PodSets[i].Count
		}
	}
	if admitted {
		// The rest of what is admitted stays as it is.
		if err := j.client.Update(ctx, changed); err != nil {
			return nil, nil, fmt.Errorf("updating the admitted Workload %s: %w", klog.KObj(want), err)
		}
		return changed, nil, nil
	}
	changed.Spec.PodSets, changed.Spec.QueueName = want.Spec.PodSets, want.Spec.QueueName
	changed.Spec.Priority, changed.Spec.PriorityClassRef = want.Spec.Priority, want.Spec.PriorityClassRef
	changed.Spec.MaximumExecutionTimeSeconds = want.Spec.MaximumExecutionTimeSeconds
	if err := j.client.Update(ctx, changed); err != nil {
		return nil, nil, fmt.Errorf("updating Workload %s to its job: %w", klog.KObj(want), err)
	}
	return changed, nil, nil
}

// newestWorkload is the newest of what the Ledger and the cache know of a
// Workload; nil if there is none. Neither is enough: what we wrote is not in the
// cache at once, and of what happens to the Workload while its job is read for
// the first time the Ledger is told before it knows the job.
func (j *Jobs) newestWorkload(ctx context.Context, uid types.UID, key client.ObjectKey) (*kueue.Workload, error) {
	known, cached := j.ledger.workloadOf(uid), &kueue.Workload{}
	err := j.reader.Get(ctx, key, cached)
	switch {
	case err == nil && (known == nil || !olderVersion(cached.ResourceVersion, known.ResourceVersion)):
		return cached, nil
	case err == nil:
		return known, nil
	case !apierrors.IsNotFound(err):
		return nil, err
	case known == nil:
		return nil, nil
	}
	// It is not in the cache yet, or not any more.
	if err := j.client.Get(ctx, key, cached); err == nil {
		return cached, nil
	} else if !apierrors.IsNotFound(err) {
		return nil, err
	}
	j.ledger.workloadDeleted(uid, known.UID)
	return nil, nil
}

// sameSets says that two versions of a Workload have the same pod sets, except
// for the numbers of pods.
func sameSets(a, b *kueue.Workload) bool {
	return slices.EqualFunc(a.Spec.PodSets, b.Spec.PodSets, func(x, y kueue.PodSet) bool { return x.Name == y.Name })
}

// otherSizes says that two versions of a Workload with the same pod sets have
// other numbers of pods.
func otherSizes(a, b *kueue.Workload) bool {
	return !slices.EqualFunc(a.Spec.PodSets, b.Spec.PodSets, func(x, y kueue.PodSet) bool { return x.Count == y.Count })
}

// otherClass says that a job names another WorkloadPriorityClass than its Workload. An
// admitted Workload can change from one to another, as under Kueue, and not have its
// first one, or none any more: these count when the job is admitted anew.
func otherClass(have, want *kueue.Workload) bool {
	x, y := have.Spec.PriorityClassRef, want.Spec.PriorityClassRef
	return x != nil && y != nil && x.Kind == kueue.WorkloadPriorityClassKind && y.Kind == x.Kind && x.Name != y.Name
}

// matches says that the spec of a Workload is what its job asks for.
func matches(have, want *kueue.Workload, job *workload.Job) bool {
	return workload.SamePodSets(have, job) && have.Spec.QueueName == want.Spec.QueueName &&
		equality.Semantic.DeepEqual(have.Spec.Priority, want.Spec.Priority) &&
		equality.Semantic.DeepEqual(have.Spec.MaximumExecutionTimeSeconds, want.Spec.MaximumExecutionTimeSeconds) &&
		equality.Semantic.DeepEqual(have.Spec.PriorityClassRef, want.Spec.PriorityClassRef)
}

package scheduling

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// restore reads from the API, not from a cache that may be behind, which jobs
// are admitted, and takes their charges and slots into the Ledger. It runs
// once, before anything is admitted.
func (j *Jobs) restore(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	list := &kueue.WorkloadList{}
	if err := j.client.List(ctx, list); err != nil {
		return fmt.Errorf("listing Workloads: %w", err)
	}
	j.ledger.restoring()
	succeeded, err := j.succeededPods(ctx)
	if err != nil {
		return err
	}
	// Where two claim the same room, the one that was admitted first has it.
	slices.SortStableFunc(list.Items, func(a, b kueue.Workload) int { return admittedAt(&a).Compare(admittedAt(&b)) })
	jobs, err := j.readOwners(ctx, list.Items)
	if err != nil {
		return err
	}
	restored := 0
	for i, job := range jobs {
		if job != nil && (!j.ledger.followsKueue() || startedByKueue(job, &list.Items[i])) {
			var over []*corev1.Pod
			for _, podOwner := range job.PodOwners() {
				over = append(over, succeeded[podOwner]...)
			}
			j.ledger.restore(job, &list.Items[i], over)
			restored++
		}
	}
	logger.Info("Admitted jobs taken over from the API", "jobs", restored)
	return nil
}

// readOwners reads and renders the admitted jobs that own the Workloads; nil
// where there is none. Many are read at a time, because pods wait for it.
func (j *Jobs) readOwners(ctx context.Context, list []kueue.Workload) ([]*workload.Job, error) {
	out := make([]*workload.Job, len(list))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(restoreAtOnce)
	for i := range list {
		wl := &list[i]
		owner, ok := workload.OwnerOf(wl)
		if !ok || !claimsAdmission(wl) || j.kinds[owner.GroupKind()] == nil {
			continue
		}
		group.Go(func() error {
			job, err := j.readOwner(ctx, wl, owner)
			if err != nil || job == nil {
				return err
			}
			job = asAdmitted(job, wl)
			// It is admitted, so a reason against it comes too late.
			if _, err := j.renderer.Render(ctx, job); err != nil {
				return err
			}
			out[i] = job
			return nil
		})
	}
	return out, group.Wait()
}

// restoreAtOnce is how many jobs are read from the API at a time.
const restoreAtOnce = 16

// readOwner reads the owner of a Workload from the API; nil if it is not
// managed. An owner that lost its queue label after it was admitted is read as
// if it had it, and one that is gone as one that is being deleted: both are
// charged until their pods are gone.
func (j *Jobs) readOwner(ctx context.Context, wl *kueue.Workload, owner workload.Owner) (*workload.Job, error) {
	kind := j.kinds[owner.GroupKind()]
	obj, err := j.current(ctx, kind, owner.NamespacedName)
	if err != nil {
		if !isGone(err) {
			return nil, fmt.Errorf("reading %s %s: %w", owner.Kind, owner.NamespacedName, err)
		}
		return goneOwner(wl, owner), nil
	}
	if obj.GetUID() != owner.UID {
		return goneOwner(wl, owner), nil
	}
	if obj.GetLabels()[workload.QueueLabel] == "" {
		obj = workload.InQueue(obj, string(wl.Spec.QueueName))
	}
	job, managed, _, err := kind.Read(ctx, j.client, obj)
	if err != nil {
		return nil, fmt.Errorf("reading the pod sets of %s %s: %w", owner.Kind, owner.NamespacedName, err)
	}
	if !managed {
		return nil, nil
	}
	job.Hints = hintsOf(job, obj)
	return job, nil
}

// goneOwner is what a Workload knows of an owner that is gone. The pods of a
// TrainJob carry the UID of a JobSet that is gone too, and are not found.
func goneOwner(wl *kueue.Workload, owner workload.Owner) *workload.Job {
	return &workload.Job{
		Owner: owner,
		Queue: string(wl.Spec.QueueName), PodOwnerUID: owner.UID, Created: wl.CreationTimestamp.Time,
		Suspended: true, Deleting: true, PodSets: podSetsOf(wl),
	}
}

// succeededPods are the pods of JobSets, training jobs and groups that have succeeded, by the
// UID of their owner: the scheduler's own informer does not show them, and no
// owner says which pods are over, as a batch Job does.
func (j *Jobs) succeededPods(ctx context.Context) (map[types.UID][]*corev1.Pod, error) {
	out := map[types.UID][]*corev1.Pod{}
	listed := map[types.UID]struct{}{}
	var wanted [][]client.ListOption
	for _, label := range []string{jobset.JobSetUIDKey, workload.TrainingJobLabel, workload.KueueGroupLabel, workload.PodGroupLabel, workload.QueueLabel} {
		wanted = append(wanted, []client.ListOption{client.HasLabels{label}})
	}
	if j.isServed(ctx, workload.NativePodGroupGVK) {
		// Its pods have no label in common.
		wanted = [][]client.ListOption{nil}
	}
	for _, of := range wanted {
		list := &corev1.PodList{}
		err := j.client.List(ctx, list, append(of, client.MatchingFields{"status.phase": string(corev1.PodSucceeded)})...)
		if err != nil {
			return nil, fmt.Errorf("listing pods that have succeeded: %w", err)
		}
		for i := range list.Items {
			pod := &list.Items[i]
			if _, before := listed[pod.UID]; before {
				continue
			}
			listed[pod.UID] = struct{}{}
			if owner, _, ok := workload.SlotOf(pod); ok {
				out[owner] = append(out[owner], pod)
			}
		}
	}
	return out, nil
}

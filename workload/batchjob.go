package workload

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

// batchJobKind is a Job of Kubernetes itself: one that somebody created, or a
// CronJob. The Jobs of a JobSet belong to the JobSet, and an MPIJob's launcher
// to the MPIJob.
type batchJobKind struct{ Options }

var _ Kind = batchJobKind{}

func (batchJobKind) GroupVersionKind() schema.GroupVersionKind {
	return batchv1.SchemeGroupVersion.WithKind("Job")
}

func (batchJobKind) New() client.Object { return &batchv1.Job{} }

// Read implements Kind.
func (k batchJobKind) Read(_ context.Context, _ client.Reader, obj client.Object) (*Job, bool, *reason.Reason, error) {
	b, err := asBatchJob(obj)
	if err != nil {
		return nil, false, nil, err
	}
	if b.Labels[QueueLabel] == "" || foreignManager(b.Spec.ManagedBy, batchv1.JobControllerName) || ownedByParent(b) {
		return nil, false, nil, nil
	}
	job := newJob(k.GroupVersionKind(), b)
	job.PodOwnerUID = b.UID
	job.Suspended = ptr.Deref(b.Spec.Suspend, false)
	job.Finish = batchJobFinish(b)
	set, no := batchPodSet(b)
	if no == nil {
		job.PodSets = []PodSet{*set}
		job.PodPriorityClass = podPriorityClass(job.PodSets)
		// Its controller follows a change of parallelism while the Job runs; where
		// Muster itself may change that, it is not the author's wish.
		job.Elastic = set.MinCount == 0 && set.Whole == 0
		no = placedAlready(job.PodSets)
	}
	if no == nil {
		// The API server has written its default into a template that names no
		// scheduler.
		no = foreignScheduler(job.PodSets, k.SchedulerNames, corev1.DefaultSchedulerName, "Job "+b.Name, "create the Job anew")
	}
	if job.over() {
		no = nil
	}
	return job, true, no, nil
}

// batchPodSet is the pod set of a Job, with the author's template. One that is
// suspended is read as it was before it ran in part.
func batchPodSet(b *batchv1.Job) (*PodSet, *reason.Reason) {
	if ptr.Deref(b.Spec.Suspend, false) {
		b = wholeJob(b)
	}
	template := b.Spec.Template.DeepCopy()
	if _, err := restore(template); err != nil {
		return nil, reason.New(reason.Misconfigured, "pod template of the Job: %v", err)
	}
	count := podsAtOnce(&b.Spec)
	// One that runs and asks for none is paused by its author.
	if count < 0 || (count == 0 && ptr.Deref(b.Spec.Suspend, false)) {
		return nil, reason.New(reason.Misconfigured, "the Job asks for %d pods", count)
	}
	topology, no := topologyOf("the Job's pod template", template.Annotations,
		kueue.PodSetTopologyRequest{PodIndexLabel: new(batchv1.JobCompletionIndexAnnotation)})
	if no != nil {
		return nil, no
	}
	set := &PodSet{
		Name:           MainPodSet,
		Count:          count,
		Completions:    max(count, ptr.Deref(b.Spec.Completions, 0)),
		PodsPerReplica: max(count, 1),
		Template:       *template,
		Deadline:       b.Spec.ActiveDeadlineSeconds,
		Topology:       topology,
	}
	set.Ended = batchEnded(b, set)
	return set, set.partly(b)
}

// batchEnded reads from the status of a Job how many of its pods are over for
// good. The pods themselves may be deleted long before the Job is.
func batchEnded(b *batchv1.Job, set *PodSet) *Ended {
	if ptr.Deref(b.Spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion {
		most := int(set.Completions)
		indices := indexList(b.Status.CompletedIndexes, most)
		indices = append(indices, indexList(ptr.Deref(b.Status.FailedIndexes, ""), most)...)
		slices.Sort(indices)
		ended := &Ended{Indices: slices.Compact(indices)}
		ended.Count = int32(len(ended.Indices))
		if set.Completions > set.Count {
			ended.Indices = nil
		}
		return ended
	}
	ended := b.Status.Succeeded
	if b.Spec.Completions == nil && ended > 0 {
		// The first success says that the work is done: the pods that are left
		// end by themselves, and none is made anew.
		ended = max(ended, set.Count-b.Status.Active-ptr.Deref(b.Status.Terminating, 0))
	}
	return &Ended{Count: min(ended, set.Completions)}
}

// batchJobFinish reads how a Job ended. SuccessCriteriaMet and FailureTarget
// only say how it will end, when its last pods have gone.
func batchJobFinish(b *batchv1.Job) *Finish {
	conditions := make([]metav1.Condition, 0, len(b.Status.Conditions))
	for _, c := range b.Status.Conditions {
		conditions = append(conditions, metav1.Condition{
			Type: string(c.Type), Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
		})
	}
	return finish(conditions, string(batchv1.JobComplete), string(batchv1.JobFailed))
}

// Suspend implements Kind. What Resume injected stays in the template until the
// next Resume: it may be changed only once the Job is suspended and its last
// pod has ended, and Read does not see it. A Job that ran in part asks for all of
// its pods again.
func (batchJobKind) Suspend(ctx context.Context, c client.Client, obj client.Object) error {
	b, err := asBatchJob(obj)
	if err != nil {
		return err
	}
	operations, err := sizeOperations(b, 0)
	switch {
	case err != nil:
	case len(operations) > 0:
		// Not over what somebody has asked for meanwhile.
		operations = append(operations, operation{Op: "add", Path: "/metadata/resourceVersion", Value: b.ResourceVersion},
			operation{Op: "add", Path: "/spec/suspend", Value: true})
		err = send(ctx, c, b.DeepCopy(), operations)
	case !ptr.Deref(b.Spec.Suspend, false):
		err = suspend(ctx, c, b.DeepCopy())
	}
	if err != nil {
		return fmt.Errorf("suspending Job %s/%s: %w", b.Namespace, b.Name, err)
	}
	return nil
}

// Resume implements Kind. The API server takes a change of the template in the
// very request that ends the suspension, but not while pods of an earlier run
// are still active; the error is then worth another try.
func (batchJobKind) Resume(ctx context.Context, c client.Client, obj client.Object, infos []PodSetInfo) error {
	b, err := asBatchJob(obj)
	if err != nil {
		return err
	}
	if err := resumeBatchJob(ctx, c, b, infos); err != nil {
		return fmt.Errorf("resuming Job %s/%s: %w", b.Namespace, b.Name, err)
	}
	return nil
}

func resumeBatchJob(ctx context.Context, c client.Client, b *batchv1.Job, infos []PodSetInfo) error {
	template, err := injected(&b.Spec.Template, infos)
	if err != nil {
		return err
	}
	var pods int32
	if len(infos) > 0 {
		pods = infos[0].Count
	}
	size, err := sizeOperations(b, pods)
	if err != nil {
		return err
	}
	if !ptr.Deref(b.Spec.Suspend, false) {
		if !equality.Semantic.DeepEqual(&b.Spec.Template, template) || len(size) > 0 {
			return ErrNotSuspended
		}
		return nil
	}
	return changeTemplate(ctx, c, b, template, false, size...)
}

// changeTemplate gives a suspended Job another template, and in the same request
// ends its suspension, unless it is to stay suspended. Other changes go with it.
func changeTemplate(ctx context.Context, c client.Client, b *batchv1.Job, template *corev1.PodTemplateSpec, suspended bool, others ...operation) error {
	err := writeTemplate(ctx, c, b, template, suspended, others)
	if !apierrors.IsInvalid(err) || b.Status.StartTime == nil || b.Status.Active > 0 {
		return err
	}
	// Before Kubernetes 1.36 the template of a Job that has run before may
	// change only after its start time was taken away, which its controller
	// sets again. A crash between the two leaves a suspended Job.
	b = b.DeepCopy()
	never := b.DeepCopy()
	never.Status.StartTime = nil
	if err := c.Status().Patch(ctx, never, client.MergeFromWithOptions(b, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("taking away its start time: %w", err)
	}
	return writeTemplate(ctx, c, never, template, suspended, others)
}

func writeTemplate(ctx context.Context, c client.Client, b *batchv1.Job, template *corev1.PodTemplateSpec, suspended bool, others []operation) error {
	operations := append(templateOperations("/spec/template", &b.Spec.Template, template), others...)
	if len(operations) > 0 {
		// The values replace all that is there in this version, and no other.
		operations = append(operations, operation{Op: "add", Path: "/metadata/resourceVersion", Value: b.ResourceVersion})
	}
	if !suspended {
		operations = append(operations, operation{Op: "add", Path: "/spec/suspend", Value: false})
	}
	return send(ctx, c, b.DeepCopy(), operations)
}

// injected is a Job's template with infos in place of an earlier injection.
func injected(template *corev1.PodTemplateSpec, infos []PodSetInfo) (*corev1.PodTemplateSpec, error) {
	template = template.DeepCopy()
	if _, err := restore(template); err != nil {
		return nil, reason.New(reason.Misconfigured, "pod template of the Job: %v", err)
	}
	for i := range infos {
		if infos[i].Name != MainPodSet {
			return nil, fmt.Errorf("pod set %q is to be injected, which a Job does not have", infos[i].Name)
		}
		in, err := injectionOf(&infos[i], template)
		if err != nil {
			return nil, err
		}
		if err := in.inject(template); err != nil {
			return nil, err
		}
	}
	return template, nil
}

func asBatchJob(obj client.Object) (*batchv1.Job, error) {
	b, ok := obj.(*batchv1.Job)
	if !ok {
		return nil, fmt.Errorf("a %T was given where a Job is read", obj)
	}
	return b, nil
}

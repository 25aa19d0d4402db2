package scheduling

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/rendering"
	"github.com/muster-gpu/muster/workload"
)

// Jobs keeps the Ledger and the API in step for every owner object: it reads
// owners into the Ledger, writes their Workloads, resumes and suspends them.
// It acts only in the process that leads.
type Jobs struct {
	ledger  *Ledger
	effects *asyncEffects
	clock   clock.WithTicker
	// reader reads informer caches; client reads and writes the API.
	reader   client.Reader
	client   client.Client
	recorder record.EventRecorder
	kinds    map[schema.GroupKind]workload.Kind
	renderer *rendering.Renderer
	timing   Timing
	// pods reads the scheduler's informer, served are its names.
	pods   corelisters.PodLister
	served sets.Set[string]

	// watched are the kinds that the Ledger learns from; the process that
	// leads has heard all of them as of its beginning.
	watched []listened
	// claimNews is for how many more ticks jobs with claims are to be tried.
	claimNews atomic.Int32
	// writes are the owners whose admission must be written.
	writes workqueue.TypedRateLimitingInterface[types.UID]
}

// Timing is how long things may take.
type Timing struct {
	// StartTimeout bounds the time from admission until every pod is bound.
	StartTimeout time.Duration
	// ReadyTimeout bounds the time from then until every pod has been ready;
	// 0 is no bound.
	ReadyTimeout time.Duration
	// NodeLossGrace is how long the slots on a node are kept that does not take
	// pods for now.
	NodeLossGrace time.Duration
	// BackoffBase, doubled for each failed start up to BackoffMax, is how long
	// a job waits that did not start.
	BackoffBase, BackoffMax time.Duration
	// BackoffLimit is the number of failed starts after which a job is
	// deactivated; nil means never.
	BackoffLimit *int32
}

// run works until ctx is done.
func (j *Jobs) run(ctx context.Context) {
	for range 4 {
		go drain(ctx, j.effects.jobs, j.reconcile)
		go drain(ctx, j.writes, j.writeAdmission)
	}
	go drain(ctx, j.effects.settles, j.settle)
	go j.watchTimeouts(ctx)
	go j.watchRival(ctx)
	go func() {
		<-ctx.Done()
		j.effects.jobs.ShutDown()
		j.effects.settles.ShutDown()
		j.writes.ShutDown()
	}()
}

// drain works off a queue; a key whose work fails is tried again, later each
// time.
func drain[T comparable](ctx context.Context, q workqueue.TypedRateLimitingInterface[T], work func(context.Context, T) error) {
	for {
		key, quit := q.Get()
		if quit {
			return
		}
		err := work(ctx, key)
		switch {
		case err == nil:
			q.Forget(key)
		case ctx.Err() != nil:
		default:
			logger := klog.FromContext(ctx)
			if apierrors.IsConflict(err) {
				logger.V(4).Info("Write conflict, trying again", "key", key, "err", err.Error())
			} else {
				logger.Error(err, "Reconciling failed, trying again", "key", key)
			}
			q.AddRateLimited(key)
		}
		q.Done(key)
	}
}

// reconcile brings one owner and its Workload in line with the Ledger.
func (j *Jobs) reconcile(ctx context.Context, key JobKey) error {
	kind := j.kinds[schema.GroupKind{Group: key.Group, Kind: key.Kind}]
	if kind == nil {
		return nil
	}
	obj, err := j.cached(ctx, kind, key.NamespacedName)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading %s %s: %w", key.Kind, key.NamespacedName, err)
	}
	if err != nil || (key.UID != "" && obj.GetUID() != key.UID) {
		return j.leftBehind(ctx, kind, key.UID)
	}
	job, managed, no, err := kind.Read(ctx, j.reader, obj)
	if err != nil {
		return fmt.Errorf("reading the pod sets of %s %s: %w", key.Kind, key.NamespacedName, err)
	}
	if managed && job.Gated && !job.Suspended && !j.ledger.knows(job.Owner.UID) {
		// A pod of it is on a node. If it was not admitted, it is none of ours.
		managed, err = j.claimed(ctx, job.Owner)
		if err != nil {
			return err
		}
	}
	if !managed {
		if !j.ledger.isRestored() && !j.ledger.isUnmanaged(obj.GetUID()) {
			claimed, err := j.claimed(ctx, workload.Owner{
				GroupVersionKind: kind.GroupVersionKind(), NamespacedName: key.NamespacedName, UID: obj.GetUID(),
			})
			if err != nil {
				return err
			}
			if claimed {
				// Its pods are charged; they are told apart after the restoration.
				j.effects.jobs.AddAfter(key, restoreSoon)
				return nil
			}
		}
		if err := j.leftBehind(ctx, kind, obj.GetUID()); err != nil {
			return err
		}
		return j.disown(ctx, obj)
	}
	if !j.ledger.isRestored() {
		// Only pods of no queue are let go before.
		j.effects.jobs.AddAfter(key, restoreSoon)
		return nil
	}
	var wl *kueue.Workload
	if no == nil && !job.Deleting {
		wl, no, err = j.ensureWorkload(ctx, job)
		if err != nil {
			return err
		}
	}
	if no == nil && job.Finish == nil && !job.Deleting && !j.ledger.isCharged(job.Owner.UID) {
		if no, err = j.renderer.Render(ctx, job); err != nil {
			return err
		}
	}
	return j.act(ctx, kind, obj, job, j.ledger.read(job, wl, no))
}

// claimed says whether an owner that is not managed (any more) has a Workload
// that is admitted.
func (j *Jobs) claimed(ctx context.Context, owner workload.Owner) (bool, error) {
	wl := &kueue.Workload{}
	key := types.NamespacedName{Namespace: owner.Namespace, Name: workload.WorkloadName(owner)}
	err := j.client.Get(ctx, key, wl)
	switch {
	case err == nil:
		return claimsAdmission(wl), nil
	case isGone(err):
		return false, nil
	default:
		return false, fmt.Errorf("reading Workload %s: %w", key, err)
	}
}

// isGone says that an object does not exist, or that the API does not even have
// its kind.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) }

// leftBehind releases a job whose owner is gone or is not managed any more.
func (j *Jobs) leftBehind(ctx context.Context, kind workload.Kind, uid types.UID) error {
	job, want := j.ledger.ownerGone(uid)
	if job == nil {
		return nil
	}
	return j.act(ctx, kind, nil, job, want)
}

// disown lets the pods of an owner go that Muster does not manage: its own,
// or those of the JobSet that it controls.
func (j *Jobs) disown(ctx context.Context, obj client.Object) error {
	switch obj.(type) {
	case *jobset.JobSet, *batchv1.Job, *corev1.Pod, *workload.PodGroup:
		j.ledger.Unmanaged(obj.GetUID())
		return nil
	}
	js := &jobset.JobSet{}
	if err := j.reader.Get(ctx, client.ObjectKeyFromObject(obj), js); err != nil {
		if isGone(err) {
			return nil
		}
		return fmt.Errorf("reading the JobSet of %s: %w", klog.KObj(obj), err)
	}
	if metav1.IsControlledBy(js, obj) {
		j.ledger.Unmanaged(js.UID)
	}
	return nil
}

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
	have := j.ledger.workloadOf(job.Owner.UID)
	if have == nil {
		have = &kueue.Workload{}
		err := j.reader.Get(ctx, client.ObjectKeyFromObject(want), have)
		if apierrors.IsNotFound(err) {
			if job.Finish != nil {
				return nil, nil, nil
			}
			err = j.client.Create(ctx, want)
			if apierrors.IsAlreadyExists(err) {
				// The cache has not seen it yet: read what is there.
				have = &kueue.Workload{}
				if err := j.client.Get(ctx, client.ObjectKeyFromObject(want), have); err != nil {
					return nil, nil, fmt.Errorf("reading Workload %s: %w", klog.KObj(want), err)
				}
			} else if err != nil {
				return nil, nil, fmt.Errorf("creating Workload %s: %w", klog.KObj(want), err)
			} else {
				return want, nil, nil
			}
		} else if err != nil {
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
	if !owners && (admitted || matches(have, want, job)) {
		return have, nil, nil
	}
	if admitted {
		// What is admitted stays as it is.
		if err := j.client.Update(ctx, changed); err != nil {
			return nil, nil, fmt.Errorf("adding owners to Workload %s: %w", klog.KObj(want), err)
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

// matches says that the spec of a Workload is what its job asks for.
func matches(have, want *kueue.Workload, job *workload.Job) bool {
	return workload.SamePodSets(have, job) && have.Spec.QueueName == want.Spec.QueueName &&
		equality.Semantic.DeepEqual(have.Spec.Priority, want.Spec.Priority) &&
		equality.Semantic.DeepEqual(have.Spec.MaximumExecutionTimeSeconds, want.Spec.MaximumExecutionTimeSeconds) &&
		equality.Semantic.DeepEqual(have.Spec.PriorityClassRef, want.Spec.PriorityClassRef)
}

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
			return fmt.Errorf("suspending %s %s: %w", job.Owner.Kind, job.Owner.NamespacedName, err)
		}
		if j.ledger.stopped(job.Owner.UID) {
			j.note(job, "Suspended", want.message)
		}
		return nil
	case doResume:
		logger.V(2).Info("Resuming a job", "job", klog.KRef(job.Owner.Namespace, job.Owner.Name))
		err := j.resume(ctx, kind, obj, want.infos)
		var no *reason.Reason
		if errors.As(err, &no) && no.Class == reason.Misconfigured {
			// Trying again would not help: it is tried later, or changed.
			j.ledger.failToStart(job.Owner.UID, no.Message)
			return nil
		}
		if err != nil && !errors.Is(err, errRunsAlready) {
			return fmt.Errorf("resuming %s %s: %w", job.Owner.Kind, job.Owner.NamespacedName, err)
		}
		if err == nil && j.ledger.started(job.Owner.UID) {
			j.note(job, "Resumed", "it was suspended while it is admitted, and is resumed; to stop it, set spec.active of its Workload to false")
		}
		return nil
	case doReady:
		return j.change(ctx, job.Owner.UID, func(wl *kueue.Workload) {
			wl.Status.RequeueState = nil
			j.sayReady(wl)
		})
	case doRequeue:
		return j.writeRequeue(ctx, job)
	case doFinish:
		return j.writeFinish(ctx, job)
	case doDelete:
		return j.deleteWorkload(ctx, job)
	}
	return errors.New("unknown action")
}

// suspend suspends the owner as the API has it now: what the cache has may be
// from before its resumption.
func (j *Jobs) suspend(ctx context.Context, kind workload.Kind, obj client.Object) error {
	current, err := j.current(ctx, kind, client.ObjectKeyFromObject(obj))
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if current.GetUID() != obj.GetUID() {
		return nil
	}
	return client.IgnoreNotFound(kind.Suspend(ctx, j.client, current))
}

// errRunsAlready says that an owner was resumed before; what the cache has is
// older.
var errRunsAlready = errors.New("it runs already")

// resume resumes the owner as the API has it now.
func (j *Jobs) resume(ctx context.Context, kind workload.Kind, obj client.Object, infos []workload.PodSetInfo) error {
	current, err := j.current(ctx, kind, client.ObjectKeyFromObject(obj))
	if err != nil {
		return err
	}
	if current.GetUID() != obj.GetUID() {
		return errRunsAlready
	}
	job, managed, _, err := kind.Read(ctx, j.reader, current)
	switch {
	case err != nil:
		return err
	case !managed || (!job.Suspended && !job.Gated):
		return errRunsAlready
	}
	return kind.Resume(ctx, j.client, current, infos)
}

// settle finds out how a pod that left its node had ended. The scheduler's
// informer shows a pod that succeeded as deleted, so the API is asked.
func (j *Jobs) settle(ctx context.Context, s settle) error {
	j.effects.mu.Lock()
	last := j.effects.gone[s.uid]
	j.effects.mu.Unlock()
	if last == nil {
		return nil
	}
	pod := &corev1.Pod{}
	err := j.client.Get(ctx, s.pod, pod)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading pod %s: %w", s.pod, err)
	}
	succeeded := err == nil && pod.UID == s.uid && pod.Status.Phase == corev1.PodSucceeded
	j.ledger.Settled(s.owner, last, succeeded)
	j.effects.mu.Lock()
	delete(j.effects.gone, s.uid)
	j.effects.mu.Unlock()
	return nil
}

// restoreSoon is how long a job waits to be looked at again while the admitted
// jobs are still being read.
const restoreSoon = 200 * time.Millisecond

// current is an owner as the API has it now.
func (j *Jobs) current(ctx context.Context, kind workload.Kind, key types.NamespacedName) (client.Object, error) {
	if a, ok := kind.(workload.Assembler); ok {
		return a.Assemble(ctx, j.client, key)
	}
	obj := kind.New()
	return obj, j.client.Get(ctx, key, obj)
}

// cached is an owner as the cache has it. Pods are not in it: all of them would
// be in memory twice.
func (j *Jobs) cached(ctx context.Context, kind workload.Kind, key types.NamespacedName) (client.Object, error) {
	obj := kind.New()
	switch obj.(type) {
	case *corev1.Pod, *workload.PodGroup:
		return j.current(ctx, kind, key)
	}
	return obj, j.reader.Get(ctx, key, obj)
}

// note records an event on the job's owner, or on the first pods of a group,
// which has no other object that people look at. The recorder is that of the older
// events API: the newer one folds events of one reason into a series that
// keeps the first message, and the numbers in ours change.
func (j *Jobs) note(job *workload.Job, why, message string) {
	const most = 8
	if len(job.Pods) > 0 {
		for _, pod := range job.Pods[:min(most, len(job.Pods))] {
			j.recorder.Event(pod, corev1.EventTypeNormal, why, message)
		}
		return
	}
	o := job.Owner
	j.recorder.Event(&corev1.ObjectReference{
		APIVersion: o.GroupVersion().String(), Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID,
	}, corev1.EventTypeNormal, why, message)
}

func keyOf(o workload.Owner) JobKey {
	return JobKey{Group: o.Group, Kind: o.Kind, NamespacedName: o.NamespacedName, UID: o.UID}
}

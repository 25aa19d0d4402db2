package scheduling

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/placement/inventory"
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
	// api knows which kinds there are; nil knows of none that is missing.
	api      *apiKinds
	kinds    map[schema.GroupKind]workload.Kind
	renderer *rendering.Renderer
	// gpus knows the GPUs of nodes.
	gpus inventory.Source
	// gpuNodes is what the agents say of them.
	gpuNodes *gpuNodes
	idles    idlesTold
	timing   Timing
	// provisioning is how nodes are asked for.
	provisioning Provisioning
	// pods and nodes read the scheduler's informers, served are its names. podsSeen
	// is the resource version up to which the informer of pods has seen them.
	pods     corelisters.PodLister
	podsSeen func() string
	// groupPods are those of its pods that belong to groups.
	groupPods *groupPods
	nodes     corelisters.NodeLister
	served    sets.Set[string]
	apps      appOwners

	// watched are the kinds that the Ledger learns from; the process that
	// leads has heard all of them as of its beginning.
	watched []listened
	// experiments is what was said of Experiments.
	experiments experiments
	// unmanaged is what was measured last of GPUs that are charged to nobody.
	unmanaged map[unmanagedIn]int64
	// claimNews is for how many more ticks jobs with claims are to be tried.
	claimNews atomic.Int32
	// writesOf has one write of a Workload at a time.
	writesOf turns
	// writes are the owners whose admission must be written.
	writes workqueue.TypedRateLimitingInterface[types.UID]
	// deletions are the Workloads that are deleted and kept by a finalizer.
	deletions workqueue.TypedRateLimitingInterface[types.NamespacedName]
	// groups are the PodGroups whose status is to be looked at, groupsSaid what was
	// written there last; only the worker of groups looks at that.
	groups     workqueue.TypedRateLimitingInterface[types.NamespacedName]
	groupsSaid map[types.NamespacedName]groupSaid
}

// Timing is how long things may take.
type Timing struct {
	// StartTimeout bounds the time from admission until every pod is bound.
	StartTimeout time.Duration
	// RecoveryTimeout bounds the time for which pods that were bound are gone before
	// others are; 0 is StartTimeout.
	RecoveryTimeout time.Duration
	// ReadyTimeout bounds the time from then until every pod has been ready;
	// 0 is no bound.
	ReadyTimeout time.Duration
	// NodeLossGrace is how long the slots on a node are kept that does not take
	// pods for now.
	NodeLossGrace time.Duration
	// ReservationAfter is how long a job that has quota and no place waits until
	// nodes are kept for it, 0 for ever; ReservationFor is how long they are kept
	// at most, 0 for ever.
	ReservationAfter, ReservationFor time.Duration
	// Backoff is of jobs that did not start; at its limit they are deactivated.
	Backoff Backoff
}

// writers is how many jobs are read, and as many admissions written, side by
// side. They wait for the API server and hardly compute: with few, its latency
// bounds the jobs that start in a second.
const writers = 16

// run works until ctx is done.
func (j *Jobs) run(ctx context.Context) {
	for range writers {
		go drain(ctx, j.effects.jobs, j.readFirst)
		go drain(ctx, j.writes, j.writeAdmission)
	}
	go drain(ctx, j.effects.settles, j.settle)
	go drain(ctx, j.deletions, j.letWorkloadGo)
	go drain(ctx, j.groups, j.writeGroupStatus)
	go j.watchTimeouts(ctx)
	go j.watchRival(ctx)
	go func() {
		<-ctx.Done()
		j.effects.jobs.ShutDown()
		j.effects.settles.ShutDown()
		j.writes.ShutDown()
		j.deletions.ShutDown()
		j.groups.ShutDown()
	}()
}

// newQueue is a queue of work that is done again, later each time, until it
// succeeds.
func newQueue[T comparable]() workqueue.TypedRateLimitingInterface[T] {
	return newQueueOver(workqueue.DefaultQueue[T]())
}

// newQueueOver is one that has its work in the order of q.
func newQueueOver[T comparable](q workqueue.Queue[T]) workqueue.TypedRateLimitingInterface[T] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[T](20*time.Millisecond, 30*time.Second),
		workqueue.TypedRateLimitingQueueConfig[T]{
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{
				Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Queue: q}),
			}),
		})
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

// current is an owner as the API has it now.
func (j *Jobs) current(ctx context.Context, kind workload.Kind, key types.NamespacedName) (client.Object, error) {
	if a, ok := kind.(workload.Assembler); ok {
		return a.Assemble(ctx, memberReader{Reader: j.client, pods: j.pods}, key)
	}
	return j.find(kind, func(obj client.Object) error { return j.client.Get(ctx, key, obj) })
}

// cached is an owner as the cache has it. Pods are not in it: all of them would
// be in memory twice. Those of a group are the scheduler's own, where these are all.
func (j *Jobs) cached(ctx context.Context, kind workload.Kind, key types.NamespacedName) (client.Object, error) {
	if a, ok := kind.(workload.Assembler); ok {
		return a.Assemble(ctx, j.groupReader(), key)
	}
	if _, ok := kind.New().(*corev1.Pod); ok {
		return j.current(ctx, kind, key)
	}
	return j.find(kind, func(obj client.Object) error { return j.reader.Get(ctx, key, obj) })
}

// groupReader reads what groups are made of as new as it was heard of.
func (j *Jobs) groupReader() memberReader {
	return memberReader{asSeen{Reader: j.client, seen: j.podsSeen, cache: j.reader, api: j.api}, j.pods, j.groupPods}
}

// groupEvents is on how many pods of a group an event is recorded at most.
const groupEvents = 8

// noteAdmitted: a job has its quota and its nodes.
const noteAdmitted = "Admitted"

// note records an event on the job's owner, or on the first pods of a group,
// which has no other object that people look at. The recorder is that of the older
// events API: the newer one folds events of one reason into a series that
// keeps the first message, and the numbers in ours change.
func (j *Jobs) note(job *workload.Job, why, message string) {
	most := groupEvents
	kind := corev1.EventTypeNormal
	if slices.Contains(warnings, why) {
		kind = corev1.EventTypeWarning
	}
	if why == noteAdmitted {
		// Each of them has an event of its own when it is bound.
		most = 1
	}
	if len(job.Pods) > 0 {
		for _, pod := range job.Pods[:min(most, len(job.Pods))] {
			j.recorder.Event(pod, kind, why, message)
		}
		return
	}
	o := job.Owner
	j.recorder.Event(&corev1.ObjectReference{
		APIVersion: o.GroupVersion().String(), Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID,
	}, kind, why, message)
}

func keyOf(o workload.Owner) JobKey {
	return JobKey{Group: o.Group, Kind: o.Kind, NamespacedName: o.NamespacedName, UID: o.UID}
}

package owners

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/muster-gpu/muster/agent"
	"github.com/muster-gpu/muster/agent/holders"
)

const (
	// refresh is how often the workload of a pod is read again, for its annotations,
	// drawn out by up to half so that nodes do not ask at once.
	refresh = 5 * time.Minute
	// readTimeout bounds one read.
	readTimeout = 10 * time.Second
	// maxBackoff is how long a read that fails rests at most.
	maxBackoff = time.Minute
)

// Owners knows the pods of one node. It is safe for concurrent use.
type Owners struct {
	pods   cache.SharedIndexInformer
	slices cache.SharedIndexInformer
	chain  chain
	queue  workqueue.TypedRateLimitingInterface[holders.Pod]

	mu    sync.RWMutex
	found map[holders.Pod]found
}

// found is what was read for the pod of that UID.
type found struct {
	pod types.UID
	job job
}

// New asks the API server of that configuration about that node. Nothing is read
// before Run.
func New(config *rest.Config, node string) (*Owners, error) {
	core, err := clientOf(config, corev1.SchemeGroupVersion, corev1.AddToScheme)
	if err != nil {
		return nil, fmt.Errorf("making a client for pods: %w", err)
	}
	resources, err := clientOf(config, resourceapi.SchemeGroupVersion, resourceapi.AddToScheme)
	if err != nil {
		return nil, fmt.Errorf("making a client for ResourceSlices: %w", err)
	}
	reader, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a metadata client: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a dynamic client: %w", err)
	}
	o := &Owners{
		chain: chain{reader: reader, objects: objects},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[holders.Pod](time.Second, maxBackoff)),
		found: map[holders.Pod]found{},
	}
	if o.pods, err = podsOf(core, node); err != nil {
		return nil, err
	}
	if o.slices, err = slicesOf(resources, node); err != nil {
		return nil, err
	}
	_, err = o.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    o.seen,
		UpdateFunc: func(_, now any) { o.seen(now) },
		DeleteFunc: o.gone,
	})
	if err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	return o, nil
}

// Run reads and watches until ctx ends.
func (o *Owners) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { o.pods.RunWithContext(ctx) })
	running.Go(func() { o.slices.RunWithContext(ctx) })
	running.Go(func() {
		for o.next(ctx) {
		}
	})
	<-ctx.Done()
	o.queue.ShutDown()
	running.Wait()
}

// Owner is what is known of a pod; false where the API server has not told of it, or
// not of what owns it.
func (o *Owners) Owner(p holders.Pod) (agent.Owner, bool) {
	pod, known := o.pod(p)
	if !known {
		return agent.Owner{}, false
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	f, known := o.found[p]
	if !known || f.pod != pod.UID {
		return agent.Owner{}, false
	}
	return agent.Owner{
		UID:         string(pod.UID),
		Started:     started(pod),
		Running:     pod.Status.Phase == corev1.PodRunning,
		Kind:        f.job.kind,
		Name:        f.job.name,
		WorkloadUID: string(f.job.uid),
		Queue:       f.job.queue,
		Annotations: f.job.annotations,
	}, true
}

func (o *Owners) pod(p holders.Pod) (*corev1.Pod, bool) {
	object, exists, err := o.pods.GetStore().GetByKey(p.Namespace + "/" + p.Name)
	if err != nil || !exists {
		return nil, false
	}
	pod, ok := object.(*corev1.Pod)
	return pod, ok
}

// seen has the owners of a pod read that is new and may hold GPUs.
func (o *Owners) seen(object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok || !mayHold(pod) {
		return
	}
	p := holders.Pod{Namespace: pod.Namespace, Name: pod.Name}
	o.mu.RLock()
	known := o.found[p].pod == pod.UID
	o.mu.RUnlock()
	if !known {
		o.queue.Add(p)
	}
}

func (o *Owners) gone(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if pod, ok := object.(*corev1.Pod); ok {
		o.mu.Lock()
		delete(o.found, holders.Pod{Namespace: pod.Namespace, Name: pod.Name})
		o.mu.Unlock()
	}
}

// next reads the owners of one pod; false ends it.
func (o *Owners) next(ctx context.Context) bool {
	p, shutdown := o.queue.Get()
	if shutdown {
		return false
	}
	defer o.queue.Done(p)
	pod, known := o.pod(p)
	if !known {
		o.queue.Forget(p)
		return true
	}
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	j, err := o.chain.of(reading, pod)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Reading what owns a pod", "pod", klog.KObj(pod))
		}
		o.queue.AddRateLimited(p)
		return true
	}
	o.mu.Lock()
	o.found[p] = found{pod: pod.UID, job: j}
	o.mu.Unlock()
	if _, still := o.pod(p); !still {
		o.gone(pod)
	}
	o.queue.Forget(p)
	o.queue.AddAfter(p, utilwait.Jitter(refresh, 0.5))
	return true
}

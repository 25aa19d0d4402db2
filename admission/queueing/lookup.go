package queueing

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/muster-gpu/muster/workload"
)

// lookupTimeout bounds each of the two reads that a request may cost at most. They stay
// under the API server's own timeout for the webhook (5 s) with room for the answer.
const lookupTimeout = 2 * time.Second

var namespaces = corev1.SchemeGroupVersion.WithResource("namespaces")

var localQueues = schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "localqueues"}

// ownerQueued reads the labels of a JobSet's TrainJob from the API server. A
// cache would not do: the Trainer creates the JobSet within milliseconds of the
// TrainJob, and a stale "no such TrainJob" would leave the pods to another
// scheduler for good, because a JobSet's pod templates cannot be changed later.
// A TrainJob that is gone, or was created again under its name, queues nothing.
func ownerQueued(ctx context.Context, reader metadata.Interface, namespace string, owner *OwnerRef) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	trainJobs := schema.GroupVersionResource{Group: TrainJob.Group, Version: owner.Version, Resource: "trainjobs"}
	job, err := reader.Resource(trainJobs).Namespace(namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	switch {
	case isAbsent(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading TrainJob %s/%s: %w", namespace, owner.Name, err)
	case job.UID != owner.UID:
		return false, nil
	}
	return job.Labels[QueueLabel] != "", nil
}

// queueFreshness is for how long a LocalQueue that was found is believed to exist, and
// a namespace to name it: jobs come in bursts. That a queue does not exist is never
// believed.
const queueFreshness = 5 * time.Second

// queues looks for LocalQueues.
type queues struct {
	reader metadata.Interface
	found  *cache.Expiring
}

func newQueues(reader metadata.Interface, clock clock.Clock) *queues {
	return &queues{reader: reader, found: cache.NewExpiringWithClock(clock)}
}

// find returns an error if the LocalQueue does not exist, or if that cannot be
// found out.
func (q *queues) find(ctx context.Context, key types.NamespacedName) error {
	if _, found := q.found.Get(key); found {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	_, err := q.reader.Resource(localQueues).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err == nil {
		q.found.Set(key, struct{}{}, queueFreshness)
	}
	return err
}

// missing says that the LocalQueue certainly does not exist. Any failure to find
// out counts as "it may exist".
func (q *queues) missing(ctx context.Context, namespace, queue string) bool {
	return isAbsent(q.find(ctx, types.NamespacedName{Namespace: namespace, Name: queue}))
}

// defaultOf is the LocalQueue of the namespace's jobs that name none, empty if the
// namespace does not have it. A cluster without the queue's API has none.
func (q *queues) defaultOf(ctx context.Context, namespace string) (string, error) {
	queue, err := q.namedDefault(ctx, namespace)
	if err != nil {
		return "", err
	}
	err = q.find(ctx, types.NamespacedName{Namespace: namespace, Name: queue})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("reading LocalQueue %s/%s: %w", namespace, queue, err)
	}
	return queue, nil
}

// namedDefault is workload.DefaultQueueOf the namespace, believed as long as a queue.
func (q *queues) namedDefault(ctx context.Context, namespace string) (string, error) {
	key := types.NamespacedName{Name: namespace}
	if queue, found := q.found.Get(key); found {
		return queue.(string), nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	in, err := q.reader.Resource(namespaces).Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading namespace %s: %w", namespace, err)
	}
	queue := workload.DefaultQueueOf(in)
	q.found.Set(key, queue, queueFreshness)
	return queue, nil
}

// isAbsent tells "there is no such object" from the other 404, "there is no
// such API", which is not answered by the API's own code.
func isAbsent(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}

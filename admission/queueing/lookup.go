package queueing

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/muster-gpu/muster/workload"
)

// lookupTimeout bounds the one read that a request may cost. It stays under
// the API server's own timeout for the webhook (5 s) with room for the answer.
const lookupTimeout = 2 * time.Second

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

// queueMissing says that the LocalQueue certainly does not exist. Any failure
// to find out counts as "it may exist".
func queueMissing(ctx context.Context, reader metadata.Interface, namespace, queue string) bool {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	_, err := reader.Resource(localQueues).Namespace(namespace).Get(ctx, queue, metav1.GetOptions{})
	return isAbsent(err)
}

// defaultQueueExists says whether the namespace has the LocalQueue of jobs that
// name none. A cluster without the queue's API has none.
func defaultQueueExists(ctx context.Context, reader metadata.Interface, namespace string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	_, err := reader.Resource(localQueues).Namespace(namespace).Get(ctx, workload.DefaultQueue, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading LocalQueue %s/%s: %w", namespace, workload.DefaultQueue, err)
	}
	return true, nil
}

// isAbsent tells "there is no such object" from the other 404, "there is no
// such API", which is not answered by the API's own code.
func isAbsent(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}

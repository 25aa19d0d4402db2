package testcluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	jobcontroller "k8s.io/kubernetes/pkg/controller/job"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RunBatchJobs runs the real controller of batch Jobs until the test ends, and
// stands in for what it relies on: kubelets, which end the pods that are
// deleted, and the garbage collector, which deletes those of deleted Jobs.
func (c *Cluster) RunBatchJobs(t testing.TB) {
	t.Helper()
	api, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatalf("building a client of the Job controller: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := informers.NewSharedInformerFactory(api, 0)
	controller, err := jobcontroller.NewController(ctx, api, f.Core().V1().Pods(), f.Batch().V1().Jobs(), nil, nil)
	if err != nil {
		cancel()
		t.Fatalf("building the Job controller: %v", err)
	}
	f.Start(ctx.Done())
	var running sync.WaitGroup
	running.Go(func() { controller.Run(ctx, 2) })
	running.Go(func() {
		for ctx.Err() == nil {
			if _, err := c.endPods(ctx); err != nil && ctx.Err() == nil {
				t.Logf("ending the pods of Jobs: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		f.Shutdown()
	})
	// The Jobs of the test are deleted by then.
	t.Cleanup(func() {
		left := 0
		err := wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (done bool, err error) {
			left, err = c.endPods(ctx)
			return left == 0, err
		})
		if err != nil {
			t.Errorf("%d pods of deleted Jobs are left: %v", left, err)
		}
	})
}

// endPods removes the pods of Jobs that are being deleted, or whose Job is
// gone, and returns how many there were.
func (c *Cluster) endPods(ctx context.Context) (int, error) {
	var jobs batchv1.JobList
	if err := c.Client.List(ctx, &jobs); err != nil {
		return 0, err
	}
	alive := map[types.UID]bool{}
	for i := range jobs.Items {
		alive[jobs.Items[i].UID] = true
	}
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods); err != nil {
		return 0, err
	}
	ended := 0
	for i := range pods.Items {
		pod := &pods.Items[i]
		owner := metav1.GetControllerOf(pod)
		if owner == nil || owner.Kind != "Job" || pod.DeletionTimestamp == nil && alive[owner.UID] {
			continue
		}
		ended++
		err := c.Client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
		if client.IgnoreNotFound(err) != nil {
			return ended, fmt.Errorf("deleting pod %s: %w", pod.Name, err)
		}
	}
	return ended, nil
}

// BatchJob returns a suspended Indexed Job of pods pods of gpus GPUs each.
func BatchJob(namespace, name, queue string, pods int32, gpus int64) *batchv1.Job {
	spec := Replicated("main", pods, gpus).Template.Spec
	spec.Suspend = new(true)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}
	if queue != "" {
		job.Labels = map[string]string{"kueue.x-k8s.io/queue-name": queue}
	}
	return job
}

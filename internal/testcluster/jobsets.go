package testcluster

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"
)

// JobSets stands in for the JobSet and Job controllers: it keeps exactly the
// pods of JobSets that are not suspended, phase by phase. Pods that end are not
// made again unless they vanish.
type JobSets struct {
	client client.Client
	mu     sync.Mutex
	// withheld are pod names that are not made.
	withheld map[string]bool
}

// RunJobSets keeps pods for JobSets until the test ends.
func (c *Cluster) RunJobSets(t testing.TB) *JobSets {
	j := &JobSets{client: c.Client, withheld: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := j.pass(ctx); err != nil && ctx.Err() == nil {
				t.Logf("keeping the pods of JobSets: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return j
}

// Withhold stops (or, with false, allows again) the creation of a pod.
func (j *JobSets) Withhold(pod string, withhold bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.withheld[pod] = withhold
}

func (j *JobSets) pass(ctx context.Context) error {
	var sets jobset.JobSetList
	if err := j.client.List(ctx, &sets); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := j.client.List(ctx, &pods, client.HasLabels{jobset.JobSetUIDKey}); err != nil {
		return err
	}
	have := map[string]*corev1.Pod{}
	for i := range pods.Items {
		if o := metav1.GetControllerOf(&pods.Items[i]); o != nil && o.Kind == "JobSet" {
			have[pods.Items[i].Namespace+"/"+pods.Items[i].Name] = &pods.Items[i]
		}
	}
	all := maps.Clone(have)
	for i := range sets.Items {
		js := &sets.Items[i]
		if js.DeletionTimestamp != nil || js.Spec.Suspend != nil && *js.Spec.Suspend {
			continue
		}
		for at := range js.Spec.ReplicatedJobs {
			for _, pod := range podsOf(js, at) {
				key := pod.Namespace + "/" + pod.Name
				if have[key] == nil && comes(js, at, all) && !j.isWithheld(pod.Name) {
					if err := j.create(ctx, js, pod, all); err != nil {
						return fmt.Errorf("creating pod %s: %w", pod.Name, err)
					}
				}
				delete(have, key)
			}
		}
	}
	for _, pod := range have {
		if err := j.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
		}
	}
	return nil
}

func (j *JobSets) create(ctx context.Context, js *jobset.JobSet, pod *corev1.Pod, all map[string]*corev1.Pod) error {
	if ok, err := j.exclude(ctx, js, pod, all); err != nil || !ok {
		return err
	}
	if err := j.client.Create(ctx, pod); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

func (j *JobSets) isWithheld(name string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.withheld[name]
}

// podsOf are the pods of a JobSet's replicated job as its controllers would make
// them, with fixed names: <jobset>-<replicated job>-<job index>-<completion index>.
func podsOf(js *jobset.JobSet, at int) []*corev1.Pod {
	var out []*corev1.Pod
	rj := &js.Spec.ReplicatedJobs[at]
	for job := range rj.Replicas {
		for index := range parallelism(rj) {
			pod := &corev1.Pod{Spec: *rj.Template.Spec.Template.Spec.DeepCopy()}
			pod.Namespace = js.Namespace
			pod.Name = podName(js, rj.Name, job, index)
			pod.Labels = map[string]string{}
			for k, v := range rj.Template.Spec.Template.Labels {
				pod.Labels[k] = v
			}
			pod.Labels[jobset.JobSetNameKey] = js.Name
			pod.Labels[jobset.JobSetUIDKey] = string(js.UID)
			pod.Labels[jobset.ReplicatedJobNameKey] = rj.Name
			pod.Labels[jobset.JobIndexKey] = strconv.Itoa(int(job))
			pod.Labels[jobset.JobKey] = jobKey(js, rj.Name, job)
			pod.Labels[constants.RestartsKey] = strconv.Itoa(int(js.Status.Restarts))
			pod.Labels[constants.PriorityKey] = "0"
			pod.Labels[batchv1.JobCompletionIndexAnnotation] = strconv.Itoa(int(index))
			pod.Annotations = rj.Template.Spec.Template.Annotations
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(js, jobset.SchemeGroupVersion.WithKind("JobSet"))}
			if pod.Spec.RestartPolicy == "" {
				pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			}
			out = append(out, pod)
		}
	}
	return out
}

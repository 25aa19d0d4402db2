package testcluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RayVersion is the API version of Ray's kinds.
var RayVersion = schema.GroupVersion{Group: "ray.io", Version: "v1"}

// ray stands in for KubeRay and the kubelets of its pods, in one namespace.
type ray struct {
	*Cluster
	namespace string
}

// RunRay plays KubeRay in a namespace until the test ends, as far as it makes and
// deletes objects: pods of RayClusters, and the RayClusters and submitters of
// RayJobs.
func (c *Cluster) RunRay(t testing.TB, namespace string) {
	t.Helper()
	r := &ray{c, namespace}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			if err := r.step(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
				t.Logf("playing KubeRay: %v", err)
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
		if err := r.step(context.Background()); err != nil {
			t.Logf("playing KubeRay: %v", err)
		}
	})
}

func (r *ray) step(ctx context.Context) error {
	jobs, err := r.list(ctx, "RayJob")
	if err != nil {
		return err
	}
	for i := range jobs {
		if err := r.stepJob(ctx, &jobs[i]); err != nil {
			return err
		}
	}
	if err := r.endSubmitters(ctx, jobs); err != nil {
		return err
	}
	clusters, err := r.list(ctx, "RayCluster")
	if err != nil {
		return err
	}
	wanted := map[types.UID]map[string]int{}
	for i := range clusters {
		if wanted[clusters[i].GetUID()], err = r.stepCluster(ctx, &clusters[i], jobs); err != nil {
			return err
		}
	}
	return r.endPods(ctx, wanted)
}

func (r *ray) list(ctx context.Context, kind string) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(RayVersion.WithKind(kind + "List"))
	err := r.Client.List(ctx, list, client.InNamespace(r.namespace))
	return list.Items, err
}

// endSubmitters deletes the submitters of RayJobs that are gone, as the garbage
// collector does.
func (r *ray) endSubmitters(ctx context.Context, jobs []unstructured.Unstructured) error {
	var submitters batchv1.JobList
	if err := r.Client.List(ctx, &submitters, client.InNamespace(r.namespace)); err != nil {
		return err
	}
	for i := range submitters.Items {
		owner := metav1.GetControllerOf(&submitters.Items[i])
		if owner == nil || owner.Kind != "RayJob" || slices.ContainsFunc(jobs, func(o unstructured.Unstructured) bool { return o.GetUID() == owner.UID }) {
			continue
		}
		err := r.Client.Delete(ctx, &submitters.Items[i], client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// stepJob makes the cluster of a RayJob, and its submitter once the cluster's
// pods are on nodes; or deletes them while it is suspended.
func (r *ray) stepJob(ctx context.Context, job *unstructured.Unstructured) error {
	owner := metav1.OwnerReference{APIVersion: RayVersion.String(), Kind: "RayJob", Name: job.GetName(), UID: job.GetUID(), Controller: new(true)}
	cluster := &unstructured.Unstructured{Object: map[string]any{}}
	cluster.SetGroupVersionKind(RayVersion.WithKind("RayCluster"))
	cluster.SetNamespace(r.namespace)
	cluster.SetName(job.GetName() + "-x7k2p")
	submitter := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: job.GetName(), OwnerReferences: []metav1.OwnerReference{owner}}}
	suspend, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend")
	if suspend {
		for _, obj := range []client.Object{submitter, cluster} {
			if err := r.Client.Delete(ctx, obj, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		return nil
	}
	if name, _, _ := unstructured.NestedString(job.Object, "status", "rayClusterName"); name == "" {
		_ = unstructured.SetNestedField(job.Object, cluster.GetName(), "status", "rayClusterName")
		return r.Client.Status().Update(ctx, job)
	}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)
	if apierrors.IsNotFound(err) {
		spec, _, _ := unstructured.NestedMap(job.Object, "spec", "rayClusterSpec")
		cluster.Object["spec"] = spec
		cluster.SetLabels(job.GetLabels())
		cluster.SetOwnerReferences([]metav1.OwnerReference{owner})
		return r.Client.Create(ctx, cluster)
	}
	if err != nil {
		return err
	}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(r.namespace), client.MatchingLabels{"ray.io/cluster": cluster.GetName()}); err != nil || len(pods.Items) == 0 {
		return err
	}
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName == "" {
			return nil
		}
	}
	template, found, _ := unstructured.NestedMap(job.Object, "spec", "submitterPodTemplate")
	if !found {
		return nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, &submitter.Spec.Template); err != nil {
		return err
	}
	return client.IgnoreAlreadyExists(r.Client.Create(ctx, submitter))
}

// stepCluster makes the pods that a RayCluster lacks, and returns how many of
// each group it is to have.
func (r *ray) stepCluster(ctx context.Context, cluster *unstructured.Unstructured, jobs []unstructured.Unstructured) (map[string]int, error) {
	wanted := map[string]int{}
	if suspend, _, _ := unstructured.NestedBool(cluster.Object, "spec", "suspend"); suspend || cluster.GetDeletionTimestamp() != nil {
		return wanted, nil
	}
	if owner := metav1.GetControllerOf(cluster); owner != nil {
		if !slices.ContainsFunc(jobs, func(o unstructured.Unstructured) bool { return o.GetUID() == owner.UID }) {
			return wanted, client.IgnoreNotFound(r.Client.Delete(ctx, cluster))
		}
	}
	head, _, _ := unstructured.NestedMap(cluster.Object, "spec", "headGroupSpec")
	head["groupName"], head["replicas"] = "headgroup", int64(1)
	groups, _, _ := unstructured.NestedSlice(cluster.Object, "spec", "workerGroupSpecs")
	for _, item := range append([]any{head}, groups...) {
		group := item.(map[string]any)
		name, replicas := group["groupName"].(string), group["replicas"].(int64)
		wanted[name] = int(replicas)
		var pods corev1.PodList
		of := client.MatchingLabels{"ray.io/cluster": cluster.GetName(), "ray.io/group": name}
		if err := r.Client.List(ctx, &pods, client.InNamespace(r.namespace), of); err != nil {
			return nil, err
		}
		for range int(replicas) - len(pods.Items) {
			pod := &corev1.Pod{}
			template := corev1.PodTemplateSpec{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(group["template"].(map[string]any), &template); err != nil {
				return nil, err
			}
			pod.Namespace, pod.GenerateName = r.namespace, fmt.Sprintf("%s-%s-", cluster.GetName(), strings.ToLower(name))
			pod.Labels = map[string]string{"ray.io/is-ray-node": "yes", "ray.io/cluster": cluster.GetName(), "ray.io/group": name, "ray.io/node-type": "worker"}
			if name == "headgroup" {
				pod.Labels["ray.io/node-type"] = "head"
			}
			pod.Annotations, pod.Spec = template.Annotations, template.Spec
			pod.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: RayVersion.String(), Kind: "RayCluster", Name: cluster.GetName(), UID: cluster.GetUID(), Controller: new(true),
			}}
			if err := r.Client.Create(ctx, pod); err != nil {
				return nil, err
			}
		}
	}
	return wanted, nil
}

// endPods deletes the pods that their RayCluster does not want any more.
func (r *ray) endPods(ctx context.Context, wanted map[types.UID]map[string]int) error {
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(r.namespace), client.HasLabels{"ray.io/cluster"}); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		owner := metav1.GetControllerOf(pod)
		if of := wanted[owner.UID]; of[pod.Labels["ray.io/group"]] > 0 && pod.DeletionTimestamp == nil {
			of[pod.Labels["ray.io/group"]]--
			continue
		}
		if err := r.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

package workload

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Keeper is a controller that keeps a number of pods, each of which is a job of
// its own, and replaces those that go: a Deployment, a ReplicaSet without one,
// or a StatefulSet. The zero Keeper is none.
type Keeper struct {
	Kind string
	types.NamespacedName
}

// inherit gives a pod that names no queue, and would be sent to the default one,
// the queue and the priority class of its keeper.
func (o Options) inherit(ctx context.Context, r client.Reader, job *Job, k Keeper, pod *corev1.Pod) error {
	if job.Queue != "" || k == (Keeper{}) || !o.SchedulerNames.Has(pod.Spec.SchedulerName) {
		return nil
	}
	keeper := &metav1.PartialObjectMetadata{}
	keeper.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(k.Kind))
	err := r.Get(ctx, k.NamespacedName, keeper)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading %s %s: %w", k.Kind, k.NamespacedName, err)
	}
	job.Queue = keeper.Labels[QueueLabel]
	if job.PriorityClass == "" {
		job.PriorityClass = keeper.Labels[PriorityClassLabel]
	}
	return nil
}

// KeeperOf is the keeper of a pod, as far as the pod itself tells: the
// Deployment of a ReplicaSet is known by the ReplicaSet's name, which ends with
// the hash of the pod template.
func KeeperOf(pod *corev1.Pod) Keeper {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return Keeper{}
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil || gv.Group != appsv1.GroupName {
		return Keeper{}
	}
	k := Keeper{Kind: ref.Kind, NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: ref.Name}}
	switch ref.Kind {
	case "StatefulSet":
		return k
	case "ReplicaSet":
		if name, of := strings.CutSuffix(ref.Name, "-"+pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]); of && name != "" && pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != "" {
			k.Kind, k.Name = "Deployment", name
		}
		return k
	}
	return Keeper{}
}

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/workload"
)

// TestServing tells stories of pods that a Deployment or a StatefulSet keeps.
func TestServing(t *testing.T) {
	c := up(t, "serving")
	tellAll(t, c, "serving", anyJobs, []story[team]{
		{"a Deployment is updated at full quota, and loses no place to a pod that waits", deploymentUpdated},
		{"the pod of a Deployment that keeps its earlier ones is told how to get a place", deploymentSurges},
		{"a StatefulSet's pod that is made anew takes its place back", statefulSetReplaced},
		{"a Notebook is queued by its label, keeps its place, and gives it up when it is stopped", notebook},
		{"the pod of a KServe predictor is replaced in its place, and one that surges is told how to get it", predictor},
	})
}

// template is that of a pod which serves.
func (tm team) template(gpus int64) corev1.PodTemplateSpec {
	pod := tm.alone("", gpus, map[string]string{"app": "web"}, nil)
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec}
}

// deployment names its queue itself; its template does not.
func (tm team) deployment(replicas int32, gpus int64) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: "web", Labels: map[string]string{workload.QueueLabel: "q"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: tm.template(gpus),
		},
	}
}

// serving waits until so many pods of the application run that have the value of
// VERSION in their template.
func (tm team) serving(t *testing.T, version string, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d pods of version %q to run, and no other", want, version), func(ctx context.Context) error {
		var pods corev1.PodList
		if err := tm.client.List(ctx, &pods, client.InNamespace(tm.namespace), client.MatchingLabels{"app": "web"}); err != nil {
			return err
		}
		n := 0
		for _, pod := range pods.Items {
			if pod.Labels["version"] == version && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				n++
			}
		}
		if n != want || len(pods.Items) != want {
			return fmt.Errorf("%d of %d are", n, len(pods.Items))
		}
		return nil
	})
}

// update gives the Deployment a new version of its template.
func (tm team) update(t *testing.T, d *appsv1.Deployment, version string) {
	t.Helper()
	eventually(t, "the Deployment to be updated", func(ctx context.Context) error {
		if err := tm.client.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		d.Spec.Template.Labels["version"] = version
		return tm.client.Update(ctx, d)
	})
}

// waiter is a pod that waits for quota behind what serves.
func (tm team) waiter(t *testing.T) *corev1.Pod {
	t.Helper()
	pod := tm.alone("waiter", 8, map[string]string{workload.QueueLabel: "q"}, nil)
	tm.make(t, pod)
	return pod
}

// isWaiting fails if the pod has got a node.
func (tm team) isWaiting(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := tm.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || pod.Spec.NodeName != "" {
		t.Errorf("%s is on node %q (%v)", pod.Name, pod.Spec.NodeName, err)
	}
}

func deploymentUpdated(t *testing.T, tm team) {
	tm.queueUp(t, "q", 16)
	d := tm.deployment(2, 8)
	one, none := intstr.FromInt32(1), intstr.FromInt32(0)
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &none, MaxUnavailable: &one}}
	tm.make(t, d)
	tm.serving(t, "", 2)
	tm.usage(t, "q", 16, 2, 0)
	waiter := tm.waiter(t)
	tm.usage(t, "q", 16, 2, 1)
	tm.update(t, d, "2")
	tm.serving(t, "2", 2)
	tm.isWaiting(t, waiter)
	tm.usage(t, "q", 16, 2, 1)
	// It wants fewer: the place is given up.
	eventually(t, "the Deployment to be scaled", func(ctx context.Context) error {
		if err := tm.client.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		d.Spec.Replicas = new(int32(1))
		return tm.client.Update(ctx, d)
	})
	tm.started(t, waiter)
	tm.usage(t, "q", 16, 2, 0)
}

func deploymentSurges(t *testing.T, tm team) {
	tm.queueUp(t, "q", 8)
	d := tm.deployment(1, 8)
	tm.make(t, d)
	tm.serving(t, "", 1)
	tm.update(t, d, "2")
	tm.toldOfSurge(t)
}

// toldOfSurge waits until a pod of version 2 is told how it gets a place.
func (tm team) toldOfSurge(t *testing.T) {
	t.Helper()
	eventually(t, "the new pod to be told of maxSurge", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := tm.client.List(ctx, &pods, client.InNamespace(tm.namespace), client.MatchingLabels{"version": "2"}); err != nil {
			return err
		}
		var events corev1.EventList
		if err := tm.client.List(ctx, &events, client.InNamespace(tm.namespace)); err != nil {
			return err
		}
		for _, ev := range events.Items {
			for _, pod := range pods.Items {
				if ev.InvolvedObject.UID == pod.UID && strings.Contains(ev.Message, "maxSurge: 0") {
					return nil
				}
			}
		}
		return fmt.Errorf("none of %d events says so", len(events.Items))
	})
}

func statefulSetReplaced(t *testing.T, tm team) {
	tm.queueUp(t, "q", 8)
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: "notebook", Labels: map[string]string{workload.QueueLabel: "q"}},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: tm.template(8),
		},
	}
	tm.make(t, set)
	tm.serving(t, "", 1)
	waiter := tm.waiter(t)
	tm.usage(t, "q", 8, 1, 1)
	for range 2 {
		tm.madeAnew(t, "notebook-0")
		tm.isWaiting(t, waiter)
	}
	tm.usage(t, "q", 8, 1, 1)
}

// madeAnew deletes a pod of a StatefulSet, and waits until it is there again and
// runs.
func (tm team) madeAnew(t *testing.T, name string) {
	t.Helper()
	pod := &corev1.Pod{}
	if err := tm.client.Get(t.Context(), client.ObjectKey{Namespace: tm.namespace, Name: name}, pod); err != nil {
		t.Fatal(err)
	}
	before := pod.UID
	if err := tm.client.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod to be made anew and to run", func(ctx context.Context) error {
		err := tm.client.Get(ctx, client.ObjectKey{Namespace: tm.namespace, Name: name}, pod)
		if err == nil && (pod.UID == before || pod.Status.Phase != corev1.PodRunning) {
			err = fmt.Errorf("it is %s, the earlier one: %v", pod.Status.Phase, pod.UID == before)
		}
		return err
	})
}

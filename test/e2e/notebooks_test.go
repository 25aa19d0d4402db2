package e2e

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/workload"
)

// The controllers of Notebooks and InferenceServices need images. What they make
// of these objects is made here; what comes of that is made by Kubernetes.
var (
	notebookKind  = schema.GroupVersionKind{Group: "kubeflow.org", Version: "v1", Kind: "Notebook"}
	inferenceKind = schema.GroupVersionKind{Group: "serving.kserve.io", Version: "v1beta1", Kind: "InferenceService"}
)

// owner creates an object of a kind that is defined here, queued by its label,
// and returns a reference to it.
func (tm team) owner(t *testing.T, gvk schema.GroupVersionKind, name string) (client.Object, metav1.OwnerReference) {
	t.Helper()
	plural := strings.ToLower(gvk.Kind) + "s"
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + gvk.Group},
		"spec": map[string]any{
			"group": gvk.Group, "scope": "Namespaced",
			"names": map[string]any{"plural": plural, "singular": strings.ToLower(gvk.Kind), "kind": gvk.Kind, "listKind": gvk.Kind + "List"},
			"versions": []any{map[string]any{
				"name": gvk.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	tm.make(t, crd)
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(tm.namespace)
	u.SetName(name)
	u.SetLabels(map[string]string{workload.QueueLabel: "q"})
	eventually(t, gvk.Kind+"s to be served", func(ctx context.Context) error {
		err := tm.client.Create(ctx, u)
		if apimeta.IsNoMatchError(err) {
			return fmt.Errorf("not yet: %w", err)
		}
		return err
	})
	return u, *metav1.NewControllerRef(u, gvk)
}

// served is a pod template with more labels.
func (tm team) served(more ...map[string]string) corev1.PodTemplateSpec {
	t := tm.template(8)
	for _, labels := range more {
		maps.Copy(t.Labels, labels)
	}
	return t
}

// notebook is run by a StatefulSet, whose template has all labels of the Notebook.
func notebook(t *testing.T, tm team) {
	tm.queueUp(t, "q", 8)
	nb, ref := tm.owner(t, notebookKind, "lab")
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: "lab", OwnerReferences: []metav1.OwnerReference{ref}},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"statefulset": "lab"}},
			Template: tm.served(nb.GetLabels(), map[string]string{"statefulset": "lab", "notebook-name": "lab"}),
		},
	}
	tm.make(t, set)
	tm.serving(t, "", 1)
	tm.usage(t, "q", 8, 1, 0)
	waiter := tm.waiter(t)
	tm.usage(t, "q", 8, 1, 1)
	tm.madeAnew(t, "lab-0")
	tm.isWaiting(t, waiter)
	tm.usage(t, "q", 8, 1, 1)
	// It is stopped by hand, or culled.
	stopped := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":0}}`))
	if err := tm.client.Patch(t.Context(), set, stopped); err != nil {
		t.Fatal(err)
	}
	tm.started(t, waiter)
	tm.usage(t, "q", 8, 1, 0)
}

// predictor is run by a Deployment, to which KServe passes the labels of the
// InferenceService.
func predictor(t *testing.T, tm team) {
	tm.queueUp(t, "q", 8)
	isvc, ref := tm.owner(t, inferenceKind, "llm")
	app := map[string]string{"isvc": "llm-predictor", "serving.kserve.io/inferenceservice": "llm", "component": "predictor"}
	quarter := intstr.FromString("25%")
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: "llm-predictor", Labels: app, OwnerReferences: []metav1.OwnerReference{ref}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"isvc": "llm-predictor"}},
			Template: tm.served(isvc.GetLabels(), app),
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &quarter, MaxUnavailable: &quarter},
			},
		},
	}
	tm.make(t, d)
	tm.serving(t, "", 1)
	waiter := tm.waiter(t)
	tm.usage(t, "q", 8, 1, 1)
	if err := tm.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(tm.namespace), client.MatchingLabels(app)); err != nil {
		t.Fatal(err)
	}
	tm.serving(t, "", 1)
	tm.isWaiting(t, waiter)
	// Rounded, a quarter of one is one more and none less.
	tm.update(t, d, "2")
	tm.toldOfSurge(t)
	tm.isWaiting(t, waiter)
	eventually(t, "the Deployment to surge no more", func(ctx context.Context) error {
		if err := tm.client.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		one, none := intstr.FromInt32(1), intstr.FromInt32(0)
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: &none, MaxUnavailable: &one}
		return tm.client.Update(ctx, d)
	})
	tm.serving(t, "2", 1)
	tm.isWaiting(t, waiter)
	tm.usage(t, "q", 8, 1, 1)
}

package publish

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

// fieldManager is as whom the agent writes.
const fieldManager = "muster-gpu-agent"

// nodeUID is what the API server knows of an agent by the token of its pod, from
// Kubernetes 1.32 on: the UID of the Node that the pod is on.
const nodeUID = "authentication.kubernetes.io/node-uid"

// Applier writes by server-side apply, so that nothing is read before. A GPUNode that it
// makes is owned by the Node of the client's pod, and so goes with it.
type Applier struct{ Client dynamic.Interface }

var _ Writer = Applier{}

// Write implements Writer.
func (a Applier) Write(ctx context.Context, node string, status v1alpha1.GPUNodeStatus) error {
	gpuNode := v1alpha1.GPUNode{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GPUNode"},
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Status:     status,
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&gpuNode)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{Object: content}
	gpuNodes := a.Client.Resource(v1alpha1.GroupVersion.WithResource("gpunodes"))
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	_, err = gpuNodes.ApplyStatus(ctx, node, object, options)
	if !apierrors.IsNotFound(err) {
		return err
	}
	// Of an object that is made only the status is what the agent has to say.
	named := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(), "metadata": map[string]any{"name": node},
	}}
	uid, err := a.ownNode(ctx)
	if err != nil {
		return err
	}
	if uid != "" {
		named.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: uid}})
	}
	if _, err := gpuNodes.Apply(ctx, node, named, options); err != nil {
		return err
	}
	_, err = gpuNodes.ApplyStatus(ctx, node, object, options)
	return err
}

// ownNode is the UID of the Node that the client's pod is on; "" where the API server does
// not say that, or does not let itself be asked. It may be asked by whoever is known to it.
func (a Applier) ownNode(ctx context.Context) (types.UID, error) {
	reviews := a.Client.Resource(schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "selfsubjectreviews"})
	asked := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}}
	said, err := reviews.Create(ctx, asked, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("asking for the UID of the node: %w", err)
	}
	uids, _, err := unstructured.NestedStringSlice(said.Object, "status", "userInfo", "extra", nodeUID)
	if err != nil || len(uids) != 1 {
		return "", err
	}
	return types.UID(uids[0]), nil
}

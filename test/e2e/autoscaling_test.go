package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/internal/sandbox"
)

// asking is a scheduler that asks an autoscaler for nodes.
const asking = `
apiVersion: config.muster.dev/v1alpha1
kind: SchedulerConfiguration
profiles: [muster, default-scheduler]
autoscaling:
  provisioningRequests: {className: check-capacity.autoscaling.x-k8s.io}
`

var provisioningGVK = schema.GroupVersionKind{Group: "autoscaling.x-k8s.io", Version: "v1", Kind: "ProvisioningRequest"}

// TestAutoscaling tells stories of gangs for which nodes come one by one, on a
// sandbox of one node.
func TestAutoscaling(t *testing.T) {
	config := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(config, []byte(asking), 0o600); err != nil {
		t.Fatal(err)
	}
	c := up(t, "autoscaling", func(o *sandbox.Options) { o.Config, o.Nodes = config, 1 })
	c.define(t, provisioningGVK)
	tellAll(t, c, "autoscaling", batchJobs, []story[batchTeam]{
		{"nodes are asked for once for a suspended job, and nothing of it starts before the last of them has come", nodesForAJob},
		{"all pods of a group want nodes together, and none starts before the last of them has come", nodesForAGroup},
		{"a job and a group over quota want no nodes", noNodesOverQuota},
	})
}

// define defines a kind of which nothing is checked.
func (c *cluster) define(t *testing.T, gvk schema.GroupVersionKind) {
	t.Helper()
	const plural, singular = "provisioningrequests", "provisioningrequest"
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + gvk.Group, Annotations: map[string]string{"api-approved.kubernetes.io": "unapproved, for tests"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: gvk.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: singular, Kind: gvk.Kind, ListKind: gvk.Kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: gvk.Version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true),
				}},
			}},
		},
	}
	if err := c.client.Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
}

// nodeComes makes a node like the first one, until the test ends.
func (tm team) nodeComes(t *testing.T, name string) {
	t.Helper()
	first := &corev1.Node{}
	if err := tm.client.Get(t.Context(), client.ObjectKey{Name: "node-0"}, first); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: first.Labels}}
	node.Labels[corev1.LabelHostname] = name
	if err := tm.client.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := tm.client.Delete(ctx, node); client.IgnoreNotFound(err) != nil {
			t.Errorf("deleting node %s: %v", name, err)
		}
	})
	eventually(t, name+" to be ready", func(ctx context.Context) error {
		if err := tm.client.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
			return err
		}
		node.Status = *first.Status.DeepCopy()
		return tm.client.Status().Update(ctx, node)
	})
}

// asked are the requests for nodes of the namespace, as job and number of pods.
func (tm team) asked(ctx context.Context) ([]string, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(provisioningGVK.GroupVersion().WithKind("ProvisioningRequestList"))
	if err := tm.client.List(ctx, list, client.InNamespace(tm.namespace)); err != nil {
		return nil, err
	}
	var out []string
	for _, request := range list.Items {
		sets, _, _ := unstructured.NestedSlice(request.Object, "spec", "podSets")
		for _, set := range sets {
			count, _, _ := unstructured.NestedInt64(set.(map[string]any), "count")
			out = append(out, fmt.Sprintf("%s: %d", request.GetName(), count))
		}
	}
	return out, nil
}

func nodesForAJob(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "q", 32)
	tm.create(t, "gang", "q", 3, 8)
	tm.waits(t, "gang", "ExceedsCluster", "nodes are asked for by ProvisioningRequest job-gang-")
	tm.nodeComes(t, "comes-1")
	tm.waits(t, "gang", "ExceedsCluster", "needs 24 GPUs; the cluster has 16")
	if asked, err := tm.asked(t.Context()); err != nil || len(asked) != 1 {
		t.Errorf("nodes are asked for by %q (%v), want one request", asked, err)
	}
	tm.usage(t, "q", 0, 0, 1)
	tm.nodeComes(t, "comes-2")
	tm.runs(t, "gang", 3)
	eventually(t, "the request to be gone", func(ctx context.Context) error {
		asked, err := tm.asked(ctx)
		if len(asked) > 0 {
			return fmt.Errorf("nodes are asked for by %q", asked)
		}
		return err
	})
	tm.end(t, "gang")
	tm.usage(t, "q", 0, 0, 0)
}

func nodesForAGroup(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "q", 32)
	pods := tm.members("gang", "q", 3, 8, nil)
	for _, pod := range pods {
		tm.make(t, pod)
	}
	for _, pod := range pods {
		tm.podWaits(t, pod, corev1.PodReasonUnschedulable)
	}
	tm.nodeComes(t, "comes-3")
	tm.usage(t, "q", 0, 0, 1)
	for _, pod := range pods {
		tm.podWaits(t, pod, corev1.PodReasonUnschedulable)
		if err := tm.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || pod.Spec.NodeName != "" {
			t.Errorf("%s is on node %q (%v) before there is room for all", pod.Name, pod.Spec.NodeName, err)
		}
	}
	tm.nodeComes(t, "comes-4")
	tm.started(t, pods...)
	for _, pod := range pods {
		if err := tm.client.Delete(t.Context(), pod); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	}
	tm.usage(t, "q", 0, 0, 0)
}

func noNodesOverQuota(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "q", 8)
	tm.create(t, "runs", "q", 1, 8)
	tm.runs(t, "runs", 1)
	tm.create(t, "waits", "q", 1, 8)
	tm.waits(t, "waits", "WaitingForQuota", "0 of 8 free")
	pods := tm.members("gang", "q", 2, 4, nil)
	tm.make(t, pods[0], pods[1])
	for _, pod := range pods {
		tm.podWaits(t, pod, "WaitingForQuota")
	}
	if asked, err := tm.asked(t.Context()); err != nil || len(asked) > 0 {
		t.Errorf("nodes are asked for by %q (%v), want none", asked, err)
	}
}

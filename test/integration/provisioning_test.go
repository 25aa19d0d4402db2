package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/internal/testobject"
)

var provisioningGVK = schema.GroupVersionKind{Group: "autoscaling.x-k8s.io", Version: "v1", Kind: "ProvisioningRequest"}

// request waits until there is a request for the nodes of a job, and returns it.
func (e *env) request(t *testing.T, job client.Object) *unstructured.Unstructured {
	t.Helper()
	request := &unstructured.Unstructured{}
	request.SetGroupVersionKind(provisioningGVK)
	testcluster.Eventually(t, "a ProvisioningRequest for "+job.GetName(), func(ctx context.Context) error {
		wl, err := e.workload(ctx, job)
		if err != nil {
			return err
		}
		if err := e.Client.Get(ctx, client.ObjectKeyFromObject(wl), request); err != nil {
			return err
		}
		if !metav1.IsControlledBy(request, wl) {
			return fmt.Errorf("it is owned by %v", request.GetOwnerReferences())
		}
		return nil
	})
	return request
}

// asked are the pod sets of a request: how many pods, with how many GPUs.
func (e *env) asked(t *testing.T, request *unstructured.Unstructured) string {
	t.Helper()
	var out []string
	sets, _, _ := unstructured.NestedSlice(request.Object, "spec", "podSets")
	for _, set := range sets {
		count, _, _ := unstructured.NestedInt64(set.(map[string]any), "count")
		name, _, _ := unstructured.NestedString(set.(map[string]any), "podTemplateRef", "name")
		template := &corev1.PodTemplate{}
		if err := e.Client.Get(t.Context(), client.ObjectKey{Namespace: e.namespace, Name: name}, template); err != nil {
			t.Fatal(err)
		}
		limits := template.Template.Spec.Containers[0].Resources.Limits[testcluster.GPU]
		out = append(out, fmt.Sprintf("%dx%d", count, limits.Value()))
	}
	return strings.Join(out, " ")
}

// requests are all requests and templates of the namespace.
func (e *env) requests(ctx context.Context) (int, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(provisioningGVK.GroupVersion().WithKind("ProvisioningRequestList"))
	if err := e.Client.List(ctx, list, client.InNamespace(e.namespace)); err != nil {
		return 0, err
	}
	var templates corev1.PodTemplateList
	if err := e.Client.List(ctx, &templates, client.InNamespace(e.namespace)); err != nil {
		return 0, err
	}
	return len(list.Items) + len(templates.Items), nil
}

func init() {
	scenarios = append(scenarios, provisioningScenarios...)
}

var provisioningScenarios = []scenario{
	{name: "nodes are asked for once for a whole job that has quota, until it starts", configure: func(c *configv1alpha1.SchedulerConfiguration) {
		c.Autoscaling.ProvisioningRequests.ClassName = "check-capacity.autoscaling.x-k8s.io"
		c.Autoscaling.ProvisioningRequests.Parameters = map[string]string{"ValidUntilSeconds": "600"}
	}, run: func(t *testing.T, e *env) {
		e.AddKind(t, provisioningGVK)
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 32)
		gang := e.job("gang", "team", 3, 8)
		e.Create(t, gang)
		request := e.request(t, gang)
		testcluster.Eventually(t, "a younger job to be behind it", func(context.Context) error {
			if time.Now().Unix() <= gang.CreationTimestamp.Unix() {
				return errors.New("it would be of the same second")
			}
			return nil
		})
		beyond := e.job("beyond", "team", 2, 8)
		e.Create(t, beyond)
		if got := e.asked(t, request); got != "3x8" {
			t.Errorf("it asks for %s, want 3x8", got)
		}
		spec, _, _ := unstructured.NestedMap(request.Object, "spec")
		if spec["provisioningClassName"] != "check-capacity.autoscaling.x-k8s.io" || fmt.Sprint(spec["parameters"]) != "map[ValidUntilSeconds:600]" {
			t.Errorf("it says %v", spec)
		}
		e.pending(t, gang, "ExceedsCluster", "nodes are asked for by ProvisioningRequest "+request.GetName())
		e.pending(t, beyond, "ExceedsCluster", "")
		testobject.ChangeStatus(t, e.Client, request, func(request *unstructured.Unstructured) {
			if err := unstructured.SetNestedSlice(request.Object, []any{map[string]any{
				"type": "Failed", "status": "True", "reason": "CapacityIsNotFound", "message": "there are no such nodes",
				"lastTransitionTime": metav1.Now().UTC().Format("2006-01-02T15:04:05Z"),
			}}, "status", "conditions"); err != nil {
				t.Fatal(err)
			}
		})
		e.event(t, gang, "NodesRefused", "brings no nodes (CapacityIsNotFound): there are no such nodes")
		e.pending(t, gang, "ExceedsCluster", "brings no nodes (CapacityIsNotFound): there are no such nodes")
		if n, err := e.requests(t.Context()); n != 2 || err != nil {
			t.Errorf("there are %d requests and templates (%v), want one of each", n, err)
		}
		// It would take the place of the gang's first nodes.
		if err := e.Client.Delete(t.Context(), beyond); err != nil {
			t.Fatal(err)
		}
		e.Node(t, "node-1", 8)
		e.pending(t, gang, "ExceedsCluster", "the cluster has 16")
		e.Node(t, "node-2", 8)
		e.runs(t, gang, 3)
		testcluster.Eventually(t, "the request to be gone", func(ctx context.Context) error {
			if err := e.Client.Get(ctx, client.ObjectKeyFromObject(request), request); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there (%v)", err)
			}
			n, err := e.requests(ctx)
			if n > 0 {
				return fmt.Errorf("there are %d requests and templates (%v)", n, err)
			}
			return err
		})
	}},
}

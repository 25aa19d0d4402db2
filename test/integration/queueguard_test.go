package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/manifests"
	"github.com/muster-gpu/muster/workload"
)

// TestRunningJobsKeepTheirQueue applies the policies that guard the queue and the
// group of what runs, and changes objects of each kind.
func TestRunningJobsKeepTheirQueue(t *testing.T) {
	c := testcluster.Start(t)
	c.Namespace(t, "team")
	for _, kind := range []schema.GroupVersionKind{
		{Group: "kubeflow.org", Version: "v1", Kind: "PyTorchJob"}, {Group: "ray.io", Version: "v1", Kind: "RayCluster"},
		{Group: "ray.io", Version: "v1", Kind: "RayJob"},
	} {
		c.AddKind(t, kind)
	}
	for _, object := range manifest(t, "base/queueing/policy.yaml") {
		c.Create(t, object)
	}
	probe := guarded(t, "batch/v1", "Job", "probe", false)
	c.Create(t, probe)
	testcluster.Eventually(t, "the policy to be in force", func(ctx context.Context) error {
		if relabel(ctx, c, probe, `{"labels":{"kueue.x-k8s.io/queue-name":"other"}}`, client.DryRunAll) == nil {
			return fmt.Errorf("it refuses nothing")
		}
		return nil
	})

	const (
		moved   = `{"labels":{"kueue.x-k8s.io/queue-name":"other"}}`
		removed = `{"labels":{"kueue.x-k8s.io/queue-name":null}}`
		besides = `{"labels":{"team":"x"},"annotations":{"note":"y"}}`
	)
	kinds := []struct{ apiVersion, kind string }{
		{"batch/v1", "Job"}, {"jobset.x-k8s.io/v1alpha2", "JobSet"}, {"trainer.kubeflow.org/v1alpha1", "TrainJob"},
		{"kubeflow.org/v1", "PyTorchJob"}, {"ray.io/v1", "RayCluster"}, {"ray.io/v1", "RayJob"},
	}
	for _, k := range kinds {
		t.Run("a "+k.kind, func(t *testing.T) {
			runs := guarded(t, k.apiVersion, k.kind, "runs-"+strings.ToLower(k.kind), false)
			c.Create(t, runs)
			waits := guarded(t, k.apiVersion, k.kind, "waits-"+strings.ToLower(k.kind), true)
			c.Create(t, waits)
			free := guarded(t, k.apiVersion, k.kind, "free-"+strings.ToLower(k.kind), false)
			free.SetLabels(nil)
			c.Create(t, free)
			over := guarded(t, k.apiVersion, k.kind, "over-"+strings.ToLower(k.kind), false)
			c.Create(t, over)
			ended(t, c, over)
			for _, tc := range []struct {
				name    string
				object  client.Object
				change  string
				refused string
			}{
				{"that runs is not moved", runs, moved, "the job runs in queue q"},
				{"that runs keeps its queue", runs, removed, "suspend it before its label kueue.x-k8s.io/queue-name is changed"},
				{"that runs may have other labels", runs, besides, ""},
				{"that runs in no queue may get one", free, moved, ""},
				{"that waits may move", waits, moved, ""},
				{"that waits may leave its queue", waits, removed, ""},
				{"that has ended may be labelled as anybody likes", over, removed, ""},
			} {
				refusedWith(t, tc.name, relabel(t.Context(), c, tc.object, tc.change), tc.refused)
			}
		})
	}

	t.Run("a pod", func(t *testing.T) {
		pod := func(name, node string, labels map[string]string) *corev1.Pod {
			p := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: labels},
				Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "x"}}},
			}
			c.Create(t, p)
			return p
		}
		group := map[string]string{workload.QueueLabel: "q", workload.KueueGroupLabel: "g", workload.PodGroupLabel: "g"}
		runs, waits, free := pod("runs", "node-0", group), pod("waits", "", group), pod("free", "node-0", nil)
		over := pod("over", "node-0", group)
		over.Status.Phase = corev1.PodSucceeded
		if err := c.Client.Status().Update(t.Context(), over); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			name    string
			object  client.Object
			change  string
			refused string
		}{
			{"on a node is not moved", runs, moved, "counted by its label kueue.x-k8s.io/queue-name"},
			{"on a node keeps its queue", runs, removed, "counted by its label kueue.x-k8s.io/queue-name"},
			{"on a node keeps its group of Kueue's", runs, `{"labels":{"kueue.x-k8s.io/pod-group-name":"h"}}`, "label kueue.x-k8s.io/pod-group-name"},
			{"on a node keeps its PodGroup", runs, `{"labels":{"scheduling.x-k8s.io/pod-group":null}}`, "label scheduling.x-k8s.io/pod-group"},
			{"on a node keeps the size of its group", runs, `{"annotations":{"kueue.x-k8s.io/pod-group-total-count":"9"}}`, "annotation kueue.x-k8s.io/pod-group-total-count"},
			{"on a node joins no group", free, `{"labels":{"kueue.x-k8s.io/pod-group-name":"g"}}`, "label kueue.x-k8s.io/pod-group-name"},
			{"on a node may have other labels", runs, besides, ""},
			{"on a node that is in no queue may get one", free, moved, ""},
			{"without a node may move", waits, moved, ""},
			{"that has ended may be labelled as anybody likes", over, removed, ""},
		} {
			refusedWith(t, tc.name, relabel(t.Context(), c, tc.object, tc.change), tc.refused)
		}
	})
}

// guarded is an object of a kind, in queue q, as much of it as its definition wants.
func guarded(t *testing.T, apiVersion, kind, name string, suspended bool) *unstructured.Unstructured {
	t.Helper()
	const pod = `{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"x"}]}}`
	specs := map[string]string{
		"Job":        `{"suspend":%t,"template":` + pod + `}`,
		"JobSet":     `{"suspend":%t,"replicatedJobs":[{"name":"node","template":{"spec":{"template":` + pod + `}}}]}`,
		"TrainJob":   `{"suspend":%t,"runtimeRef":{"name":"torch"}}`,
		"PyTorchJob": `{"runPolicy":{"suspend":%t}}`,
		"RayCluster": `{"suspend":%t}`,
		"RayJob":     `{"suspend":%t}`,
	}
	u := &unstructured.Unstructured{}
	content := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"namespace":"team","name":%q,"labels":{%q:"q"}},"spec":`+specs[kind]+`}`,
		apiVersion, kind, name, workload.QueueLabel, suspended)
	if err := u.UnmarshalJSON([]byte(content)); err != nil {
		t.Fatal(err)
	}
	return u
}

// ended says in the status of an object that it is over, in each way in which
// controllers do.
func ended(t *testing.T, c *testcluster.Cluster, u *unstructured.Unstructured) {
	t.Helper()
	over := map[string]string{"Job": "Complete", "JobSet": "Completed", "TrainJob": "Complete", "PyTorchJob": "Succeeded", "RayCluster": "Failed"}[u.GetKind()]
	condition := func(kind string) string {
		return fmt.Sprintf(`{"type":%q,"status":"True","reason":"Done","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}`, kind)
	}
	status := `{"status":{"conditions":[` + condition(over) + `]}}`
	if u.GetKind() == "Job" {
		status = `{"status":{"startTime":"2026-01-01T00:00:00Z","completionTime":"2026-01-01T00:00:01Z","succeeded":1,"conditions":[` +
			condition("SuccessCriteriaMet") + `,` + condition(over) + `]}}`
	}
	if u.GetKind() == "RayJob" {
		status = `{"status":{"jobDeploymentStatus":"Complete","jobStatus":"SUCCEEDED"}}`
	}
	if err := c.Client.Status().Patch(t.Context(), u, client.RawPatch("application/merge-patch+json", []byte(status))); err != nil {
		t.Fatalf("ending %s %s: %v", u.GetKind(), u.GetName(), err)
	}
}

func relabel(ctx context.Context, c *testcluster.Cluster, obj client.Object, metadata string, options ...client.PatchOption) error {
	return c.Client.Patch(ctx, obj.DeepCopyObject().(client.Object),
		client.RawPatch("application/merge-patch+json", []byte(`{"metadata":`+metadata+`}`)), options...)
}

// refusedWith checks that an answer refuses with those words, or, without words, that
// it does not refuse.
func refusedWith(t *testing.T, what string, err error, words string) {
	t.Helper()
	switch {
	case words == "" && err != nil:
		t.Errorf("one %s: refused: %v", what, err)
	case words != "" && err == nil:
		t.Errorf("one %s: not refused", what)
	case words != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), words)):
		t.Errorf("one %s: refused without %q: %v", what, words, err)
	}
}

// manifest is what a file of the manifests holds.
func manifest(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	content, err := manifests.FS.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, object)
	}
}

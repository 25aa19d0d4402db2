package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/placement"
)

func init() { scenarios = append(scenarios, islandScenarios...) }

// enforcing has islands enforced in a way.
func enforcing(how string) func(*configv1alpha1.SchedulerConfiguration) {
	return func(c *configv1alpha1.SchedulerConfiguration) { c.Islands.Enforcement = how }
}

var islandScenarios = []scenario{
	{name: "where nodes choose the GPUs, a pod of 2 goes where close ones may be free, not where it fits better", configure: enforcing(configv1alpha1.IslandsPredict), run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.cards(t, "node-1", 8)
		e.Queue(t, e.namespace, "team", 16)
		e.alone(t, "six", 6, "node-0")
		if got := e.alone(t, "pair", 2, ""); got != "node-1: " {
			t.Errorf("it is on %s, want node-1 and no GPUs", got)
		}
		// One of which it does not matter goes where it fits best.
		if got := e.alone(t, "single", 1, ""); got != "node-0: " {
			t.Errorf("a single GPU is on %s, want node-0", got)
		}
	}},
	{name: "GPUs are written on pods: close ones, on the node that has some", configure: enforcing(configv1alpha1.IslandsAnnotation), run: func(t *testing.T, e *env) {
		e.cards(t, "node-0", 4)
		e.cards(t, "node-1", 4)
		e.Queue(t, e.namespace, "team", 16)
		var got []string
		for i := range 4 {
			got = append(got, e.alone(t, fmt.Sprint("first-", i), 1, "node-0"))
		}
		e.succeed(t, e.pod("first-1", 1, nil), e.pod("first-3", 1, nil))
		e.usage(t, "team", 2, 2, 0)
		// Two GPUs are free on node-0, of different roots: a pod of two would fit there best.
		got = append(got, e.alone(t, "pair", 2, ""), e.alone(t, "single", 1, "node-1"))
		want := []string{"node-0: 0", "node-0: 1", "node-0: 2", "node-0: 3", "node-1: 0,1", "node-1: 2"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("nodes and GPUs of one pod after the other (-want +got):\n%s", diff)
		}
		job := e.job("job", "team", 1, 4)
		e.Create(t, job)
		e.pending(t, job, "NoPlacement", "needs 4 GPUs; 3 GPUs are free; 2 more GPUs are missing, on one node")
	}},
	{name: "GPUs of which something is said that cannot be are told, and pods run there", configure: enforcing(configv1alpha1.IslandsAnnotation), run: func(t *testing.T, e *env) {
		e.cards(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 16)
		if got := e.alone(t, "before", 2, ""); got != "node-0: 0,1" {
			t.Errorf("the first pod is on %s, want node-0: 0,1", got)
		}
		slice := e.published(t, "node-0", 4)
		e.doubted(t, "node-0", "its ResourceSlices have 4 GPUs, and it advertises 8")
		// Which are meant nobody knows.
		if got := e.alone(t, "doubted", 2, ""); got != "node-0: " {
			t.Errorf("a pod is on %s while the GPUs are in doubt, want node-0 and none", got)
		}
		e.remove(t, slice)
		e.node(t, "node-0", func(n *corev1.Node) {
			n.Status.Capacity["nvidia.com/mig-1g.10gb"] = resource.MustParse("7")
			n.Status.Allocatable["nvidia.com/mig-1g.10gb"] = resource.MustParse("7")
		})
		e.doubted(t, "node-0", "it advertises whole GPUs and slices of others")
		e.alone(t, "mixed", 2, "")
	}},
}

// cards makes a node of so many cards, of which each two share a PCIe root.
func (e *env) cards(t *testing.T, name string, n int64) {
	t.Helper()
	e.Node(t, name, n)
	e.labelNode(t, name, "nvidia.com/gpu.product", "NVIDIA-L40S")
}

// published publishes GPUs of a node as devices.
func (e *env) published(t *testing.T, node string, n int) *resourceapi.ResourceSlice {
	t.Helper()
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-gpus"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: gpu.Driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
	}}
	for i := range n {
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: fmt.Sprintf("gpu-%d", i)})
	}
	e.Create(t, slice)
	return slice
}

// doubted waits until a node is told what cannot be true of its GPUs.
func (e *env) doubted(t *testing.T, name, part string) {
	t.Helper()
	testcluster.Eventually(t, name+" to be told of its GPUs", func(ctx context.Context) error {
		var events corev1.EventList
		if err := e.Client.List(ctx, &events); err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.InvolvedObject.Kind == "Node" && event.InvolvedObject.Name == name && event.Reason == "GPUsInDoubt" && strings.Contains(event.Message, part) {
				return nil
			}
		}
		return fmt.Errorf("it is told nothing of %q", part)
	})
}

// alone runs a pod of a queue, on a node if one is named, and returns where it is and
// which GPUs are written on it.
func (e *env) alone(t *testing.T, name string, gpus int64, node string) string {
	t.Helper()
	pod := e.pod(name, gpus, queued("team"))
	if node != "" {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	e.Create(t, pod)
	e.onNode(t, pod)
	have, err := e.now(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	return have.Spec.NodeName + ": " + have.Annotations[placement.GPUsAnnotation]
}

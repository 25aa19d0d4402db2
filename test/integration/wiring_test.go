package integration

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	musterv1alpha1 "github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/placement"
)

func init() { scenarios = append(scenarios, wiringScenarios...) }

// wiringScenarios are about nodes of whose GPUs their agents alone say how they are joined.
var wiringScenarios = []scenario{
	{name: "GPUs are joined as the agent says, and when that changes the running pod keeps its own", configure: enforcing(configv1alpha1.IslandsAnnotation), run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 6)
		e.Queue(t, e.namespace, "team", 16)
		e.wired(t, "node-0", 3, 2, 1, 0, 5, 4)
		first := e.untilGiven(t, "first", "0,3")
		if diff := cmp.Diff("GPU-0,GPU-3", e.annotation(t, first, placement.UUIDsAnnotation)); diff != "" {
			t.Errorf("UUIDs (-want +got):\n%s", diff)
		}
		// Beside it there were 1 and 2, and 4 and 5.
		e.wired(t, "node-0", 3, 4, 5, 0, 1, 2)
		e.untilGiven(t, "second", "1,4")
		if got := e.alone(t, "third", 2, ""); got != "node-0: 2,5" {
			t.Errorf("the third pod is on %s, want node-0: 2,5", got)
		}
		if diff := cmp.Diff("0,3", e.annotation(t, first, placement.GPUsAnnotation)); diff != "" {
			t.Errorf("GPUs of the running pod (-want +got):\n%s", diff)
		}
	}},
	{name: "an agent that tells of other GPUs than the node has is told so", configure: enforcing(configv1alpha1.IslandsAnnotation), run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 16)
		e.wired(t, "node-0", 1, 0)
		e.doubted(t, "node-0", "its GPUNode has 2 GPUs, and it advertises 8")
		if got := e.alone(t, "doubted", 2, ""); got != "node-0: " {
			t.Errorf("a pod is on %s while the GPUs are in doubt, want node-0 and none", got)
		}
	}},
}

// wired has the agent of a node say which GPU each one has an NVLink to.
func (e *env) wired(t *testing.T, node string, peers ...int32) {
	t.Helper()
	said := &musterv1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(said), said); err != nil {
		e.Create(t, said)
	}
	said.Status = musterv1alpha1.GPUNodeStatus{LastHeartbeat: metav1.Now()}
	for minor, peer := range peers {
		said.Status.Devices = append(said.Status.Devices, musterv1alpha1.GPUDevice{UUID: fmt.Sprint("GPU-", minor), Minor: int32(minor), NVLinkPeers: []int32{peer}})
	}
	if err := e.Client.Status().Update(t.Context(), said); err != nil {
		t.Fatal(err)
	}
}

// untilGiven runs a pod of two GPUs, again until it has got these: until the scheduler
// has heard of the node. It returns the name of the last.
func (e *env) untilGiven(t *testing.T, name, gpus string) (last string) {
	t.Helper()
	try := 0
	testcluster.Eventually(t, "a pod to get GPUs "+gpus, func(ctx context.Context) error {
		last = fmt.Sprint(name, "-", try)
		try++
		got := e.alone(t, last, 2, "")
		if got == "node-0: "+gpus {
			return nil
		}
		pod := e.pod(last, 2, nil)
		if err := e.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
			return err
		}
		e.isGone(t, pod)
		return fmt.Errorf("%s is on %s", last, got)
	})
	return last
}

// annotation is one of a pod.
func (e *env) annotation(t *testing.T, pod, key string) string {
	t.Helper()
	found := e.pod(pod, 2, nil)
	if err := e.Client.Get(t.Context(), types.NamespacedName{Namespace: e.namespace, Name: pod}, found); err != nil {
		t.Fatal(err)
	}
	return found.Annotations[key]
}

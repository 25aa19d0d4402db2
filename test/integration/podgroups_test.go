package integration

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/workload"
)

// memberOf is a pod of a PodGroup, which names no queue itself.
func (e *env) memberOf(group, name string, gpuCount int64) *corev1.Pod {
	return e.pod(name, gpuCount, map[string]string{workload.PodGroupLabel: group})
}

// phase waits until a PodGroup is in a phase with as many pods that run, and that
// have succeeded.
func (e *env) phase(t *testing.T, group *unstructured.Unstructured, phase string, running, succeeded int64) {
	t.Helper()
	testcluster.Eventually(t, "PodGroup "+group.GetName()+" to be "+phase, func(ctx context.Context) error {
		if err := e.Client.Get(ctx, client.ObjectKeyFromObject(group), group); err != nil {
			return err
		}
		status, _, _ := unstructured.NestedMap(group.Object, "status")
		n, _ := status["running"].(int64)
		over, _ := status["succeeded"].(int64)
		if status["phase"] != phase || n != running || over != succeeded {
			return fmt.Errorf("its status is %v, want %d running and %d succeeded", status, running, succeeded)
		}
		return nil
	})
}

// looked waits until the scheduler has looked at what pods of PodGroups did before: it
// does so in their order, and says of one more PodGroup that its pod is on a node.
func (e *env) looked(t *testing.T, more string) {
	t.Helper()
	group := e.podGroup(more, "team", 1)
	e.Create(t, group)
	e.Create(t, e.memberOf(more, more+"-0", 1))
	e.phase(t, group, "Scheduling", 0, 0)
}

func init() {
	scenarios = append(scenarios, podGroupScenarios...)
}

var podGroupScenarios = []scenario{
	{name: "pods that name a PodGroup wait until it exists, and then it says their queue", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 16)
		e.Queue(t, e.namespace, "team", 8)
		var pods []*corev1.Pod
		for i := range 3 {
			pods = append(pods, e.memberOf("ddd", fmt.Sprintf("ddd-%d", i), 4))
			e.Create(t, pods[i])
		}
		e.podEvent(t, pods[2], "Pending", "pending: PodGroup ddd does not exist")
		e.waits(t, pods...)
		e.Create(t, e.podGroup("ddd", "team", 3))
		e.podEvent(t, pods[2], "Pending", "needs 12 GPUs in queue team, the quota is 8")
		e.waits(t, pods...)
		if err := e.Client.Delete(t.Context(), pods[2]); err != nil {
			t.Fatal(err)
		}
		e.podEvent(t, pods[0], "Pending", "2 of 3 pods of group ddd exist")
		small := e.memberOf("ddd", "ddd-3", 0)
		small.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		e.Create(t, small)
		e.onNode(t, pods[0], pods[1], small)
		e.usage(t, "team", 8, 1, 0)
	}},
	{name: "a PodGroup says in which phase it is, as far as its pods are, and what it said last without them", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 16)
		e.Queue(t, e.namespace, "team", 16)
		group := e.podGroup("ddd", "team", 2)
		e.Create(t, group)
		e.phase(t, group, "Pending", 0, 0)
		first, second := e.memberOf("ddd", "ddd-0", 4), e.memberOf("ddd", "ddd-1", 4)
		e.Create(t, first)
		e.looked(t, "more-0")
		e.waits(t, first)
		e.phase(t, group, "Pending", 0, 0)
		e.Create(t, second)
		e.onNode(t, first, second)
		e.phase(t, group, "Scheduling", 0, 0)
		e.become(t, corev1.PodRunning, first)
		e.phase(t, group, "Scheduling", 1, 0)
		e.become(t, corev1.PodRunning, second)
		e.phase(t, group, "Running", 2, 0)
		e.restart(t)
		e.succeed(t, first)
		e.phase(t, group, "Running", 1, 1)
		e.succeed(t, second)
		e.phase(t, group, "Finished", 0, 2)
		e.remove(t, first)
		e.remove(t, second)
		e.looked(t, "more-1")
		e.phase(t, group, "Finished", 0, 2)
	}},
	{name: "pods of a group of Volcano's start as one if they say how many there are, else alone with a warning", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 16)
		e.Queue(t, e.namespace, "team", 12)
		of := func(name, least string) *corev1.Pod {
			pod := e.pod(name, 4, queued("team"))
			pod.Annotations = map[string]string{workload.VolcanoGroupAnnotation: "gang"}
			if least != "" {
				pod.Annotations[workload.VolcanoMinMemberAnnotation] = least
			}
			return pod
		}
		first, second, alone := of("first", "2"), of("second", "2"), of("alone", "")
		e.Create(t, first)
		e.Create(t, alone)
		e.podEvent(t, alone, "InvalidAnnotation", "scheduling.volcano.sh/group-min-member")
		e.onNode(t, alone)
		e.podEvent(t, first, "Pending", "1 of 2 pods of group gang exist")
		e.waits(t, first)
		e.Create(t, second)
		e.onNode(t, first, second)
		e.usage(t, "team", 12, 2, 0)
		e.succeed(t, second)
		e.restart(t)
		e.succeed(t, first)
		e.usage(t, "team", 4, 1, 0)
	}},
	{name: "a PodGroup without a queue lets its pods run, and one that comes when it has got one waits for them to go", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 16)
		// Enough for the one that waits: the group must not start as long as another
		// is still there, which would have a place in it.
		e.Queue(t, e.namespace, "team", 4)
		group := e.podGroup("ddd", "team", 1)
		group.SetLabels(nil)
		first := e.memberOf("ddd", "ddd-0", 4)
		e.Create(t, first)
		e.podEvent(t, first, "Pending", "PodGroup ddd does not exist")
		e.Create(t, group)
		e.onNode(t, first)
		second := e.memberOf("ddd", "ddd-1", 4)
		e.Create(t, second)
		e.onNode(t, second)
		e.usage(t, "team", 0, 0, 0)
		testcluster.Eventually(t, "the PodGroup to name a queue", func(ctx context.Context) error {
			if err := e.Client.Get(ctx, client.ObjectKeyFromObject(group), group); err != nil {
				return err
			}
			group.SetLabels(queued("team"))
			return e.Client.Update(ctx, group)
		})
		third := e.memberOf("ddd", "ddd-2", 4)
		e.Create(t, third)
		e.podEvent(t, third, "Pending", "without having been admitted; the group starts when it is gone")
		e.waits(t, third)
		e.succeed(t, first, second)
		for _, pod := range []*corev1.Pod{first, second} {
			if err := e.Client.Delete(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		e.onNode(t, third)
		e.usage(t, "team", 4, 1, 0)
	}},
}

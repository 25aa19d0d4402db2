package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestNodes tells what becomes of jobs whose nodes go away, with the real
// controllers of nodes, Jobs and JobSets.
func TestNodes(t *testing.T) {
	c := up(t, "nodes")
	tm := c.team(t, "nodes")
	tm.queueUp(t, "q", 32)
	tm.create(t, job{name: "gang", queue: "q", nodes: 2, gpus: 8})
	before := tm.runs(t, "gang", 2)
	lost := before[0]

	// Its node is not ready for a moment, in which a pod of it is lost.
	tm.ready(t, lost.Spec.NodeName, false)
	if err := tm.client.Delete(t.Context(), &lost, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	var again *corev1.Pod
	eventually(t, "the pod to be made again", func(ctx context.Context) error {
		pods, err := tm.pods(ctx, "gang")
		if err != nil {
			return err
		}
		at := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.UID != before[0].UID && p.UID != before[1].UID })
		if at < 0 {
			return fmt.Errorf("there are %d pods", len(pods))
		}
		again = &pods[at]
		return nil
	})
	// There are two free nodes, and the room of the lost one is still held.
	tm.create(t, job{name: "other", queue: "q", nodes: 2, gpus: 8})
	tm.runs(t, "other", 2)
	if err := tm.client.Get(t.Context(), client.ObjectKeyFromObject(again), again); err != nil || again.Spec.NodeName != "" {
		t.Fatalf("the pod is on node %q while its own is away (%v)", again.Spec.NodeName, err)
	}
	tm.ready(t, lost.Spec.NodeName, true)
	for _, pod := range tm.runs(t, "gang", 2) {
		if pod.UID == again.UID && pod.Spec.NodeName != lost.Spec.NodeName {
			t.Errorf("the pod came back to %s, and was on %s", pod.Spec.NodeName, lost.Spec.NodeName)
		}
	}
	tm.usage(t, "q", 32, 2, 0)
}

// ready has a node's kubelet say that it is ready, or not.
func (tm team) ready(t *testing.T, name string, ready bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s ready: %v", name, ready), func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := tm.client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		status := corev1.ConditionFalse
		if ready {
			status = corev1.ConditionTrue
		}
		for i := range node.Status.Conditions {
			if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
				c.Status, c.Reason, c.LastTransitionTime = status, "Test", metav1.Now()
			}
		}
		return tm.client.Status().Update(ctx, node)
	})
}

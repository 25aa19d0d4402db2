package simulator

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
)

// newFakeClient is an API that counts the versions of pods, which the fake
// alone does not.
func newFakeClient() kubernetes.Interface {
	client := fake.NewClientset()
	var version atomic.Int64
	write := clienttesting.ObjectReaction(client.Tracker())
	client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		handled, object, err := write(a)
		pod, ok := object.(*corev1.Pod)
		if err != nil || !ok {
			return handled, object, err
		}
		pod = pod.DeepCopy()
		pod.ResourceVersion = strconv.FormatInt(version.Add(1), 10)
		return true, pod, client.Tracker().Update(a.GetResource(), pod, pod.Namespace)
	})
	return client
}

// startSimulator runs a simulator of one node with two GPUs until the returned
// function is called.
func startSimulator(t *testing.T, client kubernetes.Interface) (stop func()) {
	t.Helper()
	return startSimulatorOf(t, client, Options{Nodes: 1, GPUsPerNode: 2})
}

func startSimulatorOf(t *testing.T, client kubernetes.Interface, options Options) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	s := newSimulator(client, clock.RealClock{}, options)
	go func() { done <- s.run(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil && ctx.Err() == nil {
			t.Errorf("simulator: %v", err)
		}
	}
	return stop
}

func createPod(t *testing.T, client kubernetes.Interface, name string, gpus int64, annotations map[string]string) {
	t.Helper()
	limits := corev1.ResourceList{GPUResource: *resource.NewQuantity(gpus, resource.DecimalSI)}
	_, err := client.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), Annotations: annotations},
		Spec: corev1.PodSpec{NodeName: "node-0", Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Requests: limits, Limits: limits},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// awaitPhase waits until a pod is in a phase, and returns it.
func awaitPhase(t *testing.T, client kubernetes.Interface, name string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	err := utilwait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		var err error
		pod, err = client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == phase, err
	})
	if err != nil {
		t.Fatalf("pod %s is not %s: %v", name, phase, err)
	}
	return pod
}

func TestGPUsSurviveARestartAndComeBackWhenTheirPodIsGone(t *testing.T) {
	client := newFakeClient()
	stop := startSimulator(t, client)
	createPod(t, client, "holder", 2, nil)
	if got := awaitPhase(t, client, "holder", corev1.PodRunning).Annotations[GPUsAnnotation]; got != "0,1" {
		t.Errorf("GPUs of the first pod = %q, want 0,1", got)
	}
	createPod(t, client, "early", 1, nil)
	if got := awaitPhase(t, client, "early", corev1.PodFailed).Status.Reason; got != "UnexpectedAdmissionError" {
		t.Errorf("reason of a pod without GPUs = %q, want UnexpectedAdmissionError", got)
	}
	stop()

	// A pod that is bound in between may be read before those that hold GPUs.
	createPod(t, client, "between", 1, nil)
	stop = startSimulator(t, client)
	defer stop()
	createPod(t, client, "late", 1, nil)
	awaitPhase(t, client, "between", corev1.PodFailed)
	awaitPhase(t, client, "late", corev1.PodFailed)
	if err := client.CoreV1().Pods("default").Delete(t.Context(), "holder", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	createPod(t, client, "heir", 2, map[string]string{RunForAnnotation: "0s"})
	awaitPhase(t, client, "heir", corev1.PodSucceeded)
	// The heir has ended, so its GPUs are free although it still exists.
	createPod(t, client, "last", 2, nil)
	awaitPhase(t, client, "last", corev1.PodRunning)
}

func TestNodesAreRegisteredOnceAndKeepWhatOthersChanged(t *testing.T) {
	client := newFakeClient()
	stop := startSimulator(t, client)
	createPod(t, client, "p", 0, nil)
	awaitPhase(t, client, "p", corev1.PodRunning)
	stop()
	node, err := client.CoreV1().Nodes().Get(t.Context(), "node-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Spec.Unschedulable = true
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].Status = corev1.ConditionUnknown
	}
	if _, err := client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	stop = startSimulator(t, client)
	defer stop()
	createPod(t, client, "q", 0, nil)
	awaitPhase(t, client, "q", corev1.PodRunning)
	if node, err = client.CoreV1().Nodes().Get(t.Context(), "node-0", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if !node.Spec.Unschedulable || node.Status.Conditions[0].Status != corev1.ConditionUnknown {
		t.Errorf("a restart changed the node back: %+v, %+v", node.Spec, node.Status.Conditions[0])
	}
	lease, err := client.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), "node-0", metav1.GetOptions{})
	if err != nil || lease.Spec.RenewTime == nil {
		t.Errorf("lease of the node = %v, %v", lease, err)
	}
}

func TestAPodWithABadAnnotationIsRefusedWithAReason(t *testing.T) {
	client := newFakeClient()
	defer startSimulator(t, client)()
	createPod(t, client, "p", 0, map[string]string{RunForAnnotation: "soon"})
	if got := awaitPhase(t, client, "p", corev1.PodFailed).Status.Message; !strings.Contains(got, `sim.muster.dev/run-for is "soon"`) {
		t.Errorf("message = %q", got)
	}
}

func TestGPUsOfAPodThatSomebodyElseFailedAreFree(t *testing.T) {
	client := newFakeClient()
	defer startSimulator(t, client)()
	createPod(t, client, "p", 2, nil)
	pod := awaitPhase(t, client, "p", corev1.PodRunning).DeepCopy()
	pod.Status.Phase = corev1.PodFailed
	pod.ResourceVersion = "by somebody else"
	if _, err := client.CoreV1().Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	createPod(t, client, "q", 2, nil)
	awaitPhase(t, client, "q", corev1.PodRunning)
}

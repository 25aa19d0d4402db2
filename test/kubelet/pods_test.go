package kubelet

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/internal/simulator"
	"github.com/muster-gpu/muster/internal/testsandbox"
)

// namespace is that of all pods.
const namespace = "default"

// wants is how many GPUs a container of that name asks for.
type wants struct {
	container string
	gpus      int64
}

// makePod has a pod run on the node, and returns it when it does.
func (n *node) makePod(t *testing.T, name string, restarts corev1.RestartPolicy, containers ...wants) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName: nodeName, RestartPolicy: restarts,
			AutomountServiceAccountToken:  ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To(int64(5)),
		},
	}
	for _, w := range containers {
		c := corev1.Container{Name: w.container, Image: image, ImagePullPolicy: corev1.PullNever}
		if w.gpus > 0 {
			c.Resources.Limits = corev1.ResourceList{simulator.GPUResource: *resource.NewQuantity(w.gpus, resource.DecimalSI)}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	if err := n.cluster.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return n.awaitPod(t, name, func(p *corev1.Pod) bool {
		ready := 0
		for _, s := range p.Status.ContainerStatuses {
			if s.Ready {
				ready++
			}
		}
		return p.Status.Phase == corev1.PodRunning && ready == len(containers)
	})
}

// awaitPod waits until a pod is so.
func (n *node) awaitPod(t *testing.T, name string, so func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	testsandbox.Eventually(t, patience, "pod "+name, func(ctx context.Context) error {
		if err := n.cluster.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod); err != nil {
			return err
		}
		if !so(pod) {
			return fmt.Errorf("it is %s %s %s: %+v", pod.Status.Phase, pod.Status.Reason, pod.Status.Message, pod.Status.ContainerStatuses)
		}
		return nil
	})
	return pod
}

// restarted waits until the one container of a pod runs for that often again.
func (n *node) restarted(t *testing.T, name string, times int32) *corev1.Pod {
	t.Helper()
	return n.awaitPod(t, name, func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].RestartCount == times && s[0].Ready
	})
}

// removePod deletes a pod, and returns when it is gone.
func (n *node) removePod(t *testing.T, name string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := n.cluster.Client.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	testsandbox.Eventually(t, patience, "the end of pod "+name, func(ctx context.Context) error {
		err := n.cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there (%v)", err)
	})
}

// end has containerd end a container, as if it had ended by itself.
func (n *node) end(t *testing.T, pod *corev1.Pod, container string) {
	t.Helper()
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name != container {
			continue
		}
		_, id, _ := strings.Cut(s.ContainerID, "://")
		if _, err := n.runtime.StopContainer(t.Context(), &criapi.StopContainerRequest{ContainerId: id, Timeout: 10}); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("pod %s has no container %s", pod.Name, container)
}

// given are the GPUs that the containers of a pod say they were given when they were
// started last, by UUID, as holders.
func (n *node) given(t *testing.T, pod *corev1.Pod) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, s := range pod.Status.ContainerStatuses {
		path := n.path("logs", strings.Join([]string{pod.Namespace, pod.Name, string(pod.UID)}, "_"), s.Name, fmt.Sprintf("%d.log", s.RestartCount))
		var said string
		testsandbox.Eventually(t, patience, "the log of container "+s.Name, func(context.Context) error {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line, _, whole := strings.Cut(string(content), "\n")
			if _, said, _ = strings.Cut(line, "GPUs="); !whole || !strings.Contains(line, "GPUs=") {
				return fmt.Errorf("it says %q", content)
			}
			return nil
		})
		for uuid := range strings.FieldsFuncSeq(said, func(r rune) bool { return r == ',' }) {
			if !slices.Contains(n.plugin.uuids, uuid) || all[uuid] != "" {
				t.Errorf("container %s of pod %s was given %q", s.Name, pod.Name, uuid)
			}
			all[uuid] = holder(pod.Name, string(pod.UID), s.Name)
		}
	}
	return all
}

// holder names who holds a GPU.
func holder(pod, uid string, containers ...string) string {
	return pod + " (" + uid + "): " + strings.Join(containers, ", ")
}

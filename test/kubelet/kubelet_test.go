package kubelet

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/internal/sandbox"
	"github.com/muster-gpu/muster/internal/testsandbox"
)

// required is the environment variable that is set where the test must not be skipped.
const required = "MUSTER_TEST_KUBELET"

// TestKubelet tells what happens on a node of eight GPUs, one after the other. After
// each, the GPUNode names who was given which GPU, by what the containers themselves say.
func TestKubelet(t *testing.T) {
	if lacks := lacking(); lacks != "" {
		if os.Getenv(required) != "" {
			t.Fatal(lacks)
		}
		t.Skip(lacks)
	}
	uuids := make([]string, 8)
	for i := range uuids {
		uuids[i] = fmt.Sprintf("GPU-7c5f1d0a-93b2-4e68-a1d7-0f4be26c9d%02x", i)
	}
	c := testsandbox.Up(t, "kubelet", sandbox.Options{Nodes: 1, With: []string{sandbox.WithGPUAgent}})
	n := startNode(t, c, uuids)
	n.startAgent(t)
	want := map[string]string{}
	// holds adds what a pod was given to what is wanted.
	holds := func(t *testing.T, pod *corev1.Pod, gpus int) {
		t.Helper()
		given := n.given(t, pod)
		if len(given) != gpus {
			t.Fatalf("pod %s was given %v, want %d", pod.Name, given, gpus)
		}
		for uuid, holder := range given {
			if other := want[uuid]; other != "" && other != holder {
				t.Errorf("%s was given to %s while %s has it", uuid, holder, other)
			}
		}
		maps.Copy(want, given)
	}
	// frees takes what a pod holds from what is wanted.
	frees := func(pod *corev1.Pod) {
		given := n.given(t, pod)
		maps.DeleteFunc(want, func(uuid, _ string) bool { return given[uuid] != "" })
	}

	var one, pair *corev1.Pod
	for _, step := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"nobody holds a GPU", func(t *testing.T) {}},
		{"a pod holds its GPU", func(t *testing.T) {
			one = n.makePod(t, "one", corev1.RestartPolicyAlways, wants{"main", 1})
			holds(t, one, 1)
		}},
		{"two containers of a pod hold each their own", func(t *testing.T) {
			pair = n.makePod(t, "pair", corev1.RestartPolicyNever, wants{"left", 1}, wants{"right", 2}, wants{"none", 0})
			holds(t, pair, 3)
		}},
		{"a container that is started anew holds the same GPU", func(t *testing.T) {
			n.keeps(t, want, func() {
				n.end(t, one, "main")
				one = n.restarted(t, "one", 1)
				holds(t, one, 1)
			})
		}},
		{"while the kubelet is away all is as it was, and then too", func(t *testing.T) {
			n.keeps(t, want, func() {
				n.kubelet.stop(t, syscall.SIGKILL)
				n.says(t, want, metav1.ConditionFalse)
				n.end(t, one, "main")
				n.startKubelet(t)
				one = n.restarted(t, "one", 2)
				holds(t, one, 1)
				n.says(t, want, metav1.ConditionTrue)
			})
			n.advertises(t, len(uuids))
			holds(t, n.makePod(t, "after-kubelet", corev1.RestartPolicyAlways, wants{"main", 1}), 1)
		}},
		{"while the device plugin is away all is as it was, and then too", func(t *testing.T) {
			n.keeps(t, want, func() {
				n.plugin.stop()
				n.advertises(t, 0)
				n.says(t, want, metav1.ConditionTrue)
				n.plugin.start(t)
				n.advertises(t, len(uuids))
			})
			holds(t, n.makePod(t, "after-plugin", corev1.RestartPolicyAlways, wants{"main", 2}), 2)
		}},
		{"a pod that is deleted holds nothing, and another gets its GPU", func(t *testing.T) {
			frees(one)
			n.removePod(t, "one")
			n.says(t, want, metav1.ConditionTrue)
			holds(t, n.makePod(t, "two", corev1.RestartPolicyAlways, wants{"main", 2}), 2)
		}},
		{"a pod that has ended holds nothing, though it is still there", func(t *testing.T) {
			frees(pair)
			for _, c := range []string{"left", "right", "none"} {
				n.end(t, pair, c)
			}
			n.awaitPod(t, "pair", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
		}},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			step.do(t)
			n.says(t, want, metav1.ConditionTrue)
		}) {
			break
		}
	}
}

// lacking says what the test lacks here.
func lacking() string {
	if os.Getuid() != 0 {
		return "a kubelet needs root"
	}
	for _, program := range []string{"containerd", "ctr", "runc", "/usr/lib/cni/bridge", "/usr/lib/cni/host-local", "/usr/lib/cni/loopback", "unshare", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Sprintf("%s is needed, of Debian's packages containerd, runc, containernetworking-plugins and util-linux (%v)", program, err)
		}
	}
	if out, err := exec.Command("unshare", "--mount", "--net", "true").CombinedOutput(); err != nil {
		return fmt.Sprintf("a kubelet needs namespaces of its own: %s (%v)", out, err)
	}
	return ""
}

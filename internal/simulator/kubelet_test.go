package simulator

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/agent/holders"
	"github.com/muster-gpu/muster/agent/reader/scripted"
)

// becomes waits until what is said is as wanted.
func becomes(t *testing.T, what string, want []string, said func() []string) {
	t.Helper()
	var diff string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if diff = cmp.Diff(want, said()); diff == "" {
			return
		}
	}
	t.Fatalf("%s (-want +got):\n%s", what, diff)
}

func TestAnAgentIsToldWhoHoldsTheGPUsOfItsNodeAndWhatTheyDo(t *testing.T) {
	// The path of a socket has little room.
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	client := newFakeClient()
	options := Options{Nodes: 2, GPUsPerNode: 4, Agents: 1, AgentDir: folder}
	stop := startSimulatorOf(t, client, options)
	createPod(t, client, "idle", 1, map[string]string{GPUActivityAnnotation: "idle"})
	awaitPhase(t, client, "idle", corev1.PodRunning)
	createPod(t, client, "late", 2, map[string]string{StartDelayAnnotation: "1h"})

	kubelet := holders.Client{Path: filepath.Join(folder, "node-0", KubeletSocket)}
	held := func() (said []string) {
		all, _, err := kubelet.List(t.Context())
		if err != nil {
			return []string{err.Error()}
		}
		for _, a := range all {
			said = append(said, fmt.Sprintf("%s %s %v %d/%d", a.ID, a.Pod.Name, a.Containers, a.Share.Parts, a.Share.Of))
		}
		return said
	}
	all := []string{"GPU-node-0-0 idle [c] 1/1", "GPU-node-0-1 late [c] 1/1", "GPU-node-0-2 late [c] 1/1"}
	becomes(t, "what pods hold", all, held)
	driver := scripted.Follow(t.Context(), filepath.Join(folder, "node-0", GPUScript))
	processes := func() (said []string) {
		devices, err := driver.Devices()
		if err != nil {
			return nil
		}
		for _, d := range devices {
			list, err := driver.Processes(d.UUID)
			said = append(said, fmt.Sprintf("%s of %d GiB next to %d: %d processes, %v", d.UUID, d.MemoryBytes>>30, d.NUMANode, len(list), err))
		}
		return said
	}
	becomes(t, "what they do", []string{
		"GPU-node-0-0 of 80 GiB next to 0: 1 processes, <nil>", "GPU-node-0-1 of 80 GiB next to 0: 0 processes, <nil>",
		"GPU-node-0-2 of 80 GiB next to 1: 0 processes, <nil>", "GPU-node-0-3 of 80 GiB next to 1: 0 processes, <nil>",
	}, processes)

	// One that was killed left its socket.
	stop()
	if err := os.WriteFile(kubelet.Path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stop = startSimulatorOf(t, client, options)
	defer stop()
	becomes(t, "what pods hold after a restart", all, held)
	if err := client.CoreV1().Pods("default").Delete(t.Context(), "idle", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	becomes(t, "what pods hold when one has gone", all[1:], held)
	if _, err := os.Stat(filepath.Join(folder, "node-1")); !os.IsNotExist(err) {
		t.Errorf("a node without an agent: %v", err)
	}
}

func TestContainersHaveTheGPUsThatTheyAskFor(t *testing.T) {
	asks := func(name string, gpus int64) corev1.Container {
		return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{GPUResource: *resource.NewQuantity(gpus, resource.DecimalSI)}}}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{asks("a", 2), asks("b", 0), asks("c", 1)}}}
	said := func() (said []string) {
		for _, c := range resourcesOf(pod, "n", []int{1, 4, 6}).Containers {
			for _, d := range c.Devices {
				said = append(said, c.Name+" "+d.DeviceIds[0])
			}
			for _, claim := range c.DynamicResources {
				for _, d := range claim.ClaimResources {
					said = append(said, c.Name+" "+d.PoolName+"/"+d.DeviceName)
				}
			}
		}
		return said
	}
	if diff := cmp.Diff([]string{"a GPU-n-1", "a GPU-n-4", "c GPU-n-6"}, said()); diff != "" {
		t.Errorf("of a device plugin (-want +got):\n%s", diff)
	}
	pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "x"}
	if diff := cmp.Diff([]string{"a n/gpu-1", "a n/gpu-4", "a n/gpu-6", "c n/gpu-1", "c n/gpu-4", "c n/gpu-6"}, said()); diff != "" {
		t.Errorf("of a claim behind the resource (-want +got):\n%s", diff)
	}
}

func TestAnActivityThatMeansNothingIsRefused(t *testing.T) {
	client := newFakeClient()
	defer startSimulator(t, client)()
	createPod(t, client, "p", 1, map[string]string{GPUActivityAnnotation: "sleeping"})
	awaitPhase(t, client, "p", corev1.PodFailed)
}

package simulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/muster-gpu/muster/api/gpu"
)

// What is in the folder of a node below Options.AgentDir.
const (
	// KubeletSocket is the kubelet's PodResources socket.
	KubeletSocket = "kubelet.sock"
	// GPUScript is the file that package agent/reader/scripted follows.
	GPUScript = "gpus.json"
)

// kubelet is the PodResources service of one node.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	simulator *simulator
	node      string
}

// kubelets are those that are served.
type kubelets []*grpc.Server

// Stop ends them.
func (k kubelets) Stop() {
	for _, server := range k {
		server.Stop()
	}
}

// serveKubelets opens the sockets of the nodes that have agents.
func (s *simulator) serveKubelets(ctx context.Context) (kubelets, error) {
	var all kubelets
	for i := range min(s.options.Agents, s.options.Nodes) {
		path := filepath.Join(s.options.AgentDir, NodeName(i), KubeletSocket)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, fmt.Errorf("making the folder of %s: %w", path, err)
		}
		// One that was killed has left its socket.
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("removing an old socket: %w", err)
		}
		listener, err := net.Listen("unix", path)
		if err != nil {
			return nil, fmt.Errorf("serving PodResources: %w", err)
		}
		server := grpc.NewServer()
		podresources.RegisterPodResourcesListerServer(server, &kubelet{simulator: s, node: NodeName(i)})
		go func() {
			if err := server.Serve(listener); err != nil {
				klog.FromContext(ctx).Error(err, "Serving PodResources", "socket", path)
			}
		}()
		all = append(all, server)
	}
	return all, nil
}

// List implements podresources.PodResourcesListerServer: pods that have ended hold
// nothing, and are not there.
func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	pods, err := k.simulator.podsOn(k.node)
	if err != nil {
		return nil, err
	}
	list := &podresources.ListPodResourcesResponse{}
	for _, pod := range pods {
		indices, err := GPUs(pod)
		if err != nil {
			return nil, err
		}
		list.PodResources = append(list.PodResources, resourcesOf(pod, k.node, indices))
	}
	return list, nil
}

// GetAllocatableResources implements podresources.PodResourcesListerServer: the GPUs of
// the node, if a device plugin has them.
func (k *kubelet) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	all := &podresources.AllocatableResourcesResponse{}
	if k.simulator.options.Devices {
		return all, nil
	}
	for i := range k.simulator.options.GPUsPerNode {
		all.Devices = append(all.Devices, pluginDevice(k.node, i))
	}
	return all, nil
}

// podsOn are the pods that a node's kubelet has admitted, and that have not ended.
func (s *simulator) podsOn(node string) ([]*corev1.Pod, error) {
	pods, err := typed[*corev1.Pod](s.pods.ByIndex(nodeIndex, node))
	if err != nil {
		return nil, err
	}
	var living []*corev1.Pod
	for _, pod := range pods {
		if pod.Status.StartTime != nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			living = append(living, pod)
		}
	}
	return living, nil
}

// resourcesOf is what the kubelet says of a pod that holds these GPUs: those of a device
// plugin each with the container that asks for it, those of claims with every
// container that names one, as the kubelet does.
func resourcesOf(pod *corev1.Pod, node string, indices []int) *podresources.PodResources {
	asked := gpusAsked(pod)
	claimed := indices[:max(0, len(indices)-asked)]
	plugin := indices[len(claimed):]
	out := &podresources.PodResources{Namespace: pod.Namespace, Name: pod.Name}
	for _, c := range pod.Spec.Containers {
		container := &podresources.ContainerResources{Name: c.Name}
		quantity := c.Resources.Requests[GPUResource]
		if pod.Status.ExtendedResourceClaimStatus != nil && !quantity.IsZero() || len(c.Resources.Claims) > 0 {
			claim := &podresources.DynamicResource{ClaimNamespace: pod.Namespace, ClaimName: pod.Name}
			for _, index := range claimed {
				claim.ClaimResources = append(claim.ClaimResources, &podresources.ClaimResource{
					DriverName: gpu.Driver, PoolName: node, DeviceName: deviceName(index),
				})
			}
			container.DynamicResources = []*podresources.DynamicResource{claim}
		} else {
			n := min(int(quantity.Value()), len(plugin))
			for _, index := range plugin[:n] {
				container.Devices = append(container.Devices, pluginDevice(node, index))
			}
			plugin = plugin[n:]
		}
		out.Containers = append(out.Containers, container)
	}
	return out
}

// pluginDevice is a GPU as NVIDIA's device plugin gives it out.
func pluginDevice(node string, index int) *podresources.ContainerDevices {
	return &podresources.ContainerDevices{ResourceName: string(GPUResource), DeviceIds: []string{uuidOf(node, index)}}
}

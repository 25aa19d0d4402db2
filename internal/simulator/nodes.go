package simulator

import (
	"fmt"
	"maps"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// NodeLabel marks the nodes that the simulator stands in for.
const NodeLabel = "sim.muster.dev/node"

// DefaultGPUProduct is the nvidia.com/gpu.product label of nodes for which
// nothing else is asked.
const DefaultGPUProduct = "NVIDIA-H100-80GB-HBM3"

// productLabel has the name of a node's GPUs.
const productLabel = "nvidia.com/gpu.product"

// allNodes is the key of NodeLabels that applies to every node.
const allNodes = "*"

// NodeLabels maps a node's name, or "*" for all nodes, to labels. A node's own
// entry wins over "*".
type NodeLabels map[string]map[string]string

// ReadNodeLabels reads a YAML file of NodeLabels.
func ReadNodeLabels(path string) (NodeLabels, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the node labels: %w", err)
	}
	var labels NodeLabels
	if err := yaml.UnmarshalStrict(content, &labels); err != nil {
		return nil, fmt.Errorf("reading the node labels %s: %w", path, err)
	}
	return labels, nil
}

// NodeName is the name of the i-th node, from 0.
func NodeName(i int) string { return "node-" + strconv.Itoa(i) }

// newNode is the i-th node as its kubelet would register it.
func newNode(o Options, i int, now time.Time) *corev1.Node {
	name := NodeName(i)
	labels := map[string]string{
		NodeLabel:              "true",
		corev1.LabelHostname:   name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: "amd64",
		productLabel:           o.GPUProduct,
		"nvidia.com/gpu.count": strconv.Itoa(o.GPUsPerNode),
	}
	maps.Copy(labels, o.Labels[allNodes])
	maps.Copy(labels, o.Labels[name])
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("64"),
		corev1.ResourceMemory:           resource.MustParse("512Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("110"),
	}
	if !o.Devices {
		capacity[GPUResource] = *resource.NewQuantity(int64(o.GPUsPerNode), resource.DecimalSI)
	}
	moment := metav1.Time{Time: now}
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, LastHeartbeatTime: moment, LastTransitionTime: moment}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity.DeepCopy(),
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
				condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
			},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: nodeIP(i)},
				{Type: corev1.NodeHostName, Address: name},
			},
			NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "v1.37.2", ContainerRuntimeVersion: "simulated://1"},
		},
	}
}

// nodeIP is an address of the i-th node that nobody can reach.
func nodeIP(i int) string { return fmt.Sprintf("10.64.%d.%d", i/250, i%250+1) }

// podIP is an address for the n-th pod, from 0, that nobody can reach.
func podIP(n int) string { return fmt.Sprintf("10.%d.%d.%d", 128+n/62500%100, n/250%250, n%250+1) }

// hostIP is the node's internal address.
func hostIP(node *corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return ""
}

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPUNode is what the GPU agent of the node of that name has found out: its GPUs, how
// they are, who holds them, and what the holders do with them. The agent writes it, and
// nobody else.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=gpunodes,scope=Cluster,singular=gpunode,categories=muster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="GPUs",type=integer,JSONPath=`.status.summary.devices`
// +kubebuilder:printcolumn:name="Held",type=integer,JSONPath=`.status.summary.held`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.summary.idle`
// +kubebuilder:printcolumn:name="Unhealthy",type=integer,JSONPath=`.status.summary.unhealthy`
// +kubebuilder:printcolumn:name="Heartbeat",type=date,JSONPath=`.status.lastHeartbeat`
type GPUNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Status GPUNodeStatus `json:"status,omitempty"`
}

// GPUNodeList is a list of GPUNodes.
//
// +kubebuilder:object:root=true
type GPUNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []GPUNode `json:"items"`
}

// Conditions of a GPUNode.
const (
	// GPUNodeDriverReady says that the driver lists the node's devices.
	GPUNodeDriverReady = "DriverReady"
	// GPUNodeHoldersKnown says that the kubelet says which pods hold them.
	GPUNodeHoldersKnown = "HoldersKnown"
)

// GPUNodeStatus is written when anything of it changes, and else once a minute.
type GPUNodeStatus struct {
	// LastHeartbeat is when the agent wrote last. After three minutes the rest is old.
	//
	// +optional
	LastHeartbeat metav1.Time `json:"lastHeartbeat,omitzero"`
	// Conditions are DriverReady and HoldersKnown.
	//
	// +optional
	// +listType=atomic
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	Summary GPUSummary `json:"summary,omitempty"`
	// Devices are the GPUs and their slices, by minor number, each slice after its GPU.
	//
	// +optional
	// +listType=atomic
	Devices []GPUDevice `json:"devices,omitempty"`
}

// GPUSummary counts devices. A GPU that is cut into slices counts as these.
type GPUSummary struct {
	Devices int32 `json:"devices"`
	// Held are those that some pod holds, and Idle those of them that no holder uses.
	Held int32 `json:"held"`
	Idle int32 `json:"idle"`
	// Unhealthy are those on which nothing new should be put.
	Unhealthy int32 `json:"unhealthy"`
}

// GPUDevice is one GPU, or one MIG slice of one.
type GPUDevice struct {
	// UUID as the driver gives it: GPU-... or MIG-...
	UUID string `json:"uuid"`
	// Minor is N of /dev/nvidiaN, for a slice that of its GPU.
	Minor int32 `json:"minor"`
	// Product is the vendor's name, as "NVIDIA H200".
	//
	// +optional
	Product string `json:"product,omitempty"`
	// MemoryMiB is what it has of memory, in MiB.
	//
	// +optional
	MemoryMiB int64 `json:"memoryMiB,omitempty"`
	// Profile of a slice, as "1g.10gb".
	//
	// +optional
	Profile string `json:"profile,omitempty"`
	// Unhealthy are the reasons for which nothing new should be put on it.
	//
	// +optional
	// +listType=atomic
	Unhealthy []string `json:"unhealthy,omitempty"`
	// NUMANode next to which it is, where there are several.
	//
	// +optional
	NUMANode *int32 `json:"numaNode,omitempty"`
	// PCIRoot is the root complex below which it is, as "pci0000:17".
	//
	// +optional
	PCIRoot string `json:"pciRoot,omitempty"`
	// Island is common to the GPUs that reach each other by NVLink.
	//
	// +optional
	Island string `json:"island,omitempty"`
	// NVLinkPeers are the minor numbers of the GPUs of this node that it reaches by
	// NVLink.
	//
	// +optional
	// +listType=atomic
	NVLinkPeers []int32 `json:"nvlinkPeers,omitempty"`
	// Holders are the pods that hold it. There are several only if it is shared.
	//
	// +optional
	// +listType=atomic
	Holders []GPUHolder `json:"holders,omitempty"`
}

// GPUVerdict is what a holder does with its device.
//
// +kubebuilder:validation:Enum=active;idle;stalled;unknown
type GPUVerdict string

// A holder works, or has not been quiet for long; has done nothing for a whole window;
// has kernels that get nothing done; or nobody can say.
const (
	GPUActive  GPUVerdict = "active"
	GPUIdle    GPUVerdict = "idle"
	GPUStalled GPUVerdict = "stalled"
	GPUUnknown GPUVerdict = "unknown"
)

// GPUHolder is a pod that holds a device.
type GPUHolder struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// PodUID tells the pod from others of its name, before and after it.
	//
	// +optional
	PodUID string `json:"podUID,omitempty"`
	// Containers of the pod that have it.
	//
	// +optional
	// +listType=atomic
	Containers []string `json:"containers,omitempty"`
	// Share is the part of the device that it holds, as "1/4"; all of it if empty.
	//
	// +optional
	Share string `json:"share,omitempty"`
	// Workload is the job that the pod is of, as "TrainJob/llm", and Queue the
	// ClusterQueue that it is charged to, where these are known.
	//
	// +optional
	Workload string `json:"workload,omitempty"`
	// +optional
	Queue   string     `json:"queue,omitempty"`
	Verdict GPUVerdict `json:"verdict"`
	// Since is when the verdict became so.
	//
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// Reclaimable says that the device could be taken away, as far as this node knows:
	// that the other GPUs of the job are too must be seen on their nodes.
	//
	// +optional
	Reclaimable bool `json:"reclaimable,omitempty"`
}

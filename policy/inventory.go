package policy

import "time"

// Inventory is data.inventory: what policies may know of the cluster beside the
// object that they are asked about. It holds facts and not objects, so that it stays
// small: OPA keeps what it is given in many times its size.
type Inventory struct {
	// ObservedAt is when the idle GPUs were last looked at, zero if never. A policy that
	// reads them does not believe old ones.
	ObservedAt time.Time            `json:"observedAt,omitzero"`
	Namespaces map[string]Namespace `json:"namespaces"`
	// Queues are the LocalQueues, by namespace and name.
	Queues          map[string]map[string]Queue `json:"queues"`
	RuntimeDefaults map[string]Defaults         `json:"runtimeDefaults"`
	GPUNodes        map[string]GPUNode          `json:"gpuNodes"`
}

// Namespace is one namespace.
type Namespace struct {
	Labels map[string]string `json:"labels"`
	// IdleGPUs are those that its pods hold and do not use.
	IdleGPUs int64 `json:"idleGPUs"`
}

// Queue is one LocalQueue.
type Queue struct {
	ClusterQueue string `json:"clusterQueue"`
	// Reach is how many GPUs its jobs can have together at most, borrowed ones
	// included; Used is how many they have.
	Reach int64 `json:"reach"`
	Used  int64 `json:"used"`
	// Preemptible says that its jobs may be stopped for others.
	Preemptible bool `json:"preemptible"`
}

// Defaults are one RuntimeDefaults.
type Defaults struct {
	Generation int64 `json:"generation"`
}

// GPUNode is one node with GPUs.
type GPUNode struct {
	GPUs int64 `json:"gpus"`
	// Idle are the pods that hold GPUs of it and do not use them.
	Idle []Holder `json:"idle,omitempty"`
}

// Holder is a pod that holds GPUs.
type Holder struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	GPUs      int64  `json:"gpus"`
}

package inquiry

// Standing is why a job waits at this moment, and its place in its ClusterQueue.
type Standing struct {
	// Reason is empty while the job was not tried yet, or does not wait.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// State is that of the job: pending, claimed, admitting, admitted or leaving.
	State        string `json:"state"`
	ClusterQueue string `json:"clusterQueue,omitempty"`
	// Position is the place among the Pending jobs of the ClusterQueue, from 1 on; 0 if
	// the job does not wait.
	Position int `json:"position,omitempty"`
	Pending  int `json:"pending,omitempty"`
}

// Simulation is what would become of a job if it were created now.
type Simulation struct {
	// Outcome is Starts, Preempts, Waits, or Unknown if it was not found out in time.
	Outcome string `json:"outcome"`
	// Reason is the class of why it would not start at once, Message says it in full.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// ClusterQueue in which it would be charged, Flavors what for, and BorrowsFrom from how
	// many levels of the cohort it would borrow.
	ClusterQueue string   `json:"clusterQueue,omitempty"`
	Flavors      []string `json:"flavors,omitempty"`
	BorrowsFrom  int      `json:"borrowsFrom,omitempty"`
	// Position is its place among the Pending jobs of the ClusterQueue, itself among them.
	Position int   `json:"position"`
	Pending  int   `json:"pending"`
	Pods     int64 `json:"pods"`
	GPUs     int64 `json:"gpus"`
	// Nodes are where its pods would be, once it has started; Closeness is how close
	// to each other, in words, where that is known.
	Nodes     []NodePods `json:"nodes,omitempty"`
	Closeness string     `json:"closeness,omitempty"`
	// Preempted are the jobs that would be stopped for it first.
	Preempted []Stopped `json:"preempted,omitempty"`
}

// The outcomes of a Simulation.
const (
	Starts   = "Starts"
	Preempts = "Preempts"
	Waits    = "Waits"
	Unknown  = "Unknown"
)

// NodePods is how many pods of a pod set are on a node.
type NodePods struct {
	PodSet string `json:"podSet"`
	Node   string `json:"node"`
	Pods   int    `json:"pods"`
}

// Stopped is a job that would be stopped for another.
type Stopped struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	GPUs      int64  `json:"gpus"`
	Priority  int32  `json:"priority"`
	// Reason is Kueue's reason of the condition Preempted.
	Reason string `json:"reason"`
}

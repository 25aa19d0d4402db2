package facts

import (
	corev1 "k8s.io/api/core/v1"
)

// Version is that of the form of Workload; a field that changes its meaning raises
// it, a field that is added does not.
const Version = 1

// Workload is input.workload. GPUs are those of all GPU resources, slices that are
// handed out like GPUs included, and devices that are claimed.
type Workload struct {
	Version    int    `json:"version"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	// Name ends in '*' where it will be generated.
	Name string `json:"name"`
	// Queue is the LocalQueue that the object names, or its trials name; empty if none.
	Queue string `json:"queue"`
	// PodSets are all pods that the object will have.
	PodSets []PodSet `json:"podSets"`
	// Specs are the specs of their pods, by the names of the pod sets, with what a
	// runtime gives them.
	Specs map[string]*corev1.PodSpec `json:"specs"`
	// GPUsPerPod is the most that one pod takes, GPUs what all pods take together that
	// exist at one time: init containers take what their pod has anyway.
	GPUsPerPod int64 `json:"gpusPerPod"`
	GPUs       int64 `json:"gpus"`
	// Containers are those of all pod sets, of all kinds of containers.
	Containers []Container `json:"containers"`
	// Images are those of the containers, sorted, each once.
	Images []string `json:"images"`
	// Runtime is the training runtime of a TrainJob.
	Runtime *Runtime `json:"runtime,omitempty"`
	// Trials are those of an Experiment of Katib.
	Trials *Trials `json:"trials,omitempty"`
	// Owners are the controllers of the object, the next one first.
	Owners []Owner `json:"owners"`
	// Groups are those that its pods are to be members of.
	Groups []Group `json:"groups,omitempty"`
	User   User    `json:"user"`
	// Unknown says what could not be found out, empty if nothing: there may be more
	// pods, GPUs and images than are listed.
	Unknown string `json:"unknown,omitempty"`
}

// PodSet is Count pods that are alike.
type PodSet struct {
	Name  string `json:"name"`
	Count int32  `json:"count"`
	// GPUsPerPod is the effective number: the larger of what the containers take
	// together and what an init container takes, sidecars added.
	GPUsPerPod int64 `json:"gpusPerPod"`
	// GPUs is that of all pods, and what they claim together.
	GPUs        int64             `json:"gpus"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Container is one container of a pod set.
type Container struct {
	PodSet string `json:"podSet"`
	Name   string `json:"name"`
	// Type is "container", "initContainer" or "ephemeralContainer".
	Type  string `json:"type"`
	Image string `json:"image"`
	// GPUs is what it takes itself; Requests and Limits are those of GPU resources, as
	// they were written.
	GPUs     int64             `json:"gpus"`
	Requests map[string]string `json:"requests"`
	Limits   map[string]string `json:"limits"`
	// Env are the variables whose value is written out.
	Env map[string]string `json:"env"`
	// Scratch are the directories of volumes that are empty at first and go with the pod.
	Scratch []string `json:"scratch"`
}

// Runtime is a TrainingRuntime or ClusterTrainingRuntime.
type Runtime struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Resolved says that it was found, and its pods are among PodSets.
	Resolved bool              `json:"resolved"`
	Labels   map[string]string `json:"labels"`
}

// Trials are what an Experiment runs.
type Trials struct {
	// Parallel is how many run at the same time; PodSets are those of all of them.
	Parallel int32 `json:"parallel"`
	// Kind is that of each, empty where the template is elsewhere.
	Kind    string `json:"kind"`
	GPUsPer int64  `json:"gpusPerTrial"`
	// MaxFailed is how many may fail before the Experiment does, nil if it never does.
	MaxFailed *int64 `json:"maxFailedTrialCount"`
}

// Owner is a controller of the object.
type Owner struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	// Exists says that there is an object of this name and UID. A user can write any
	// owner into an object.
	Exists bool `json:"exists"`
	// Unread says that the API server did not tell whether it exists, nor who its own
	// controllers are.
	Unread bool `json:"unread,omitempty"`
	// Queue is the queue that it names.
	Queue string `json:"queue"`
}

// User is who makes the request.
type User struct {
	Name   string   `json:"name"`
	Groups []string `json:"groups"`
}

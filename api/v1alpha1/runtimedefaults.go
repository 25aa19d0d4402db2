package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RuntimeDefaults are what a platform team wants in pods that ask for GPUs, so
// that the authors of jobs need not know it: variables of NCCL, a /dev/shm that is
// large enough, tolerations, a priority. The webhook adds it when a JobSet or a
// pod is created; what is there already is never removed or replaced.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=runtimedefaults,scope=Cluster,singular=runtimedefaults,categories=muster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.spec.class`
// +kubebuilder:printcolumn:name="Weight",type=integer,JSONPath=`.spec.weight`
// +kubebuilder:printcolumn:name="Overlaps",type=string,JSONPath=`.status.overlaps[*].with`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RuntimeDefaults struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec RuntimeDefaultsSpec `json:"spec"`
	// +optional
	Status RuntimeDefaultsStatus `json:"status,omitempty"`
}

// RuntimeDefaultsList is a list of RuntimeDefaults.
//
// +kubebuilder:object:root=true
type RuntimeDefaultsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RuntimeDefaults `json:"items"`
}

// DefaultsClass says what happens where a job's author has decided otherwise.
//
// +kubebuilder:validation:Enum=default;required
type DefaultsClass string

const (
	// ClassDefault: the author of the job or of its runtime wins.
	ClassDefault DefaultsClass = "default"
	// ClassRequired: the job is refused, with a message. It is no defence against
	// an author of ill will, because jobs are created as they are while the
	// webhook is away.
	ClassRequired DefaultsClass = "required"
)

// RuntimeDefaultsSpec says for which pods, what, and how strictly.
type RuntimeDefaultsSpec struct {
	// Class is ClassDefault or ClassRequired.
	//
	// +kubebuilder:default=default
	Class DefaultsClass `json:"class,omitempty"`
	// Weight decides between RuntimeDefaults that want different values in one
	// place: those of class required come first, then the heavier, then the one
	// whose name is first in the alphabet.
	//
	// +optional
	Weight int32 `json:"weight,omitempty"`
	// Match says for which pods; every part that is given must hold. Without it,
	// for all that ask for GPUs.
	//
	// +optional
	Match DefaultsMatch `json:"match,omitempty"`
	// +optional
	Pod PodDefaults `json:"pod,omitempty"`
	// +optional
	Containers ContainerDefaults `json:"containers,omitempty"`
}

// DefaultsMatch selects pods.
type DefaultsMatch struct {
	// NamespaceSelector selects by the labels of the namespace. The API server
	// gives each the label kubernetes.io/metadata.name.
	//
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// Kinds are the kinds of the object that makes the pods: TrainJob, JobSet, or
	// what controls the pod itself (Job, PyTorchJob, RayCluster, StatefulSet,
	// ReplicaSet ...). Pod is one that nothing controls. Empty means any.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	Kinds []string `json:"kinds,omitempty"`
	// Runtimes are the runtimes to which a TrainJob refers. Pods that are of no
	// TrainJob have none. Empty means any.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Runtimes []RuntimeReference `json:"runtimes,omitempty"`
	// Queues are the LocalQueues that the job names, or the pod where it is not
	// a JobSet's. Empty means any, and none.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Queues []string `json:"queues,omitempty"`
	// PodSelector selects by the labels of the pod's template, or of the pod.
	//
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
}

// RuntimeReference names a training runtime.
type RuntimeReference struct {
	// +kubebuilder:default=ClusterTrainingRuntime
	// +kubebuilder:validation:Enum=ClusterTrainingRuntime;TrainingRuntime
	Kind string `json:"kind,omitempty"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// PodDefaults are fields of the pod as a whole.
type PodDefaults struct {
	// Labels of the pod. Those that job controllers or Muster decide by are refused.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.contains('/') || !['muster.dev', 'kueue.x-k8s.io', 'jobset.sigs.k8s.io', 'trainer.kubeflow.org', 'training.kubeflow.org', 'batch.kubernetes.io'].exists(d, k.split('/')[0] == d))",message="labels by which job controllers or Muster decide cannot be defaults"
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the pod, under the same rule.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.contains('/') || !['muster.dev', 'kueue.x-k8s.io', 'jobset.sigs.k8s.io', 'trainer.kubeflow.org', 'training.kubeflow.org', 'batch.kubernetes.io'].exists(d, k.split('/')[0] == d))",message="annotations by which job controllers or Muster decide cannot be defaults"
	Annotations map[string]string `json:"annotations,omitempty"`
	// Tolerations are united with those that are there.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// PriorityClassName is left out while there is no such PriorityClass.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SchedulerName string `json:"schedulerName,omitempty"`
	// RuntimeClassName is left out while there is no such RuntimeClass.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RuntimeClassName string `json:"runtimeClassName,omitempty"`
	// TerminationGracePeriodSeconds is how long a container has to write a
	// checkpoint once it is told to stop. In a pod that no JobSet has made the API
	// server's own 30 s cannot be told from an author's, and counts as unset.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
}

// ContainerDefaults are fields of containers and init containers.
type ContainerDefaults struct {
	// Names of the containers; empty means all that ask for GPUs or use a resource
	// claim. Of a pod without such containers none is meant, whatever its name. The
	// container that starts the ranks of an MPI job gets the variables too.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	Names []string `json:"names,omitempty"`
	// Env are added where no variable of that name is set, by whatever source. A
	// container that takes its environment from a ConfigMap or a Secret may get the
	// name from there, and does not get it from here.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Env []EnvDefault `json:"env,omitempty"`
	// +optional
	SharedMemory *SharedMemory `json:"sharedMemory,omitempty"`
	// Capabilities are added to the container's, except those that it drops.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[A-Z][A-Z0-9_]*$`
	Capabilities []string `json:"capabilities,omitempty"`
	// Resources are devices beside the GPUs. Those of a JobSet are charged to its
	// queue like any that its author has written.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Resources []ResourceDefault `json:"resources,omitempty"`
	// ImagePullPolicy: in a pod that no JobSet has made, the policy that the API
	// server itself gives the image counts as unset.
	//
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
}

// EnvDefault is one variable. The Trainer sets names that start with PET_, DMLC_
// or OMPI_MCA_ itself, so they are refused.
//
// +kubebuilder:validation:XValidation:rule="!self.name.startsWith('PET_') && !self.name.startsWith('DMLC_') && !self.name.startsWith('OMPI_MCA_')",message="names that start with PET_, DMLC_ or OMPI_MCA_ are set by the Trainer"
type EnvDefault struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z][-._a-zA-Z0-9]*$`
	Name string `json:"name"`
	// Value is taken as it is, $(NAME) excepted, as in a pod.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Value string `json:"value,omitempty"`
}

// SharedMemory is a /dev/shm of memory, for containers that mount none. One
// volume serves all containers of a pod. What is written there counts as memory of
// the container.
//
// +kubebuilder:validation:XValidation:rule="has(self.sizeLimit) || has(self.memoryPercent)",message="sizeLimit or memoryPercent must be given"
type SharedMemory struct {
	// SizeLimit is the most that it can hold, in bytes.
	//
	// +optional
	SizeLimit *resource.Quantity `json:"sizeLimit,omitempty"`
	// MemoryPercent is a part of the memory limit of the container, of the one with
	// the largest limit if several mount it. It can make the volume smaller than
	// SizeLimit, and does not count where no container has a memory limit.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MemoryPercent int32 `json:"memoryPercent,omitempty"`
}

// ResourceDefault is an extended resource that a container gets as its limit, and
// so as its request.
//
// +kubebuilder:validation:XValidation:rule="self.name.contains('/') && !self.name.startsWith('kubernetes.io/')",message="only extended resources can be defaults"
type ResourceDefault struct {
	// +kubebuilder:validation:MaxLength=317
	Name string `json:"name"`
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	Count int64 `json:"count"`
	// PerGPU says that Count is for each GPU of the container.
	//
	// +optional
	PerGPU bool `json:"perGPU,omitempty"`
}

// RuntimeDefaultsStatus is what the webhook has found out.
type RuntimeDefaultsStatus struct {
	// ObservedGeneration is the generation that the rest is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Overlaps are other RuntimeDefaults that may select the same pods and want
	// other values there.
	//
	// +optional
	// +listType=map
	// +listMapKey=with
	Overlaps []DefaultsOverlap `json:"overlaps,omitempty"`
	// Missing names classes that do not exist, as "PriorityClass high", and that
	// are left out therefore.
	//
	// +optional
	// +listType=set
	Missing []string `json:"missing,omitempty"`
}

// DefaultsOverlap is one pair of RuntimeDefaults that disagree.
type DefaultsOverlap struct {
	// With is the name of the other one.
	With string `json:"with"`
	// First is the name of that one of the two whose values are used.
	First string `json:"first"`
	// Fields in which they disagree, as "env NCCL_DEBUG".
	//
	// +listType=atomic
	Fields []string `json:"fields"`
}

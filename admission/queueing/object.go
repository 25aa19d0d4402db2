package queueing

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/workload"
)

// QueueLabel names the LocalQueue of a job; Muster speaks Kueue's label.
const QueueLabel = workload.QueueLabel

// The kinds that are suspended or stamped at creation.
var (
	TrainJob = schema.GroupKind{Group: "trainer.kubeflow.org", Kind: "TrainJob"}
	JobSet   = schema.GroupKind{Group: "jobset.x-k8s.io", Kind: "JobSet"}
	Job      = schema.GroupKind{Group: "batch", Kind: "Job"}
	Pod      = schema.GroupKind{Group: "", Kind: "Pod"}
	MPIJob   = schema.GroupKind{Group: "kubeflow.org", Kind: "MPIJob"}
)

// builtInControllers are the values of managedBy that mean what an absent value
// means: the kind's own controller runs the job in this cluster. Pods have no
// such field; MPIJobs have one of two controllers.
var builtInControllers = map[schema.GroupKind][]string{
	TrainJob: {"trainer.kubeflow.org/trainjob-controller"},
	JobSet:   {"jobset.sigs.k8s.io/jobset-controller"},
	Job:      {"kubernetes.io/job-controller"},
	Pod:      nil,
	MPIJob:   {trainingOperator, "kubeflow.org/mpi-operator"},

	RayJob:          {kubeRay},
	RayCluster:      {kubeRay},
	Deployment:      nil,
	StatefulSet:     nil,
	LeaderWorkerSet: nil,

	{Group: "kubeflow.org", Kind: "PyTorchJob"}: {trainingOperator},
	{Group: "kubeflow.org", Kind: "TFJob"}:      {trainingOperator},
	{Group: "kubeflow.org", Kind: "XGBoostJob"}: {trainingOperator},
	{Group: "kubeflow.org", Kind: "PaddleJob"}:  {trainingOperator},
	{Group: "kubeflow.org", Kind: "JAXJob"}:     {trainingOperator},
}

const trainingOperator = "kubeflow.org/training-operator"

// isTraining says that the object is a job of the Training Operator or the MPI
// Operator: its suspension is a part of its run policy.
func (o *Object) isTraining() bool { return o.kind.Group == MPIJob.Group }

// Object is what the decision reads of a TrainJob, JobSet, Job, training job or
// pod. Whatever else the object holds, fields of versions newer than this program included, is
// neither decoded nor written: changes are made by path on the raw document.
type Object struct {
	kind schema.GroupKind
	body body
}

type body struct {
	Metadata *objectMeta `json:"metadata"`
	Spec     *spec       `json:"spec"`
}

type objectMeta struct {
	Labels          map[string]string       `json:"labels"`
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
}

// Pointers tell absent (or null) from present at every step of a path, because
// a JSON patch below a missing parent fails, and a patch that fails refuses
// the object whatever the failure policy says.
type spec struct {
	Suspend        *bool            `json:"suspend"`
	ManagedBy      *string          `json:"managedBy"`
	ReplicatedJobs []*replicatedJob `json:"replicatedJobs"`
	// Template is a Job's; a pod is kept as the template of one.
	Template *podTemplate `json:"template"`
	// A training job has one of these, by the type of its replicas.
	RunPolicy *runPolicy `json:"runPolicy"`
	PyTorch   replicas   `json:"pytorchReplicaSpecs"`
	TF        replicas   `json:"tfReplicaSpecs"`
	XGBoost   replicas   `json:"xgbReplicaSpecs"`
	Paddle    replicas   `json:"paddleReplicaSpecs"`
	JAX       replicas   `json:"jaxReplicaSpecs"`
	MPI       replicas   `json:"mpiReplicaSpecs"`
	// A RayCluster has the fields of one, a RayJob has it as a part.
	raySpec              `json:",inline"`
	RayClusterSpec       *raySpec              `json:"rayClusterSpec"`
	SubmitterPodTemplate *podTemplate          `json:"submitterPodTemplate"`
	ClusterSelector      map[string]string     `json:"clusterSelector"`
	LeaderWorkerTemplate *leaderWorkerTemplate `json:"leaderWorkerTemplate"`
}

type runPolicy struct {
	Suspend   *bool   `json:"suspend"`
	ManagedBy *string `json:"managedBy"`
}

type replicas map[string]*jobSpec

// replicas are those of a training job, and the name of their field.
func (o *Object) replicas() (field string, all replicas) {
	s := o.body.Spec
	switch o.kind.Kind {
	case "PyTorchJob":
		return "pytorchReplicaSpecs", s.PyTorch
	case "TFJob":
		return "tfReplicaSpecs", s.TF
	case "XGBoostJob":
		return "xgbReplicaSpecs", s.XGBoost
	case "PaddleJob":
		return "paddleReplicaSpecs", s.Paddle
	case "JAXJob":
		return "jaxReplicaSpecs", s.JAX
	case MPIJob.Kind:
		return "mpiReplicaSpecs", s.MPI
	}
	return "", nil
}

type replicatedJob struct {
	Template *jobTemplate `json:"template"`
}

type jobTemplate struct {
	Spec *jobSpec `json:"spec"`
}

type jobSpec struct {
	Template *podTemplate `json:"template"`
}

type podTemplate struct {
	Metadata *objectMeta `json:"metadata"`
	Spec     *podSpec    `json:"spec"`
}

type podSpec struct {
	SchedulerName  *string     `json:"schedulerName"`
	NodeName       string      `json:"nodeName"`
	Containers     []container `json:"containers"`
	InitContainers []container `json:"initContainers"`
}

type container struct {
	Resources struct {
		// An extended resource that has no limit is refused by the API server,
		// so the requests need not be read.
		Limits map[corev1.ResourceName]resource.Quantity `json:"limits"`
	} `json:"resources"`
}

// asksGPU says that a container may use at least one GPU.
func (s *podSpec) asksGPU() bool {
	asks := func(c container) bool {
		for name, quantity := range c.Resources.Limits {
			if gpu.Is(name) && quantity.Sign() > 0 {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(s.Containers, asks) || slices.ContainsFunc(s.InitContainers, asks)
}

// Parse reads the parts of an object that the decision needs. It fails for another kind and for a document whose fields have other types than
// the kind's.
func Parse(kind schema.GroupKind, raw []byte) (*Object, error) {
	if _, known := builtInControllers[kind]; !known {
		return nil, fmt.Errorf("reading a %s: only TrainJobs, JobSets, Jobs, training jobs, Ray's kinds, kinds that serve and pods are queued here", kind)
	}
	o := &Object{kind: kind}
	var pod struct {
		Metadata *objectMeta `json:"metadata"`
		Spec     *podSpec    `json:"spec"`
	}
	var into any = &o.body
	if kind == Pod {
		into = &pod
	}
	// The case-sensitive decoder of apimachinery: with encoding/json a field
	// "Spec" would be taken for "spec", and the patch would miss.
	if err := json.Unmarshal(raw, into); err != nil {
		return nil, fmt.Errorf("reading a %s: %w", kind, err)
	}
	if kind == Pod {
		o.body.Metadata = pod.Metadata
		if pod.Spec != nil {
			o.body.Spec = &spec{Template: &podTemplate{Spec: pod.Spec}}
		}
	}
	return o, nil
}

// Queue is the name of the LocalQueue that the object itself names, or empty.
func (o *Object) Queue() string {
	if o.body.Metadata == nil {
		return ""
	}
	return o.body.Metadata.Labels[QueueLabel]
}

// OwnerRef identifies the TrainJob that controls a JobSet.
type OwnerRef struct {
	// Version is the API version under which the owner was referred to.
	Version string
	Name    string
	UID     types.UID
}

// Owner is the TrainJob that controls the JobSet, or nil.
func (o *Object) Owner() *OwnerRef {
	if o.kind != JobSet {
		return nil
	}
	return o.controller(TrainJob)
}

// child says that the object is a part of another one, which is the unit of
// admission: a JobSet of a TrainJob, a RayCluster of a RayJob, or a Job of a
// JobSet, an MPIJob or a RayJob.
func (o *Object) child() bool {
	return o.Owner() != nil || (o.kind == RayCluster && o.controller(RayJob) != nil) ||
		(o.kind == Job && (o.controller(JobSet) != nil || o.controller(MPIJob) != nil || o.controller(RayJob) != nil))
}

// controller is the controller of the object if it is of that kind, or nil.
func (o *Object) controller(kind schema.GroupKind) *OwnerRef {
	if o.body.Metadata == nil {
		return nil
	}
	for i := range o.body.Metadata.OwnerReferences {
		ref := &o.body.Metadata.OwnerReferences[i]
		if ref.Controller == nil || !*ref.Controller {
			continue
		}
		group, version, found := strings.Cut(ref.APIVersion, "/")
		if found && group == kind.Group && ref.Kind == kind.Kind {
			return &OwnerRef{Version: version, Name: ref.Name, UID: ref.UID}
		}
		return nil
	}
	return nil
}

// foreign says that another controller runs the object, in this cluster or in
// another one.
func (o *Object) foreign() bool {
	if o.body.Spec == nil {
		return false
	}
	by := o.body.Spec.ManagedBy
	if o.isTraining() {
		by = nil
		if policy := o.body.Spec.RunPolicy; policy != nil {
			by = policy.ManagedBy
		}
	}
	return by != nil && *by != "" && !slices.Contains(builtInControllers[o.kind], *by)
}

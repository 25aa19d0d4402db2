package identity

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The labels that the Training Operator and the MPI Operator write on pods.
const (
	// TrainingJobLabel holds the job's name.
	TrainingJobLabel      = "training.kubeflow.org/job-name"
	TrainingOperatorLabel = "training.kubeflow.org/operator-name"
	ReplicaTypeLabel      = "training.kubeflow.org/replica-type"
	ReplicaIndexLabel     = "training.kubeflow.org/replica-index"
	JobRoleLabel          = "training.kubeflow.org/job-role"
)

// The group of the jobs of both, and what the MPI Operator calls its own.
const (
	TrainingGroup = "kubeflow.org"
	MPIJob        = "MPIJob"
	MPILauncher   = "Launcher"
	MPIOperator   = "mpi-operator"
)

// LauncherJob is the name of the Job that the MPI Operator makes for the launcher of an
// MPIJob.
func LauncherJob(job string) string { return job + "-launcher" }

// isTraining says that a reference is to a job of the Training Operator or of
// the MPI Operator.
func isTraining(ref *metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil || gv.Group != TrainingGroup {
		return false
	}
	switch ref.Kind {
	case "PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", MPIJob:
		return true
	}
	return false
}

// trainingSlot is the slot of a pod that a training job controls: the type of
// its replicas, and its number among them. A launcher has none, being alone.
func trainingSlot(pod *corev1.Pod) (Slot, bool) {
	if pod.Labels[TrainingOperatorLabel] == MPIOperator {
		return mpiWorkerSlot(pod)
	}
	set := pod.Labels[ReplicaTypeLabel]
	if set == "" {
		return Slot{}, false
	}
	index, numbered := pod.Labels[ReplicaIndexLabel]
	if !numbered {
		return Slot{PodSet: set}, true
	}
	completion, ok := Ordinal(index)
	return Slot{PodSet: set, Completion: completion}, ok
}

// mpiWorkerSlot is the slot of a worker that the MPI Operator made. Its label
// counts from 1 where the launcher is a worker too, its name from 0.
func mpiWorkerSlot(pod *corev1.Pod) (Slot, bool) {
	index, found := strings.CutPrefix(pod.Name, pod.Labels[TrainingJobLabel]+"-worker-")
	if !found || pod.Labels[JobRoleLabel] != "worker" {
		return Slot{}, false
	}
	completion, ok := Ordinal(index)
	return Slot{PodSet: "worker", Completion: completion}, ok
}

// isMPILauncher says that a pod which a Job controls is an MPIJob's launcher:
// the MPI Operator makes a Job for it. A Job of another name whose author has
// copied the labels is none.
func isMPILauncher(pod *corev1.Pod, job string) bool {
	return pod.Labels[TrainingOperatorLabel] == MPIOperator && pod.Labels[JobRoleLabel] == "launcher" &&
		job == LauncherJob(pod.Labels[TrainingJobLabel])
}

package workload

import (
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

// The labels that the Training Operator and the MPI Operator write on pods.
const (
	// TrainingJobLabel holds the job's name.
	TrainingJobLabel      = "training.kubeflow.org/job-name"
	trainingOperatorLabel = "training.kubeflow.org/operator-name"
	replicaTypeLabel      = "training.kubeflow.org/replica-type"
	replicaIndexLabel     = "training.kubeflow.org/replica-index"
	jobRoleLabel          = "training.kubeflow.org/job-role"
)

// replicaTopology is what the annotations of the replicas' pods ask for.
func replicaTopology(r *replica) (*kueue.PodSetTopologyRequest, *reason.Reason) {
	return topologyOf("the pod template of the replicas "+r.kind, r.Template.Annotations,
		kueue.PodSetTopologyRequest{PodIndexLabel: new(replicaIndexLabel)})
}

// trainingStamp is what the Training Operator writes on the pods of one type of
// replicas.
func trainingStamp(t *trainingJob, kind string, r *replica, masters []string) Stamp {
	s := Stamp{
		Labels: map[string]string{
			trainingOperatorLabel: strings.ToLower(kind) + "-controller",
			TrainingJobLabel:      t.GetName(),
			replicaTypeLabel:      r.podSet(),
		},
		IndexLabel: replicaIndexLabel,
	}
	if slices.Contains(masters, r.kind) {
		s.Labels[jobRoleLabel] = "master"
	}
	if r.kind == mpiLauncher {
		s.IndexLabel = ""
	}
	return s
}

// trainingSlot is the slot of a pod that a training job controls: the type of
// its replicas, and its number among them. A launcher has none, being alone.
func trainingSlot(pod *corev1.Pod) (Slot, bool) {
	if pod.Labels[trainingOperatorLabel] == mpiOperator {
		return mpiWorkerSlot(pod)
	}
	set := pod.Labels[replicaTypeLabel]
	if set == "" {
		return Slot{}, false
	}
	index, numbered := pod.Labels[replicaIndexLabel]
	if !numbered {
		return Slot{PodSet: set}, true
	}
	completion, ok := ordinal(index)
	return Slot{PodSet: set, Completion: completion}, ok
}

// mpiWorkerSlot is the slot of a worker that the MPI Operator made. Its label
// counts from 1 where the launcher is a worker too, its name from 0.
func mpiWorkerSlot(pod *corev1.Pod) (Slot, bool) {
	index, found := strings.CutPrefix(pod.Name, pod.Labels[TrainingJobLabel]+"-worker-")
	if !found || pod.Labels[jobRoleLabel] != "worker" {
		return Slot{}, false
	}
	completion, ok := ordinal(index)
	return Slot{PodSet: "worker", Completion: completion}, ok
}

// isMPILauncher says that a pod which a Job controls is an MPIJob's launcher:
// the MPI Operator makes a Job for it. A Job of another name whose author has
// copied the labels is none.
func isMPILauncher(pod *corev1.Pod, job string) bool {
	return pod.Labels[trainingOperatorLabel] == mpiOperator && pod.Labels[jobRoleLabel] == "launcher" &&
		job == launcherJob(pod.Labels[TrainingJobLabel])
}

// mpiStamp is what the MPI Operator, and the Job controller for the launcher,
// write on the pods of one type of replicas. first is the number of the first.
func mpiStamp(name string, r *replica, launcherWorks bool) Stamp {
	s := Stamp{Labels: map[string]string{
		trainingOperatorLabel: mpiOperator,
		TrainingJobLabel:      name,
		jobRoleLabel:          r.podSet(),
	}}
	switch {
	case r.kind == mpiLauncher:
		s.Labels[batchv1.JobNameLabel], s.Labels[legacyJobName] = launcherJob(name), launcherJob(name)
		if launcherWorks {
			s.Labels[replicaIndexLabel] = strconv.Itoa(0)
		}
	case launcherWorks:
		s.IndexLabel, s.FirstIndex = replicaIndexLabel, 1
	default:
		s.IndexLabel = replicaIndexLabel
	}
	return s
}

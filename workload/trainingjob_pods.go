package workload

import (
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload/identity"
)

// replicaTopology is what the annotations of the replicas' pods ask for.
func replicaTopology(r *replica) (*kueue.PodSetTopologyRequest, *reason.Reason) {
	return topologyOf("the pod template of the replicas "+r.kind, r.Template.Annotations,
		kueue.PodSetTopologyRequest{PodIndexLabel: new(identity.ReplicaIndexLabel)})
}

// trainingStamp is what the Training Operator writes on the pods of one type of
// replicas.
func trainingStamp(t *trainingJob, kind string, r *replica, masters []string) Stamp {
	s := Stamp{
		Labels: map[string]string{
			identity.TrainingOperatorLabel: strings.ToLower(kind) + "-controller",
			TrainingJobLabel:               t.GetName(),
			identity.ReplicaTypeLabel:      r.podSet(),
		},
		IndexLabel: identity.ReplicaIndexLabel,
	}
	if slices.Contains(masters, r.kind) {
		s.Labels[identity.JobRoleLabel] = "master"
	}
	if r.kind == identity.MPILauncher {
		s.IndexLabel = ""
	}
	return s
}

// mpiStamp is what the MPI Operator, and the Job controller for the launcher,
// write on the pods of one type of replicas. first is the number of the first.
func mpiStamp(name string, r *replica, launcherWorks bool) Stamp {
	s := Stamp{Labels: map[string]string{
		identity.TrainingOperatorLabel: identity.MPIOperator,
		TrainingJobLabel:               name,
		identity.JobRoleLabel:          r.podSet(),
	}}
	switch {
	case r.kind == identity.MPILauncher:
		s.Labels[batchv1.JobNameLabel], s.Labels[legacyJobName] = identity.LauncherJob(name), identity.LauncherJob(name)
		if launcherWorks {
			s.Labels[identity.ReplicaIndexLabel] = strconv.Itoa(0)
		}
	case launcherWorks:
		s.IndexLabel, s.FirstIndex = identity.ReplicaIndexLabel, 1
	default:
		s.IndexLabel = identity.ReplicaIndexLabel
	}
	return s
}

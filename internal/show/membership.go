package show

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/workload"
)

// member names a job by what its pods say of it.
type member struct{ namespace, by, name string }

// The labels by which pods name their jobs, and the kinds of these.
var jobLabels = []struct {
	label string
	kinds []string
}{
	{"jobset.sigs.k8s.io/jobset-name", []string{"JobSet", "TrainJob"}},
	{"training.kubeflow.org/job-name", []string{"PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"}},
	{"ray.io/originated-from-cr-name", []string{"RayJob"}},
	{"ray.io/cluster", []string{"RayCluster"}},
	{"leaderworkerset.sigs.k8s.io/name", []string{"LeaderWorkerSet"}},
	{"batch.kubernetes.io/job-name", []string{"Job"}},
	{workload.PodGroupLabel, []string{"PodGroup"}},
	{workload.KueueGroupLabel, []string{"PodGroup"}},
}

// membersOf are the names by which a pod may be of a job, and itself.
func membersOf(pod *corev1.Pod) []member {
	out := []member{{pod.Namespace, "Pod", pod.Name}}
	for _, l := range jobLabels {
		if name := pod.Labels[l.label]; name != "" {
			out = append(out, member{pod.Namespace, l.label, name})
		}
	}
	if group := pod.Spec.SchedulingGroup; group != nil && group.PodGroupName != nil {
		out = append(out, member{pod.Namespace, workload.PodGroupLabel, *group.PodGroupName})
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		out = append(out, member{pod.Namespace, owner.Kind, owner.Name})
	}
	return out
}

// members are the names by which pods are of the job.
func (j *Job) members() []member {
	out := []member{{j.Namespace, j.Kind, j.Name}}
	for _, l := range jobLabels {
		for _, kind := range l.kinds {
			if kind == j.Kind {
				out = append(out, member{j.Namespace, l.label, j.Name})
			}
		}
	}
	return out
}

// ready says that a pod is ready, or has succeeded.
func ready(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// tally counts the ready pods of jobs.
type tally map[member]int32

func (t tally) add(pod *corev1.Pod) {
	if ready(pod) {
		for _, m := range membersOf(pod) {
			t[m]++
		}
	}
}

// of is how many of the job's pods are ready.
func (t tally) of(j *Job) int32 {
	var most int32
	for _, m := range j.members() {
		most = max(most, t[m])
	}
	return min(most, j.Pods)
}

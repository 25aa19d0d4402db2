package scheduling

import (
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// sayPreempted says in a Workload for whom it is stopped, beside that it is.
func (j *Jobs) sayPreempted(wl *kueue.Workload, why eviction) {
	if why.preempted != "" {
		j.condition(wl, kueue.WorkloadPreempted, metav1.ConditionTrue, why.preempted, why.message)
	}
}

// sayNotPreempted says that a Workload which was stopped for another one has its
// quota again.
func (j *Jobs) sayNotPreempted(wl *kueue.Workload) {
	if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPreempted); c != nil && c.Status == metav1.ConditionTrue {
		j.condition(wl, kueue.WorkloadPreempted, metav1.ConditionFalse, "QuotaReserved", "Previously: "+c.Message)
	}
}

// hintsOf reads what a job says about being preempted. A group of pods has no
// object of its own that says anything; its first pod does.
func hintsOf(job *workload.Job, obj client.Object) workload.Hints {
	if hints := workload.HintsOf(obj); hints != (workload.Hints{}) || len(job.Pods) == 0 {
		return hints
	}
	return workload.HintsOf(job.Pods[0])
}

// protects takes in for how long the jobs of a queue are not preempted.
func (j *Jobs) protects(queue client.Object, key types.NamespacedName) {
	least, err := workload.MinRuntime(queue)
	if err != nil && j.effects.leads.Load() {
		j.recorder.Event(queue, corev1.EventTypeWarning, noteInvalidAnnotation, err.Error()+"; it is ignored")
	}
	j.ledger.setMinRuntime(key, least)
}

// saysOtherwise says that the annotation of a queue is new or another one.
func saysOtherwise[T any, P interface {
	*T
	client.Object
}](old, queue P) bool {
	return old == nil || old.GetAnnotations()[workload.MinRuntimeAnnotation] != queue.GetAnnotations()[workload.MinRuntimeAnnotation]
}

package scheduling

import (
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/agent/verdict"
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

// hintsOf reads what a job says about being stopped. A group of pods has no
// object of its own that says anything; its first pod does.
func hintsOf(job *workload.Job, obj client.Object) workload.Hints {
	if hints := readHints(obj); hints != (workload.Hints{}) || len(job.Pods) == 0 {
		return hints
	}
	return readHints(job.Pods[0])
}

func readHints(obj client.Object) workload.Hints {
	hints := workload.HintsOf(obj)
	_, until, err := verdict.Asked(obj.GetAnnotations())
	hints.IdleExemptUntil = until
	if err != nil {
		if hints.Invalid != "" {
			hints.Invalid += "; "
		}
		hints.Invalid += shorten(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return hints
}

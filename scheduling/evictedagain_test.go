package scheduling

import (
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestJobThatIsStoppedForAnotherOneAgainSaysSoWhateverItsAdmissionCameTo(t *testing.T) {
	before := eviction{reason: kueue.WorkloadEvictedByPreemption, preempted: kueue.InClusterQueueReason, message: "for the first"}
	again := eviction{reason: kueue.WorkloadEvictedByPreemption, preempted: kueue.InCohortReclamationReason, message: "for the second"}
	for name, admissionFirst := range map[string]bool{
		"the admission is written before its end is said": true,
		"it is refused because its end was said":          false,
	} {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8, 8)
			jobs := s.jobsOn(t, interceptor.Funcs{})
			of := job("a", set("node", 0, 1, 8))
			wl := s.stored(t, jobs, of)
			// It was stopped, and waits.
			if err := jobs.change(t.Context(), of.Owner.UID, func(wl *kueue.Workload) {
				jobs.condition(wl, kueue.WorkloadEvicted, metav1.ConditionTrue, before.reason, before.message)
				jobs.sayPreempted(wl, before)
			}); err != nil {
				t.Fatal(err)
			}
			s.plan(of, []string{"node-0"})
			if admissionFirst {
				// The Ledger does not hear of it before the job is stopped.
				a, _ := s.admissionOf(of.Owner.UID)
				known := latest(t, jobs, wl)
				known.Status.Admission = admissionStatus(a)
				jobs.condition(known, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "admitted")
				jobs.condition(known, kueue.WorkloadEvicted, metav1.ConditionFalse, "QuotaReserved", "Previously: for the first")
				jobs.sayNotPreempted(known)
				if err := jobs.client.Status().Update(t.Context(), known); err != nil {
					t.Fatal(err)
				}
			}
			s.stop(of, again)
			if err := jobs.writeEviction(t.Context(), of.Owner.UID, again); err != nil {
				t.Fatal(err)
			}
			for _, kind := range []string{kueue.WorkloadEvicted, kueue.WorkloadPreempted} {
				c := apimeta.FindStatusCondition(latest(t, jobs, wl).Status.Conditions, kind)
				if c == nil || c.Status != metav1.ConditionTrue || c.Message != again.message {
					t.Errorf("%s is %+v", kind, c)
				}
			}
		})
	}
}

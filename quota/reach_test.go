package quota

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestReachIsWhatAQueueCanHaveWhileNobodyElseHasAny(t *testing.T) {
	tree := world(queueIn("", "alone", gpus(8)), queueIn("team", "lender", gpus(24)), queueIn("team", "borrower", gpus(8)))
	for cq, want := range map[string]map[corev1.ResourceName]int64{
		"alone": {h100GPUs.Resource: 8}, "lender": {h100GPUs.Resource: 32}, "borrower": {h100GPUs.Resource: 32}, "missing": {},
	} {
		if diff := cmp.Diff(want, tree.Reach(cq)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", cq, diff)
		}
	}
}

func TestJobsArePreemptibleWhereSomebodyMayAskThemToLeave(t *testing.T) {
	with := func(cohort, name string, within, reclaim kueue.PreemptionPolicy) *kueue.ClusterQueue {
		q := queueIn(cohort, name, gpus(8))
		q.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: within, ReclaimWithinCohort: reclaim}
		return q
	}
	const never, lower = kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority
	tree := world(with("", "alone", never, lower), with("", "own", lower, never), with("team", "lent", never, never), with("team", "reclaims", never, lower))
	for cq, want := range map[string]bool{"alone": false, "own": true, "lent": true, "reclaims": false, "missing": false} {
		if got := tree.Preemptible(cq); got != want {
			t.Errorf("%s: %v, want %v", cq, got, want)
		}
	}
}

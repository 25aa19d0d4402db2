package quota

import (
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// preemptionPolicies are whom the jobs of a ClusterQueue may ask to leave.
type preemptionPolicies struct {
	within, reclaim kueue.PreemptionPolicy
	// borrowing allows to reclaim, from jobs of lower priority, what is borrowed
	// again; threshold is the highest priority that such a job may have.
	borrowing bool
	threshold *int32
}

func policiesOf(p *kueue.ClusterQueuePreemption) preemptionPolicies {
	if p == nil {
		p = &kueue.ClusterQueuePreemption{}
	}
	out := preemptionPolicies{within: p.WithinClusterQueue, reclaim: p.ReclaimWithinCohort}
	if b := p.BorrowWithinCohort; b != nil && b.Policy == kueue.BorrowWithinCohortPolicyLowerPriority {
		out.borrowing, out.threshold = true, b.MaxPriorityThreshold
	}
	return out
}

// off says that a policy asks nobody to leave.
func off(p kueue.PreemptionPolicy) bool { return p == "" || p == kueue.PreemptionPolicyNever }

// allows says whether a policy lets a job of this priority, and of this place
// in its queue, ask another one to leave.
func allows(p kueue.PreemptionPolicy, priority int32, created time.Time, h Holder) bool {
	switch p {
	case kueue.PreemptionPolicyAny:
		return true
	case kueue.PreemptionPolicyLowerPriority:
		return h.Priority < priority
	case kueue.PreemptionPolicyLowerOrNewerEqualPriority:
		return h.Priority < priority || (h.Priority == priority && created.Before(h.Created))
	default:
		return false
	}
}

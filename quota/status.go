package quota

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Status returns the Active condition of a ClusterQueue, without times and
// generation, and whether the ClusterQueue exists. Its reasons are Kueue's:
// Ready, Terminating, Stopped, FlavorNotFound, AdmissionCheckNotFound, and
// Unknown for a namespaceSelector that cannot be parsed, for faults that Kueue's
// webhook would refuse, and for cohorts that are each other's parents. What it would
// refuse and does no harm is in the message.
func (t *Tree) Status(cq string) (metav1.Condition, bool) {
	q := t.existing(cq)
	if q == nil {
		return metav1.Condition{}, false
	}
	reason, why := t.inactive(q)
	if reason == "" {
		message := "Can admit new workloads"
		if odd := q.findings.oddities; len(odd) > 0 {
			message += "; " + firstOf(odd)
		}
		return metav1.Condition{
			Type:    kueue.ClusterQueueActive,
			Status:  metav1.ConditionTrue,
			Reason:  kueue.ClusterQueueActiveReasonReady,
			Message: message,
		}, true
	}
	return metav1.Condition{
		Type:    kueue.ClusterQueueActive,
		Status:  metav1.ConditionFalse,
		Reason:  reason,
		Message: "Can't admit new workloads: " + why,
	}, true
}

// LocalQueueStatus returns the Active condition of a LocalQueue, without times
// and generation, and whether the LocalQueue exists. Its reasons are Kueue's:
// Ready, Stopped, ClusterQueueDoesNotExist and ClusterQueueIsInactive.
func (t *Tree) LocalQueueStatus(lq types.NamespacedName) (metav1.Condition, bool) {
	q, ok := t.localQueues[lq]
	if !ok {
		return metav1.Condition{}, false
	}
	cond := metav1.Condition{Type: kueue.LocalQueueActive, Status: metav1.ConditionFalse}
	c := t.existing(q.clusterQueue)
	switch {
	case q.stopPolicy != kueue.None:
		cond.Reason = "Stopped"
		cond.Message = fmt.Sprintf("LocalQueue is stopped (%s)", q.stopPolicy)
	case c == nil:
		cond.Reason = "ClusterQueueDoesNotExist"
		cond.Message = fmt.Sprintf("ClusterQueue %s does not exist", q.clusterQueue)
	default:
		if reason, why := t.inactive(c); reason != "" {
			cond.Reason = "ClusterQueueIsInactive"
			cond.Message = fmt.Sprintf("ClusterQueue %s is not active: %s", c.name, why)
			break
		}
		cond.Status = metav1.ConditionTrue
		cond.Reason = "Ready"
		cond.Message = "Can submit new workloads to ClusterQueue " + c.name
	}
	return cond, true
}

// inactive says why a ClusterQueue admits nothing: a condition reason and all
// the causes in one phrase, the reason's own first. Both are empty for an
// active one. The order of the reasons is Kueue's.
func (t *Tree) inactive(q *clusterQueue) (reason, why string) {
	var causes []string
	because := func(r, format string, args ...any) {
		if reason == "" {
			reason = r
		}
		causes = append(causes, fmt.Sprintf(format, args...))
	}
	if q.spec.terminating {
		because(kueue.ClusterQueueActiveReasonTerminating, "it is being deleted")
	}
	if q.spec.stopPolicy != kueue.None {
		because(kueue.ClusterQueueActiveReasonStopped, "it is stopped (%s)", q.spec.stopPolicy)
	}
	for _, name := range t.missingFlavors(q) {
		because(kueue.ClusterQueueActiveReasonFlavorNotFound, "ResourceFlavor %s does not exist", name)
	}
	for _, which := range t.missingTopologies(q) {
		because(kueue.ClusterQueueActiveReasonTopologyNotFound, "%s does not exist", which)
	}
	for _, name := range q.spec.checks {
		because(kueue.ClusterQueueActiveReasonAdmissionCheckNotFound, "AdmissionCheck %s is not run by Muster", name)
	}
	if q.spec.selectorErr != nil {
		because(kueue.ClusterQueueActiveReasonUnknown, "its namespaceSelector is invalid: %v", q.spec.selectorErr)
	}
	if faults := q.findings.faults; len(faults) > 0 {
		because(kueue.ClusterQueueActiveReasonUnknown, "%s", firstOf(faults))
	}
	if way := t.looped(q.node); way != "" {
		because(kueue.ClusterQueueActiveReasonUnknown, "its cohorts form a cycle (%s)", way)
	}
	return reason, strings.Join(causes, ", ")
}

func (t *Tree) missingFlavors(q *clusterQueue) []string {
	var missing []string
	for _, g := range q.spec.groups {
		for _, f := range g.flavors {
			if _, ok := t.flavors[f]; !ok && !slices.Contains(missing, f) {
				missing = append(missing, f)
			}
		}
	}
	return missing
}

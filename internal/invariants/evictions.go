package invariants

import (
	"fmt"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// evictionReasons are those of Kueue's API, and Muster's own for what Kueue does not
// tell. A deactivation may add its cause: DeactivatedDueTo<cause>.
var evictionReasons = []string{
	kueue.WorkloadEvictedByPreemption,
	kueue.WorkloadEvictedByFlavorMigration,
	kueue.WorkloadEvictedByPodsReadyTimeout,
	kueue.WorkloadEvictedByAdmissionCheck,
	kueue.WorkloadEvictedByClusterQueueStopped,
	kueue.WorkloadEvictedByLocalQueueStopped,
	kueue.WorkloadEvictedDueToNodeFailures,
	kueue.WorkloadEvictedOnManagerCluster,
	kueue.WorkloadDeactivated,
	"QueueChanged",
	"PodSetsChanged",
	"WorkloadDeleted",
	"AdmissionOutdated",
}

// judgeEviction asserts that an eviction which has just been written says why,
// and a preemption for whom.
func (c *Checker) judgeEviction(was, now *claim, o *kueue.Workload) {
	if now.evicted == "" || was != nil && was.evicted == now.evicted {
		return
	}
	message := ""
	if e := apimeta.FindStatusCondition(o.Status.Conditions, kueue.WorkloadEvicted); e != nil && e.Status == metav1.ConditionTrue {
		message = e.Message
	}
	c.note(fmt.Sprintf("%s is evicted (%s): %s", now.ref, now.evicted, message), now.ref)
	var to *claim
	if now.evicted == kueue.WorkloadEvictedByPreemption {
		to = c.beneficiary(now, message)
	}
	known := slices.Contains(evictionReasons, now.evicted) || strings.HasPrefix(now.evicted, kueue.WorkloadDeactivated+"DueTo")
	switch {
	case !known:
		c.violated(evictionsSayWhy, fmt.Sprintf("%s was evicted for %q, which is no reason of Kueue's or Muster's", now.ref, now.evicted), now.ref)
	case message == "":
		c.violated(evictionsSayWhy, fmt.Sprintf("%s was evicted for %s without a message", now.ref, now.evicted), now.ref)
	case now.evicted == kueue.WorkloadEvictedByPreemption && to == nil:
		c.violated(evictionsSayWhy, fmt.Sprintf("%s was preempted, and %q names no other Workload or job", now.ref, message), now.ref)
	case to != nil:
		c.owe(now, to)
	}
}

// beneficiary is the Workload that a message names, by its or its job's UID or
// by their namespace and name.
func (c *Checker) beneficiary(victim *claim, message string) *claim {
	words := strings.FieldsFunc(message, func(r rune) bool { return strings.ContainsRune(" ,;:()\"'", r) })
	for _, cl := range c.byOwner {
		if cl.owner == victim.owner {
			continue
		}
		for _, name := range []string{string(cl.uid), string(cl.owner), cl.namespace + "/" + cl.name, cl.namespace + "/" + cl.ownerName} {
			if slices.Contains(words, name) {
				return cl
			}
		}
	}
	return nil
}

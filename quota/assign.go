package quota

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

// Mode is what an Assignment needs to come true.
type Mode int

const (
	// Fit: the quota is free.
	Fit Mode = iota
	// Preempt: the job is within its rights, but others have to leave first:
	// some that are leaving already, or some that policies let it preempt. Tree.Preemption
	// says whether there are any.
	Preempt
)

// Assignment is the flavors that a job would get, and what they would charge.
type Assignment struct {
	ClusterQueue string
	// Flavors names, for each pod set in the request's order, the flavor of
	// each resource.
	Flavors []map[corev1.ResourceName]string
	// PodSetUsage is what each pod set, all its pods together, takes of the
	// resources in Flavors, "pods" included where it is covered.
	PodSetUsage []Requests
	// Usage is the charge: the sum over the pod sets, by cell.
	Usage Usage
	Mode  Mode
	// Borrows is 0 where the ClusterQueue's own quota is enough, else the height
	// of the smallest tree of Cohorts that has enough, as Kueue orders heads by.
	Borrows int
}

// Assign says whether the whole job fits its queue, and in which flavors; it
// charges nothing. There are three answers. An Assignment without a Reason fits
// now, and goes on to fit when claims have become charges. One with a Reason
// does not fit now, but would if others left (Mode is Preempt). A Reason alone
// says no, in one of the classes QueueNotFound, QueueInactive,
// NamespaceMismatch, Misconfigured, NoMatchingFlavor, ExceedsMaxQuota and
// WaitingForQuota. It is ExceedsMaxQuota only where the job would not fit the
// queue with no other job in the whole cohort.
func (t *Tree) Assign(r Request) (*Assignment, *reason.Reason) {
	s := &search{tree: t, request: &r}
	a, class, miss, why := s.ask()
	switch {
	case why != nil:
		return nil, why
	case class == reason.WaitingForQuota:
		return a, miss.waits(r.Queue.Name)
	case class == reason.ExceedsMaxQuota:
		return nil, miss.exceeds(r.Queue.Name)
	case class == reason.NoMatchingFlavor:
		return nil, miss.ineligible()
	}
	return a, nil
}

// ask is Assign, with the words left to be found: in why, or in miss.
func (s *search) ask() (a *Assignment, class reason.Class, miss *misfit, why *reason.Reason) {
	t, r := s.tree, s.request
	if s.queue, why = t.queueFor(*r); why != nil {
		return nil, why.Class, nil, why
	}
	sets, why := demands(s.queue, *r)
	if why != nil {
		return nil, why.Class, nil, why
	}
	defer t.without(r.ID)()
	a, miss = s.fit(sets)
	switch {
	case miss == nil:
		return a, "", nil, nil
	case a != nil:
		return a, reason.WaitingForQuota, miss, nil
	}
	// Waiting helps only a job that the empty queue would take.
	bar := s.bar
	s.empty = true
	_, ever := s.fit(sets)
	s.empty, s.bar = false, bar
	switch {
	case ever == nil:
		return nil, reason.WaitingForQuota, miss, nil
	case !ever.lacks:
		return nil, reason.NoMatchingFlavor, ever, nil
	}
	return nil, reason.ExceedsMaxQuota, ever, nil
}

// queueFor finds the ClusterQueue that may admit the request, sizes aside.
func (t *Tree) queueFor(r Request) (*clusterQueue, *reason.Reason) {
	lq, ok := t.localQueues[r.Queue]
	if !ok {
		return nil, reason.New(reason.QueueNotFound, "LocalQueue %s does not exist", r.Queue)
	}
	q := t.existing(lq.clusterQueue)
	if q == nil {
		return nil, reason.New(reason.QueueNotFound, "ClusterQueue %s does not exist", lq.clusterQueue)
	}
	if lq.stopPolicy != kueue.None {
		return nil, reason.New(reason.QueueInactive, "LocalQueue %s is stopped (%s)", r.Queue, lq.stopPolicy)
	}
	if cond, why := t.inactive(q); cond != "" {
		return nil, reason.New(reason.QueueInactive, "ClusterQueue %s is not active: %s", q.name, why)
	}
	if !q.spec.selector.Matches(labels.Set(r.NamespaceLabels)) {
		return nil, reason.New(reason.NamespaceMismatch,
			"namespace %s is not selected by ClusterQueue %s", r.Queue.Namespace, q.name)
	}
	return q, nil
}

package scheduling

import (
	"cmp"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// searchFor bounds how long one search may make plans: after that only those
// are let off of whom it is plain that the plan found last needs them not.
const searchFor = 100 * time.Millisecond

// search looks for the jobs to stop so that one can start that was refused.
// All that may be stopped are taken off a copy of the snapshot; if there is a
// plan then, as many as possible are let off, the most precious first.
type search struct {
	*pass
	*attempt
	// option is the choice of flavors that others are to be stopped for, assignment
	// and classes are those of it.
	option     *option
	assignment *quota.Assignment
	classes    []class
	// seen is what had happened when it began.
	seen  moves
	quota *quota.Preemption
	// order are the candidates, those to be stopped first at the front; going
	// are those that are not let off.
	order []victim
	going map[types.UID]bool
	// leaving are the pods of the jobs that are being stopped already, by job, but
	// for those that stay for longer than expected.
	leaving map[types.UID][]*corev1.Pod
	// freed are the GPUs of all who may go, and of those who are leaving.
	freed int64
	// reserved are the nodes that are kept for others.
	reserved []string
	// over is a job that comes after this one and has a claim in its ClusterQueue,
	// overClaim that claim: it counts as ended. Both are nil if there is none.
	over      *entry
	overClaim *claim
	// stopped: some of those who are leaving were stopped for another job.
	stopped bool
	// protected is when the first of those may be stopped that may not yet,
	// zero if there are none.
	protected time.Time
	// found is what it has come to.
	found findings

	fw      framework.Framework
	gang    placement.Gang
	without *placement.Without
	// plan is the one found last, nodes where it puts pods, settled where they
	// look at no other pods, so that only what is on its nodes can spoil it.
	plan    placement.Assignment
	nodes   map[string]bool
	settled bool
	ends    time.Time
}

// run finds the victims; they are those that are still going then.
func (s *search) run() (found bool, err error) {
	if len(s.order) == 0 && !s.stopped {
		return false, nil
	}
	// Where not all may go together, which may is for choose to say.
	s.found.candidates = len(s.order)
	s.found.quota = s.removeQuota()
	s.found.together = len(s.going)
	if !s.found.quota && len(s.going) == len(s.order) {
		return false, nil
	}
	if err := s.refresh(); err != nil {
		return false, err
	}
	s.seen.room = s.room
	fw, snap, no, err := s.framework(s.classes)
	if err != nil || no != nil {
		return false, err
	}
	s.fw, s.gang = fw, gangOf(s.job.Owner.Name, s.job.Owner.UID, s.classes, sizes(s.classes))
	s.gang.Stop = s.pass.stop
	keepOff(&s.gang, s.reserved)
	s.settled = !slices.ContainsFunc(s.classes, func(c class) bool { return looksAtOthers(c.pod) })
	if s.found.hopeless, err = s.planner.Hopeless(snap, wholeSets(s.job, s.classes), s.freed); s.found.hopeless || err != nil {
		return false, err
	}
	if s.without, err = s.planner.Without(klog.FromContext(s.ctx), snap); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.without.End()) }()
	if err := s.without.Remove(s.allPods()); err != nil {
		return false, err
	}
	if found, err = s.choose(); !found || err != nil {
		return false, err
	}
	precious := slices.Clone(s.order)
	precious = slices.DeleteFunc(precious, func(v victim) bool { return !s.going[v.ID] })
	slices.Reverse(precious)
	// If all could stay, the job would not have been refused.
	_, err = reprieveSome(precious, s.letOff, len(s.leaving) == 0)
	return err == nil, err
}

// allPods are the pods of all who may go, and of those who are leaving.
func (s *search) allPods() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, of := range s.leaving {
		pods = append(pods, of...)
	}
	for _, v := range s.order {
		pods = append(pods, v.pods...)
	}
	return pods
}

// removeAll takes the quota of those that are given, in their order, as far as
// that is legal, and says whether it is enough. Nobody else is going then.
func (s *search) removeAll(order []victim) bool {
	for _, v := range s.order {
		s.quota.Restore(v.ID)
	}
	clear(s.going)
	for _, v := range order {
		if s.quota.Remove(v.ID) {
			s.going[v.ID] = true
		}
	}
	return s.quota.Fits()
}

// removeQuota removes all candidates. Some may go only for a job that does not
// borrow; if that is what it fails for, they are left out.
func (s *search) removeQuota() bool {
	if s.removeAll(s.order) {
		return true
	}
	borrowing := slices.DeleteFunc(slices.Clone(s.order), func(v victim) bool { return v.Reason == kueue.InCohortReclamationReason })
	if len(borrowing) == len(s.order) || !s.removeAll(borrowing) {
		return false
	}
	s.order = borrowing
	return true
}

// choices bounds how many sets of nodes are looked at where the quota policies
// do not let all candidates go at once.
const choices = 3

// choose finds some victims and a plan: all candidates, or as many as may go
// together. Which may depends on the order in which they go; where those at the
// front leave no nodes for the job, those go first that are on nodes which
// would do.
func (s *search) choose() (bool, error) {
	fits := s.quota.Fits()
	if len(s.going) == len(s.order) {
		if !fits {
			return false, nil
		}
		return s.replan()
	}
	if fits {
		if ok, err := s.planGoing(); ok || err != nil {
			return ok, err
		}
	}
	preferred := s.order
	for range choices {
		if err := s.without.Remove(s.allPods()); err != nil {
			return false, err
		}
		if ok, err := s.replan(); !ok || err != nil {
			return false, err
		}
		avoid := s.nodes
		for _, order := range s.orders(preferred) {
			if err := s.without.Remove(s.allPods()); err != nil {
				return false, err
			}
			if s.order = order; s.removeAll(order) {
				if ok, err := s.planGoing(); ok || err != nil {
					return ok, err
				}
			}
		}
		for i := range s.gang.Classes {
			for node := range avoid {
				s.gang.Classes[i].Avoid = append(s.gang.Classes[i].Avoid, node)
			}
		}
	}
	return false, nil
}

// orders are two in which candidates may go so that the nodes of the plan become
// free: those that are on them first, as preferred, or those first that have
// the most there.
func (s *search) orders(preferred []victim) [][]victim {
	there := map[types.UID]int64{}
	for _, v := range preferred {
		for _, p := range v.pods {
			if s.nodes[p.Spec.NodeName] {
				there[v.ID] += 1 + 1000*workload.GPUs(workload.Requests(&corev1.PodTemplateSpec{Spec: p.Spec}))
			}
		}
	}
	near, most := slices.Clone(preferred), slices.Clone(preferred)
	slices.SortStableFunc(near, func(a, b victim) int { return cmp.Compare(min(1, there[b.ID]), min(1, there[a.ID])) })
	slices.SortStableFunc(most, func(a, b victim) int { return cmp.Compare(there[b.ID], there[a.ID]) })
	return [][]victim{near, most}
}

// planGoing plans with only those off their nodes that are going.
func (s *search) planGoing() (bool, error) {
	for _, v := range s.order {
		if !s.going[v.ID] {
			if err := s.without.Restore(v.pods); err != nil {
				return false, err
			}
		}
	}
	return s.replan()
}

// replan looks for a plan on the snapshot as it is now.
func (s *search) replan() (bool, error) {
	snap, err := s.snapshot()
	if err != nil {
		return false, err
	}
	plan, no, err := s.planner.Plan(s.ctx, s.fw, snap, s.gang)
	if err != nil || no != nil {
		s.found.placeless = no
		return false, err
	}
	s.plan, s.nodes = plan, map[string]bool{}
	for _, nodes := range plan {
		for _, node := range nodes {
			s.nodes[node] = true
		}
	}
	return true, nil
}

// isOn says that a candidate has something on a node of the plan.
func (s *search) isOn(v victim) bool {
	return slices.ContainsFunc(v.pods, func(p *corev1.Pod) bool { return s.nodes[p.Spec.NodeName] })
}

// letOff lets some of the victims stay, if quota and a plan are found without
// them.
func (s *search) letOff(some []victim) (bool, error) {
	for _, v := range some {
		s.quota.Restore(v.ID)
		delete(s.going, v.ID)
	}
	if s.quota.Fits() && s.quota.Legal() {
		beside := s.settled && !slices.ContainsFunc(some, func(v victim) bool { return s.isOn(v) || keepsOthersOff(v) })
		for _, v := range some {
			if err := s.without.Restore(v.pods); err != nil {
				return false, err
			}
		}
		if beside {
			return true, nil
		}
		if ok, err := s.planBeside(); ok || err != nil {
			return ok, err
		}
		for _, v := range some {
			if err := s.without.Remove(v.pods); err != nil {
				return false, err
			}
		}
	}
	legal := true
	for _, v := range some {
		s.going[v.ID] = true
		legal = s.quota.Remove(v.ID) && legal
	}
	if !legal {
		// With fair sharing it matters who goes first.
		s.removeAll(slices.DeleteFunc(slices.Clone(s.order), func(v victim) bool { return !s.going[v.ID] }))
	}
	return false, nil
}

// planBeside plans beside those that were just let off, if that has a chance
// and there is time for it.
func (s *search) planBeside() (bool, error) {
	if s.ledger.clock.Now().After(s.ends) {
		return false, nil
	}
	snap, err := s.snapshot()
	if err != nil {
		return false, err
	}
	lack, err := s.planner.Lack(snap, wholeSets(s.job, s.classes))
	if err != nil || lack != nil {
		return false, err
	}
	return s.replan()
}

// looksAtOthers says that where a pod may go depends on the pods of other nodes
// than its own.
func looksAtOthers(pod *corev1.Pod) bool {
	a := pod.Spec.Affinity
	return (a != nil && (a.PodAffinity != nil || a.PodAntiAffinity != nil)) || len(pod.Spec.TopologySpreadConstraints) > 0 ||
		len(pod.Spec.ResourceClaims) > 0 || len(scheduledVolumes(pod.Spec.Volumes)) > 0
}

// keepsOthersOff says that pods of a victim want to be away from others.
func keepsOthersOff(v victim) bool {
	return slices.ContainsFunc(v.pods, func(p *corev1.Pod) bool { return p.Spec.Affinity != nil && p.Spec.Affinity.PodAntiAffinity != nil })
}

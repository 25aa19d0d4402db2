package placement

import (
	"context"
	"fmt"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// classSearch places the pods of one class.
type classSearch struct {
	*trial
	class     *Class
	prototype *framework.PodInfo
	demand    demand
	uidPrefix string
	// bare is the prototype pod without its claims, which are not for the
	// scheduler's plugins to look at: those that they name may not exist yet.
	bare *v1.Pod
	// hasClaims: claims are planned, for each pod anew.
	hasClaims bool
	// preFilterEach: PreFilter must run anew for each pod. PodTopologySpread
	// follows only two domains when it is told of siblings, so that with three
	// it takes a domain that has fallen behind for an equal.
	preFilterEach bool
	// spreadKeys are the node labels over which the pod says that its kind must
	// be spread; the profile's own default constraints are not among them.
	spreadKeys []string
	// near are the node labels whose values all pods of the class must share.
	near []string

	// state is that of the plugins; nil before PreFilter.
	state fwk.CycleState
	// heard is the trial's count of moves that state knows of.
	heard int
	// next is the next pod, if there are claims to plan; nil once it is placed.
	next *claimant
	// allowed are the nodes that PreFilter lets through, nil for all.
	allowed sets.Set[string]
	// refused is PreFilter's "no" for the whole cluster.
	refused *fwk.Status
	// avoid are the nodes that the class is kept away from.
	avoid sets.Set[string]
	// within are the indices of the nodes to stay within, nil for all.
	within []int
	// group has the classes that ask for domains together with this one, beside
	// those that it should be close to; nil without.
	group, beside *group
	// neighbours are the others of the gang that the pods are to be near to, nil where
	// that does not count.
	neighbours *neighbours
	// bounds are the indices of the nodes of the group's domain, nil for all, and
	// order is the place of each in an order that comes before the names.
	bounds []int
	order  map[int]int
	// chosen are the nodes of the pods placed so far.
	chosen []string
}

func (t *trial) newClassSearch(gang *Gang, index int) (*classSearch, error) {
	class := &gang.Classes[index]
	switch {
	case class.Pod == nil:
		return nil, fmt.Errorf("pod set %s has no prototype pod", class.Name)
	case class.Pod.Spec.NodeName != "":
		return nil, fmt.Errorf("the prototype pod of pod set %s has a node, %s", class.Name, class.Pod.Spec.NodeName)
	case class.Count < 0:
		return nil, fmt.Errorf("pod set %s has %d pods", class.Name, class.Count)
	}
	prototype, err := framework.NewPodInfo(class.Pod)
	if err != nil {
		return nil, fmt.Errorf("reading the prototype pod of pod set %s: %w", class.Name, err)
	}
	s := &classSearch{
		trial:     t,
		class:     class,
		prototype: prototype,
		// Calculated here, the requests stay cached in every copy of the PodInfo.
		demand:    t.demandOf(prototype),
		uidPrefix: fmt.Sprintf("plan/%s/", gang.UID),
		bare:      class.Pod,
		hasClaims: t.claims.usedBy(class.Pod),
		avoid:     sets.New(class.Avoid...).Insert(class.Reserved...),
	}
	if s.hasClaims {
		s.bare = withoutClaims(class.Pod)
	}
	s.near = s.nearKeys()
	s.neighbours = s.neighboursOf()
	for _, c := range class.Pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == v1.DoNotSchedule {
			s.spreadKeys = append(s.spreadKeys, c.TopologyKey)
		}
	}
	return s, nil
}

// attempt places as many pods of the class as it can, within the nodes set.
func (s *classSearch) attempt(ctx context.Context) error {
	if s.class.Count == 0 {
		return nil
	}
	if s.state == nil {
		if err := s.preFilter(ctx); err != nil || s.refused != nil {
			return err
		}
	}
	regions := s.regions()
	progress := false
	for left := s.class.Count; left > 0; {
		r, i := nextRegion(regions, left)
		if r == nil {
			// A domain that was ahead of the others may take pods again once
			// the others have caught up.
			if !progress || !unblock(regions) {
				return nil
			}
			progress = false
			continue
		}
		c := r.all[i]
		r.take(i)
		want := left
		if s.variation != nil && s.variation.loose {
			want = 1
		}
		placed, ahead, err := s.fill(ctx, &c, want)
		if err != nil || s.refused != nil {
			return err
		}
		left -= placed
		progress = progress || placed > 0
		if placed == want && placed < c.room && left > 0 {
			c.room -= placed
			c.rank = s.variation.rank()
			r.put(c)
			continue
		}
		if ahead && c.room > placed && len(s.spreadKeys) > 0 {
			c.room -= placed
			c.gpus -= int64(placed) * s.demand.gpus
			c.remainder.milliCPU -= int64(placed) * s.demand.milliCPU
			c.remainder.memory -= int64(placed) * s.demand.memory
			r.put(c)
			r.blocked = true
		}
	}
	return nil
}

// preFilter starts a CycleState over the snapshot as it is now.
func (s *classSearch) preFilter(ctx context.Context) error {
	s.state, s.heard, s.next = framework.NewCycleState(), s.moves, nil
	s.spent += s.preFilterEffort()
	MarkPlanning(s.state)
	result, status, _ := s.fw.RunPreFilterPlugins(ctx, s.state, s.bare)
	switch {
	case status.IsRejected():
		s.refused = status
	case !status.IsSuccess():
		return fmt.Errorf("running PreFilter plugins: %w", status.AsError())
	case result.AllNodes():
		s.allowed = nil
	default:
		s.allowed = result.NodeNames
	}
	if !s.preFilterEach && s.isSpread() {
		// No try can do with less.
		s.preFilterEach = true
		s.most += s.class.Count * s.preFilterEffort()
	}
	return s.claim(ctx)
}

// stale says that pods were placed or taken back that the state does not know of, and
// that may matter to it. Pods of one gang matter to those of another class if some of
// them mind on which nodes others are.
func (s *classSearch) stale() bool { return s.heard != s.moves && (s.minding || s.preFilterEach) }

// minds says that the pods require others near them, or away from them.
func (s *classSearch) minds() bool {
	return len(s.prototype.GetRequiredAffinityTerms()) > 0 || len(s.prototype.GetRequiredAntiAffinityTerms()) > 0
}

// claim has the next pod's claims looked at, unless that was done, and others of the gang
// have neither got anything since nor given it back.
func (s *classSearch) claim(ctx context.Context) error {
	if !s.hasClaims || s.refused != nil || (s.next != nil && s.next.seen == s.claims.writes) {
		return nil
	}
	s.spent += s.claimEffort()
	next, status := s.claims.claimant(ctx, s.hypothetical(s), s.bareNodes)
	switch {
	case status.IsRejected():
		s.refused = status
	case !status.IsSuccess():
		return fmt.Errorf("running PreFilter plugins for claims: %w", status.AsError())
	default:
		s.next = next
	}
	return nil
}

// filter runs the Filter plugins for one more pod on the node.
func (s *classSearch) filter(ctx context.Context, node fwk.NodeInfo) *fwk.Status {
	node = bare(node)
	if status := s.fw.RunFilterPlugins(ctx, s.state, s.bare, node); !status.IsSuccess() || s.next == nil {
		return status
	}
	return s.next.filter(ctx, node)
}

// isSpread tells whether PodTopologySpread has something to say, be it for the
// pod's constraints or for the profile's.
func (s *classSearch) isSpread() bool {
	return !s.state.GetSkipFilterPlugins().Has(names.PodTopologySpread) &&
		slices.ContainsFunc(s.fw.ListPlugins().PreFilter.Enabled, func(p config.Plugin) bool { return p.Name == names.PodTopologySpread })
}

// fill places up to left pods on the candidate, until Filter refuses. ahead
// says that it refused only because the node's domain is ahead of others.
func (s *classSearch) fill(ctx context.Context, c *candidate, left int) (placed int, ahead bool, err error) {
	node := s.nodes[c.node]
	for placed < min(left, c.room) {
		if err := s.spend(ctx, 1); err != nil {
			return placed, false, err
		}
		if s.state == nil || s.stale() {
			if err := s.preFilter(ctx); err != nil || s.refused != nil {
				return placed, false, err
			}
		}
		if err := s.claim(ctx); err != nil || s.refused != nil {
			return placed, false, err
		}
		if s.allowed != nil && !s.allowed.Has(c.name) {
			return placed, false, nil
		}
		if status := s.filter(ctx, node); !status.IsSuccess() {
			if !status.IsRejected() {
				return placed, false, fmt.Errorf("filtering node %s: %w", c.name, status.AsError())
			}
			return placed, isAhead(status), nil
		}
		if s.next != nil {
			if err := s.claims.reserve(ctx, s.next, c.name); err != nil {
				// What Filter found has just changed. The pod starts anew on the
				// next node.
				s.logger.V(2).Info("Claims not reserved in a plan", "node", c.name, "err", err)
				s.claims.rollBack(s.next.mark)
				s.next = nil
				return placed, false, nil
			}
		}
		info, err := s.assume(s, node)
		if err != nil {
			return placed, false, err
		}
		if !s.preFilterEach {
			if status := s.fw.RunPreFilterExtensionAddPod(ctx, s.state, s.bare, info, bare(node)); !status.IsSuccess() {
				return placed, false, fmt.Errorf("telling plugins of a pod on node %s: %w", c.name, status.AsError())
			}
			s.heard = s.moves
		}
		s.chosen = append(s.chosen, c.name)
		s.spent += seatEffort
		placed++
	}
	return placed, false, nil
}

// isAhead tells a refusal that ends when siblings are placed elsewhere.
func isAhead(status *fwk.Status) bool {
	return status.Plugin() == names.PodTopologySpread && status.Code() == fwk.Unschedulable
}

// candidates are the nodes with room for at least one pod, until it is asked again.
func (s *classSearch) candidates() []candidate {
	fixed, screen := sets.New(s.class.Fixed...), s.screen()
	indices := s.within
	if indices == nil {
		indices = s.bounds
	}
	if indices == nil {
		indices = make([]int, len(s.nodes))
		for i := range indices {
			indices[i] = i
		}
	}
	found := slices.Grow(s.scores.found[:0], len(indices))
	for _, i := range indices {
		node := s.nodes[i]
		if node.Node() == nil {
			continue
		}
		allocatable, requested := node.GetAllocatable(), node.GetRequested()
		room, gpus := s.demand.roomAndGPUs(allocatable, requested, len(node.GetPods()), s.class.Count)
		if room == 0 {
			continue
		}
		if !screen.lets(node.Node()) {
			continue
		}
		name := node.Node().Name
		c := candidate{name: name, node: i, tier: tierPlain, room: room, rank: s.variation.rank(), gpus: gpus}
		if s.demand.gpus == 0 {
			c.gpus = s.demand.freeGPUs(node, s.isGPU)
		}
		if c.gpus > 0 && s.variation == nil {
			c.remainder = s.remainderOf(i)
		}
		switch {
		case fixed.Has(name):
			c.tier = tierFixed
		case s.demand.gpus == 0 && s.demand.gpusOf(allocatable, s.isGPU) > 0:
			c.tier = tierSpared
		}
		if s.order != nil {
			c.order = uint16(min(s.order[i], math.MaxUint16))
		}
		switch {
		case s.beside != nil:
			c.rank = s.beside.distance(node.Node())
		case s.neighbours != nil && s.variation == nil:
			c.rank = s.neighbours.distance(node.Node())
		}
		found = append(found, c)
	}
	s.scores.found = found
	return found
}

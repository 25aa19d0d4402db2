package placement

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/muster-gpu/muster/api/reason"
)

// whyNot asks the Filter plugins about every node, with the pods placed so far
// in place, and turns the answers into a reason.
func (s *classSearch) whyNot(ctx context.Context, gang []*classSearch) (*reason.Reason, error) {
	if s.refused == nil {
		if s.state == nil || s.stale() {
			if err := s.preFilter(ctx); err != nil {
				return nil, err
			}
		} else if err := s.claim(ctx); err != nil {
			return nil, err
		}
	}
	if s.refused != nil {
		why := shortage{refused: strings.Join(s.refused.Reasons(), ", ")}
		if len(gang) > 1 {
			why.podSet = s.class.Name
		}
		return why.reason(), nil
	}
	own, screen := s.ownGPUs(gang), s.screen()
	wants := s.demand.wants()
	why := shortage{
		pods:     s.class.Count,
		placed:   len(s.chosen),
		gpus:     s.demand.gpus,
		unit:     s.demand.unit(),
		room:     len(s.chosen),
		missing:  shortfallOf(&s.demand),
		sizes:    slices.Clone(wants),
		refusals: refusals{wants: slices.Clone(wants)},
		enough:   refusals{wants: slices.Clone(wants)},
	}
	if len(gang) > 1 {
		why.podSet = s.class.Name
	}
	for _, sibling := range gang {
		why.gangGPUs += int64(sibling.class.Count) * sibling.demand.gpus
	}
	empty := framework.NewResource(nil)
	for _, node := range s.nodes {
		if node.Node() == nil {
			continue
		}
		if err := s.goesOn(ctx); err != nil {
			return nil, err
		}
		why.nodes++
		allocatable, requested := node.GetAllocatable(), node.GetRequested()
		for name, quantity := range allocatable.GetScalarResources() {
			if s.isGPU(name) {
				why.clusterGPUs += quantity
			}
		}
		unknown := s.demand.unknownGPUs(allocatable)
		why.uncounted = why.uncounted || unknown ||
			slices.ContainsFunc(gang, func(sibling *classSearch) bool { return sibling.demand.unknownGPUs(allocatable) })
		// Less than none is free where room is claimed that others have not left.
		size := s.demand.gpusOf(allocatable, s.isGPU)
		left := size - s.demand.gpusOf(requested, s.isGPU)
		gpuRoom := s.demand.gpuRoom(allocatable, requested, s.class.Count)
		refused, err := s.ask(ctx, node, &screen)
		if err != nil {
			return nil, err
		}
		// A node may pass that the search did not use: one outside the domain
		// that the pods placed so far are bound to.
		why.refusals.count(node, refused)
		if s.demand.gpus > 0 && gpuRoom > 0 {
			why.enough.count(node, refused)
		} else {
			why.fewer++
		}
		usable := refused.tooSmall || isUsable(refused.status)
		if usable || isAway(node.Node()) || slices.Contains(s.class.Reserved, node.Node().Name) {
			why.possible++
			why.total += size
			why.largest = max(why.largest, size)
			why.emptyRoom += s.demand.room(allocatable, empty, 0, s.class.Count)
			if unknown || size >= s.demand.gpus {
				for i := range why.sizes {
					why.sizes[i].size(node)
				}
			}
		}
		free := max(0, left+own[node.Node().Name])
		switch {
		case usable:
			why.free += free
			why.mostFree = max(why.mostFree, free)
			if s.demand.gpus > 0 {
				why.room += gpuRoom
				why.missing.add(left, size-own[node.Node().Name])
			}
		case s.demand.gpus > 0 && free > 0:
			why.passedOver.count(node, refused)
		}
	}
	return why.reason(), nil
}

// refusal is why a node takes no more pods of a class; the zero one of a node that
// takes some.
type refusal struct {
	// tooSmall: too little is free of what the pod asks for, and the node is not
	// refused for good. No plugin was asked then.
	tooSmall bool
	status   *fwk.Status
}

// count counts a node.
func (r *refusals) count(node fwk.NodeInfo, refused refusal) {
	switch {
	case refused.tooSmall:
		for i := range r.wants {
			r.wants[i].tell(node)
		}
	case !refused.status.IsSuccess():
		r.hear(refused.status.Reasons())
	}
}

// ask tells whether the node takes one more pod. The Filter plugins are asked about
// nodes that have room, and about the first of each kind that the screen refuses: on a
// full cluster, and on one whose nodes are mostly for others, that is few.
func (s *classSearch) ask(ctx context.Context, node fwk.NodeInfo, screen *screen) (refusal, error) {
	no := func(text string) (refusal, error) {
		return refusal{status: fwk.NewStatus(fwk.UnschedulableAndUnresolvable, text)}, nil
	}
	switch name := node.Node().Name; {
	case s.avoid.Has(name) && slices.Contains(s.class.Avoid, name):
		return no("node(s) that were away or failed a pod of the gang")
	case s.avoid.Has(name):
		return no("node(s) reserved for jobs that have waited for long")
	case s.allowed != nil && !s.allowed.Has(name):
		return no("node(s) didn't satisfy a PreFilter plugin")
	}
	why := screen.marks(node.Node())
	if why == isUnready {
		return no("node(s) were not ready")
	}
	if why == 0 && s.demand.room(node.GetAllocatable(), node.GetRequested(), len(node.GetPods()), 1) == 0 {
		return refusal{tooSmall: true}, nil
	}
	if status := screen.said[why]; status != nil {
		return refusal{status: status}, nil
	}
	status := s.filter(ctx, node)
	switch {
	case !status.IsSuccess() && !status.IsRejected():
		return refusal{}, fmt.Errorf("filtering node %s: %w", node.Node().Name, status.AsError())
	case why != 0 && !status.IsSuccess():
		if screen.said == nil {
			screen.said = map[marks]*fwk.Status{}
		}
		screen.said[why] = status
	}
	return refusal{status: status}, nil
}

// isUsable tells a node that is only too full, has the wrong pods nearby, or
// not the volumes or devices, from one that the pod may not use at all. Too few
// resources on an empty node are not a refusal of the node: shortage counts
// them itself.
func isUsable(status *fwk.Status) bool {
	if status.Code() != fwk.UnschedulableAndUnresolvable {
		return true
	}
	switch status.Plugin() {
	case names.NodeResourcesFit, names.InterPodAffinity, names.VolumeBinding, names.DynamicResources, GPUDevices:
		return true
	}
	return false
}

// isAway tells a node that is cordoned, not ready or unreachable: its GPUs
// cannot be used now, but the cluster has them.
func isAway(node *v1.Node) bool {
	return node.Spec.Unschedulable || (takesNoPods(node) && !slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool {
		return t.Effect != v1.TaintEffectPreferNoSchedule && !isOfState(t)
	}))
}

// takesNoPods tells a node that is cordoned, not ready, unreachable or otherwise in a
// state in which it takes no pods, whatever they tolerate for other reasons.
func takesNoPods(node *v1.Node) bool {
	return node.Spec.Unschedulable || len(UnreadyTaints(node)) > 0 || slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool {
		return t.Effect != v1.TaintEffectPreferNoSchedule && isOfState(t)
	})
}

// isOfState says that a taint tells of the state of its node.
func isOfState(t v1.Taint) bool { return strings.HasPrefix(t.Key, "node.kubernetes.io/") }

// ownGPUs are the GPUs, of the class's names, that the gang's pods have taken from
// each node.
func (s *classSearch) ownGPUs(gang []*classSearch) map[string]int64 {
	own := make(map[string]int64)
	for _, sibling := range gang {
		if each := s.demand.shared(&sibling.demand); each > 0 {
			for _, name := range sibling.chosen {
				own[name] += each
			}
		}
	}
	return own
}

// shared is how many GPUs of the demand's names a pod of another demand takes. A demand
// without GPUs counts all.
func (d *demand) shared(other *demand) (n int64) {
	if d.gpus == 0 {
		return other.gpus
	}
	for _, o := range other.scalars {
		if o.gpu && slices.ContainsFunc(d.scalars, func(s scalar) bool { return s.name == o.name }) {
			n += o.quantity
		}
	}
	return n
}

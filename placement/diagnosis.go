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
		if s.stale || s.state == nil {
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
	own := s.ownGPUs()
	why := shortage{
		pods:       s.class.Count,
		placed:     len(s.chosen),
		gpus:       s.demand.gpus,
		room:       len(s.chosen),
		refusals:   map[string]int{},
		passedOver: map[string]int{},
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
		allocatable := node.GetAllocatable()
		for name, quantity := range allocatable.GetScalarResources() {
			if s.isGPU(name) {
				why.clusterGPUs += quantity
			}
		}
		status, err := s.ask(ctx, node)
		if err != nil {
			return nil, err
		}
		// A node may pass that the search did not use: one outside the domain
		// that the pods placed so far are bound to.
		if !status.IsSuccess() {
			for _, text := range status.Reasons() {
				why.refusals[text]++
			}
		}
		// Less than none is free where room is claimed that others have not left.
		free := max(0, s.demand.gpusOf(allocatable, s.isGPU)-s.demand.gpusOf(node.GetRequested(), s.isGPU)+own[node.Node().Name])
		usable := isUsable(status)
		if usable || isAway(node.Node()) || slices.Contains(s.class.Reserved, node.Node().Name) {
			why.possible++
			all := s.demand.gpusOf(allocatable, s.isGPU)
			why.total += all
			why.largest = max(why.largest, all)
			why.emptyRoom += s.demand.room(allocatable, empty, 0, s.class.Count)
		}
		switch {
		case usable:
			why.free += free
			why.mostFree = max(why.mostFree, free)
			why.room += s.demand.gpuRoom(allocatable, node.GetRequested(), s.class.Count)
		case s.demand.gpus > 0 && free > 0:
			for _, text := range status.Reasons() {
				why.passedOver[text]++
			}
		}
	}
	return why.reason(), nil
}

// ask runs the Filter plugins for one more pod on the node.
func (s *classSearch) ask(ctx context.Context, node fwk.NodeInfo) (*fwk.Status, error) {
	switch name := node.Node().Name; {
	case slices.Contains(s.class.Avoid, name):
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) that were away or failed a pod of the gang"), nil
	case slices.Contains(s.class.Reserved, name):
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) reserved for jobs that have waited for long"), nil
	case s.allowed != nil && !s.allowed.Has(name):
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) didn't satisfy a PreFilter plugin"), nil
	}
	status := s.filter(ctx, node)
	if !status.IsSuccess() && !status.IsRejected() {
		return nil, fmt.Errorf("filtering node %s: %w", node.Node().Name, status.AsError())
	}
	return status, nil
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
	case names.NodeResourcesFit, names.InterPodAffinity, names.VolumeBinding, names.DynamicResources:
		return true
	}
	return false
}

// isAway tells a node that is cordoned, not ready or unreachable: its GPUs
// cannot be used now, but the cluster has them.
func isAway(node *v1.Node) bool {
	if node.Spec.Unschedulable {
		return true
	}
	away := false
	for _, taint := range node.Spec.Taints {
		if taint.Effect == v1.TaintEffectPreferNoSchedule {
			continue
		}
		if !strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
			return false
		}
		away = true
	}
	return away
}

// ownGPUs are the GPUs, of the class's names, that the trial's pods have
// taken from each node.
func (s *classSearch) ownGPUs() map[string]int64 {
	own := make(map[string]int64)
	for _, pod := range s.assumed {
		info := framework.PodInfo{Pod: pod.Pod}
		own[pod.Spec.NodeName] += s.demand.gpusOf(info.CalculateResource().Resource, s.isGPU)
	}
	return own
}

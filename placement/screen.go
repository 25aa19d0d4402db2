package placement

import (
	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// cordon stands for a cordoned node in tolerations.
var cordon = &v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}

// screen tells nodes that the Filter plugins refuse a pod for good from the pod
// and the node alone, without asking them: for its labels, taints or a cordon. Room on such
// nodes would make a domain look larger than it is. It asks for less than the
// plugins do, and for nothing of which the profile has no plugin. A node that is
// not ready is refused for the taints that it is about to get.
type screen struct {
	*classSearch
	labels, taints, cordons bool
	require                 nodeaffinity.RequiredNodeAffinity
	// alone: no two pods of the class may be on one node.
	alone bool
	// said is what the Filter plugins have said of a node, by why the screen refuses
	// it: of others they say the same.
	said map[marks]*fwk.Status
}

// marks are why a screen refuses a node.
type marks uint8

const (
	otherLabels marks = 1 << iota
	isCordoned
	hasTaint
	isUnready
)

func (s *classSearch) screen() screen {
	c := screen{classSearch: s, alone: keepsApart(s.prototype)}
	for _, p := range s.fw.ListPlugins().Filter.Enabled {
		c.labels = c.labels || p.Name == names.NodeAffinity
		c.taints = c.taints || p.Name == names.TaintToleration
		c.cordons = c.cordons || p.Name == names.NodeUnschedulable
	}
	if c.labels {
		c.require = nodeaffinity.GetRequiredNodeAffinity(s.bare)
	}
	return c
}

// lets says that a node may do.
func (c *screen) lets(node *v1.Node) bool {
	if c.avoid.Has(node.Name) {
		return false
	}
	if c.allowed != nil && !c.preFilterEach && !c.allowed.Has(node.Name) {
		return false
	}
	return c.marks(node) == 0
}

// marks are why a node will not do for any pod of the class.
func (c *screen) marks(node *v1.Node) (m marks) {
	if c.labels {
		if match, err := c.require.Match(node); err != nil || !match {
			m |= otherLabels
		}
	}
	if c.cordons && node.Spec.Unschedulable && !corev1helpers.TolerationsTolerateTaint(c.logger, c.bare.Spec.Tolerations, cordon, true) {
		m |= isCordoned
	}
	if c.taints && len(node.Spec.Taints) > 0 {
		_, refused := corev1helpers.FindMatchingUntoleratedTaint(c.logger, node.Spec.Taints, c.bare.Spec.Tolerations, func(t *v1.Taint) bool {
			return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
		}, true)
		if refused {
			m |= hasTaint
		}
	}
	if unready := UnreadyTaints(node); c.taints && len(unready) > 0 {
		if _, refused := corev1helpers.FindMatchingUntoleratedTaint(c.logger, unready, c.bare.Spec.Tolerations, nil, true); refused {
			m |= isUnready
		}
	}
	return m
}

// UnreadyTaints are the taints that the node controller puts on a node that is not
// ready, or of which nothing is heard, once it has come to it. Until then nothing
// else keeps pods off.
func UnreadyTaints(node *v1.Node) []v1.Taint {
	for _, c := range node.Status.Conditions {
		switch {
		case c.Type != v1.NodeReady:
		case c.Status == v1.ConditionFalse:
			return []v1.Taint{{Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectNoSchedule}}
		case c.Status == v1.ConditionUnknown:
			return []v1.Taint{{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoSchedule}}
		}
	}
	return nil
}

// mightLet says that a node may do, now or once it is back.
func (c *screen) mightLet(node *v1.Node) bool {
	return c.lets(node) || isAway(node) || c.avoid.Has(node.Name)
}

// room is how many pods of the class a node has room for, beside so many pods that
// request so much, and how many of them beside a leader too: below 0 if there is no room
// for that one, or none. lets is which nodes count.
func (c *screen) room(leader *screen, info fwk.NodeInfo, requested fwk.Resource, pods int, lets func(*screen, *v1.Node) bool) (room, beside int) {
	node, allocatable := info.Node(), info.GetAllocatable()
	if lets(c, node) {
		room = c.demand.room(allocatable, requested, pods, unlimited)
		if c.alone {
			room = min(room, 1)
		}
	}
	if leader == nil || !lets(leader, node) {
		return room, -1
	}
	return room, min(room, c.demand.roomBeside(&leader.demand, allocatable, requested, pods, unlimited))
}

// keepsApart says that a node takes one pod of the class at most: each wants the
// same port of it, or to be away from its own kind.
func keepsApart(prototype *framework.PodInfo) bool {
	spec := &prototype.Pod.Spec
	for i := range spec.Containers {
		for _, port := range spec.Containers[i].Ports {
			if port.HostPort > 0 {
				return true
			}
		}
	}
	for _, term := range prototype.GetRequiredAntiAffinityTerms() {
		if term.TopologyKey == v1.LabelHostname && term.Matches(prototype.Pod, nil) {
			return true
		}
	}
	return false
}

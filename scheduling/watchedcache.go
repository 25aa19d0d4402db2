package scheduling

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
)

// watchedCache tells the Ledger what the scheduler's cache is told, in the
// order that matters: of pods that leave their nodes before the cache frees
// the room, so that there is no instant in which a slot looks free; of nodes
// that go away before a pod can be refused there; and of room that has come,
// or is used by others, only once the cache shows it, since a pass that looked
// too early would not look again.
type watchedCache struct {
	internalcache.Cache
	ledger *Ledger
}

// Attach gives the Ledger the scheduler's cache and returns the cache that
// the scheduler must use from then on.
func (l *Ledger) Attach(c internalcache.Cache) internalcache.Cache {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cache = c
	return watchedCache{Cache: c, ledger: l}
}

// AddPod tells of a pod that is on a node once the cache counts it, so that
// its phantom goes only then. A pod that was not assumed there may have taken
// what was held.
func (c watchedCache) AddPod(logger klog.Logger, pod *corev1.Pod) error {
	was, unknown := c.Cache.GetPod(pod)
	err := c.Cache.AddPod(logger, pod)
	c.ledger.bound(pod)
	c.ledger.arrived(pod)
	if unknown != nil || was.Spec.NodeName != pod.Spec.NodeName {
		c.ledger.intruded(pod)
	}
	c.ledger.reshowHeldBy(pod)
	return err
}

// UpdatePod tells of changes of a pod that is on a node.
func (c watchedCache) UpdatePod(logger klog.Logger, old, pod *corev1.Pod) error {
	err := c.Cache.UpdatePod(logger, old, pod)
	c.ledger.relabelled(old, pod)
	c.ledger.bound(pod)
	if takesDifferentRoom(old, pod) {
		c.ledger.departed(old)
		c.ledger.arrived(pod)
		c.ledger.intruded(pod)
	}
	return err
}

// RemovePod puts a slot's phantom in before its pod is out.
func (c watchedCache) RemovePod(logger klog.Logger, pod *corev1.Pod) error {
	held := c.ledger.vanished(pod)
	err := c.Cache.RemovePod(logger, pod)
	c.ledger.reshowHeldBy(pod)
	if !held {
		c.ledger.departed(pod)
	}
	return err
}

// RemoveAssumedPod does the same for a pod that was never seen bound.
func (c watchedCache) RemoveAssumedPod(logger klog.Logger, pod *corev1.Pod) error {
	held := c.ledger.vanished(pod)
	err := c.Cache.RemoveAssumedPod(logger, pod)
	if !held {
		c.ledger.departed(pod)
	}
	return err
}

// ForgetPod is how room comes back that a pod was about to take; a gang's pod
// leaves it to the hold of its slot.
func (c watchedCache) ForgetPod(logger klog.Logger, pod *corev1.Pod) error {
	err := c.Cache.ForgetPod(logger, pod)
	if !c.ledger.isHeld(pod) {
		c.ledger.departed(pod)
	}
	return err
}

// AddNode has waiting jobs tried on the new node.
func (c watchedCache) AddNode(logger klog.Logger, node *corev1.Node) {
	c.ledger.shown.mu.Lock()
	defer c.ledger.shown.mu.Unlock()
	_, shown := c.ledger.show(node)
	c.ledger.nodeAway(nil, shown)
	c.ledger.sized(shown)
	c.Cache.AddNode(logger, shown)
	c.ledger.nodeBack(shown)
	c.ledger.nodeChanged()
	c.ledger.heardNodes.saw(node)
}

// UpdateNode has waiting jobs tried where the node may take other pods now, and
// slots kept while it takes none.
func (c watchedCache) UpdateNode(_ klog.Logger, old, node *corev1.Node) {
	c.ledger.shown.mu.Lock()
	defer c.ledger.shown.mu.Unlock()
	before, shown := c.ledger.show(node)
	if before == nil {
		before = old
	}
	c.ledger.updateNode(before, shown)
	c.ledger.heardNodes.saw(node)
}

// RemoveNode gives up the slots on the node.
func (c watchedCache) RemoveNode(logger klog.Logger, node *corev1.Node) error {
	c.ledger.shown.mu.Lock()
	defer c.ledger.shown.mu.Unlock()
	delete(c.ledger.shown.nodes, node.Name)
	err := c.Cache.RemoveNode(logger, node)
	c.ledger.NodeGone(node.Name)
	c.ledger.heardNodes.lost(node)
	return err
}

// takesDifferentRoom says that a change of a pod on its node can change where
// other pods may go.
func takesDifferentRoom(a, b *corev1.Pod) bool {
	requests := func(p *corev1.Pod) corev1.ResourceList {
		return resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{UseStatusResources: true})
	}
	return !equality.Semantic.DeepEqual(a.Labels, b.Labels) || !equality.Semantic.DeepEqual(requests(a), requests(b))
}

// takesDifferentPods says that a change of a node can change which pods it
// takes; heartbeats do not.
func takesDifferentPods(a, b *corev1.Node) bool {
	return a.Spec.Unschedulable != b.Spec.Unschedulable ||
		!equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) ||
		!equality.Semantic.DeepEqual(a.Labels, b.Labels) ||
		!equality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable)
}

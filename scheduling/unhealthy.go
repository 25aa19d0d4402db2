package scheduling

import (
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/api/v1alpha1"
)

// shownNodes are the nodes as the scheduler's cache shows them: with fewer allocatable
// GPUs than in the API where agents say that some are unhealthy. So an unhealthy GPU is to
// whatever plugin, and to the slots on the node, what it is once the kubelet takes it out.
// The lock is held while a node is changed in the cache; the Ledger's may be taken under it.
type shownNodes struct {
	mu    sync.Mutex
	nodes map[string]shownNode
}

// shownNode is a node in the API, and in the scheduler's cache.
type shownNode struct{ api, shown *corev1.Node }

// show is how the scheduler's cache is to have a node, and how it has it, nil for one
// that is new to it.
func (l *Ledger) show(api *corev1.Node) (old, shown *corev1.Node) {
	old, shown = l.shown.nodes[api.Name].shown, l.gpuNodes.withoutUnhealthy(api, l.isOn)
	l.shown.nodes[api.Name] = shownNode{api, shown}
	return old, shown
}

// updateNode changes a node in the scheduler's cache.
func (l *Ledger) updateNode(old, node *corev1.Node) {
	l.nodeAway(old, node)
	l.sized(node)
	l.cache.UpdateNode(l.logger, old, node)
	l.nodeBack(node)
	if takesDifferentPods(old, node) {
		l.nodeChanged()
	}
}

// reshow changes a node in the scheduler's cache if other GPUs of it are unhealthy now.
func (l *Ledger) reshow(name string) {
	old, shown := l.reshown(name)
	if old != shown {
		l.logger.V(2).Info("Other GPUs of a node are unhealthy now", "node", name)
		l.nodeResized(old, shown)
	}
}

// reshown does so, and returns what the cache had and has; the same where it was not
// changed.
func (l *Ledger) reshown(name string) (old, shown *corev1.Node) {
	l.shown.mu.Lock()
	defer l.shown.mu.Unlock()
	n, known := l.shown.nodes[name]
	if !known {
		return nil, nil
	}
	shown = l.gpuNodes.withoutUnhealthy(n.api, l.isOn)
	if sameGPUs(n.shown, shown) {
		return nil, nil
	}
	l.shown.nodes[name] = shownNode{n.api, shown}
	l.updateNode(n.shown, shown)
	return n.shown, shown
}

// reshowHeldBy does so for the node of a pod that has come there or gone, if agents say
// that it holds an unhealthy GPU: that counts as the pod's while it is there, and for
// nobody afterwards.
func (l *Ledger) reshowHeldBy(pod *corev1.Pod) {
	if n := l.gpuNodes.get(pod.Spec.NodeName); n != nil && n.holdsUnhealthy(pod.UID) {
		l.reshow(pod.Spec.NodeName)
	}
}

// reshowOld does so for the nodes that lack GPUs for what is not believed any more.
func (l *Ledger) reshowOld(now time.Time) {
	var old []string
	l.shown.mu.Lock()
	for name, n := range l.shown.nodes {
		if n.shown != n.api && !l.gpuNodes.get(name).knowsHealth(now) {
			old = append(old, name)
		}
	}
	l.shown.mu.Unlock()
	for _, name := range old {
		l.reshow(name)
	}
}

// isOn says that a pod is on a node, as far as the scheduler's cache knows.
func (l *Ledger) isOn(node string, uid types.UID) bool {
	pod, err := l.cache.GetPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}})
	return err == nil && pod.Spec.NodeName == node
}

func sameGPUs(a, b *corev1.Node) bool {
	for name, quantity := range a.Status.Allocatable {
		if gpu.Is(name) && quantity.Cmp(b.Status.Allocatable[name]) != 0 {
			return false
		}
	}
	return true
}

// withoutUnhealthy is the node without the GPUs that its agent says are unhealthy and
// that no pod holds: those that the kubelet has taken out already do not go twice. It is
// the node itself where there are none, where what is said is old, and where its devices
// are not those that the node advertises.
func (g *gpuNodes) withoutUnhealthy(node *corev1.Node, isOn func(node string, uid types.UID) bool) *corev1.Node {
	said := g.get(node.Name)
	if !said.knowsHealth(g.clock.Now()) {
		return node
	}
	less := map[corev1.ResourceName]int64{}
	for name, devices := range said.byResource(node) {
		capacity := node.Status.Capacity[name]
		each := capacity.Value() / int64(len(devices))
		if each == 0 || each*int64(len(devices)) != capacity.Value() {
			continue
		}
		allocatable := node.Status.Allocatable[name]
		n := allocatable.Value() - capacity.Value()
		for _, d := range devices {
			if said.unhealthy(d) {
				n += free(d, each, func(uid types.UID) bool { return isOn(node.Name, uid) })
			}
		}
		if n > 0 {
			less[name] = min(n, allocatable.Value())
		}
	}
	if len(less) == 0 {
		return node
	}
	shown := *node
	shown.Status.Allocatable = maps.Clone(node.Status.Allocatable)
	for name, n := range less {
		quantity := shown.Status.Allocatable[name]
		quantity.Sub(*resource.NewQuantity(n, resource.DecimalSI))
		shown.Status.Allocatable[name] = quantity
	}
	return &shown
}

// byResource are the devices that pods can ask for, by the resources as which the node
// advertises them.
func (n *gpuNode) byResource(node *corev1.Node) map[corev1.ResourceName][]*v1alpha1.GPUDevice {
	out := map[corev1.ResourceName][]*v1alpha1.GPUDevice{}
	for i := range n.devices {
		d := &n.devices[i]
		name := gpu.NVIDIA
		if d.Profile == "" {
			if n.cut.Has(d.Minor) {
				// Pods get its slices.
				continue
			}
		} else if slices := corev1.ResourceName("nvidia.com/mig-" + strings.ReplaceAll(d.Profile, "+", ".")); hasResource(node, slices) {
			name = slices
		}
		out[name] = append(out[name], d)
	}
	return out
}

func hasResource(node *corev1.Node, name corev1.ResourceName) bool {
	_, has := node.Status.Capacity[name]
	return has
}

// unhealthy says that nothing new should be put on a device: it or its GPU is unhealthy.
func (n *gpuNode) unhealthy(d *v1alpha1.GPUDevice) bool {
	return len(d.Unhealthy) > 0 || n.sick.Has(d.Minor)
}

// holdsUnhealthy says that a pod holds an unhealthy device.
func (n *gpuNode) holdsUnhealthy(pod types.UID) bool {
	for i := range n.devices {
		for _, h := range n.devices[i].Holders {
			if h.PodUID == string(pod) && n.unhealthy(&n.devices[i]) {
				return true
			}
		}
	}
	return false
}

// free is how many of the shares of a device no pod holds that is still there. A holder
// that cannot be told from others of its name counts as there.
func free(d *v1alpha1.GPUDevice, shares int64, there func(types.UID) bool) int64 {
	for i := range d.Holders {
		h := &d.Holders[i]
		switch {
		case h.PodUID != "" && !there(types.UID(h.PodUID)):
		case h.Share == "":
			return 0
		default:
			shares -= int64(partsOf(h))
		}
	}
	return max(0, shares)
}

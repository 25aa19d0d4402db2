package scheduling

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"
)

func (w *world) drawNode(t *rapid.T) string {
	return fmt.Sprintf("node-%d", rapid.IntRange(0, worldNodes-1).Draw(t, "node"))
}

// takesPods says that the node is there and not away.
func (w *world) takesPods(name string) bool {
	return w.nodes[name] && len(awayTaints(w.kubelets[name])) == 0
}

// gpusOf are the GPUs that a node has now.
func (w *world) gpusOf(name string) int64 {
	q := w.kubelets[name].Status.Allocatable[gpuResource]
	return q.Value()
}

// tell changes a node and says so.
func (w *world) tell(name string, change func(*corev1.Node)) {
	if !w.nodes[name] {
		return
	}
	old := w.kubelets[name]
	w.kubelets[name] = old.DeepCopy()
	change(w.kubelets[name])
	w.watched.UpdateNode(w.logger, old, w.kubelets[name])
}

func (w *world) goAway(t *rapid.T) {
	how := rapid.SampledFrom([]func(*corev1.Node){cordoned, notReady, unreachable}).Draw(t, "how")
	w.tell(w.drawNode(t), how)
}

func (w *world) comeBack(name string) {
	w.tell(name, func(n *corev1.Node) { *n = *node(name, worldNodeGPUs) })
}

func (w *world) shrink(name string, gpus int64) {
	w.tell(name, func(n *corev1.Node) { n.Status.Allocatable = roomFor(gpus) })
}

func roomFor(gpus int64) corev1.ResourceList { return node("", gpus).Status.Allocatable }

// intrude has someone else put a pod onto a node, if the pods there leave room
// for it.
func (w *world) intrude(name string, gpus int64) {
	if !w.nodes[name] {
		return
	}
	var used int64
	for _, p := range w.plain.Dump().Nodes[name].Pods {
		if !isHold(p.GetPod()) {
			q := p.GetPod().Spec.Containers[0].Resources.Requests[gpuResource]
			used += q.Value()
		}
	}
	if used+gpus > w.gpusOf(name) {
		return
	}
	w.born++
	p := plainPod(fmt.Sprintf("stranger-%d", w.born), name, gpus)
	w.strangers = append(w.strangers, p)
	w.confirm(p)
}

// withdraw ends the oldest of those pods.
func (w *world) withdraw() {
	if len(w.strangers) > 0 {
		w.leave(w.strangers[0])
	}
}

func (w *world) leave(p *corev1.Pod) {
	w.strangers = slices.DeleteFunc(w.strangers, func(q *corev1.Pod) bool { return q == p })
	w.gone(p)
}

// putOn has someone else bind a pod of a job that owns its pods.
func (w *world) putOn(o *owner, p *worldPod, name string) {
	if o.job.Gated || !w.nodes[name] || p.DeletionTimestamp != nil {
		return
	}
	p.bound = onNode(p.Pod, name)
	w.confirm(p.bound)
}

func isHold(p *corev1.Pod) bool { return strings.HasPrefix(string(p.UID), "hold-") }

// checkRoom says that a node is not overfull with holds that can be given up:
// those of admitted jobs, unless it has just become smaller.
func (w *world) checkRoom(t *rapid.T, name string, info *framework.NodeInfo) {
	got := info.Requested.ScalarResources[gpuResource] - promised(info)
	if info.Node() == nil || got <= w.gpusOf(name) {
		return
	}
	if a := w.away[name]; a != nil && a.short {
		return
	}
	var of *entry
	for e, slots := range w.slotsOn(name) {
		for _, s := range slots {
			switch {
			case s.hold == nil:
			case e.state == Admitting:
				// It may be the one to give way, once it is written.
				return
			case e.state == Admitted:
				of = e
			}
		}
	}
	if of != nil {
		t.Fatalf("%s has %d GPUs taken of %d, and a slot is held for %s", name, got, w.gpusOf(name), of)
	}
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func notReady(n *corev1.Node) {
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
}

func unreachable(n *corev1.Node) {
	n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
}

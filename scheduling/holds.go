package scheduling

import (
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	corev1defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"

	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// prototypes are the hypothetical pods of a job, class by class, as its
// controllers will make them once the owner is resumed.
func prototypes(e *entry, a *quota.Assignment, tree *quota.Tree) []class {
	classes := classesOf(e.job, bases(e, a, tree))
	if !e.hasDomains() {
		setCloseness(e.job, a, tree, classes)
	}
	return e.byDomain(classes)
}

// bases are the prototypes of the pod sets, on which the controllers have not
// written yet: the rendered template with what the assigned flavors inject, or
// a real pod that needed more.
func bases(e *entry, a *quota.Assignment, tree *quota.Tree) []*corev1.Pod {
	out := make([]*corev1.Pod, len(e.job.PodSets))
	infos := injections(e.job, a, tree)
	for i := range e.job.PodSets {
		out[i] = prototype(e, &e.job.PodSets[i], infos[i])
	}
	return out
}

func prototype(e *entry, ps *workload.PodSet, info workload.PodSetInfo) *corev1.Pod {
	job, t := e.job, e.placed(ps)
	pod := &corev1.Pod{Spec: t.Spec}
	pod.Name = fmt.Sprintf("hold-%s-%s", job.Owner.Name, ps.Name)
	pod.UID = types.UID(fmt.Sprintf("hold-%s-%s", job.Owner.UID, ps.Name))
	pod.Namespace = job.Owner.Namespace
	pod.Labels, pod.Annotations = t.Labels, t.Annotations
	if len(info.NodeSelector) > 0 {
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		maps.Copy(pod.Spec.NodeSelector, info.NodeSelector)
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, info.Tolerations...)
	// For a template that could not be rendered.
	corev1defaults.SetObjectDefaults_Pod(pod)
	return pod
}

// injections are what a resume puts into each pod set: the node labels and
// tolerations of its flavors, as Kueue does.
func injections(job *workload.Job, a *quota.Assignment, tree *quota.Tree) []workload.PodSetInfo {
	out := make([]workload.PodSetInfo, len(job.PodSets))
	for i := range job.PodSets {
		out[i].Name = job.PodSets[i].Name
		if job.PodSets[i].Whole > 0 {
			out[i].Count = job.PodSets[i].Count
		}
		seen := map[string]bool{}
		for _, flavor := range a.Flavors[i] {
			if seen[flavor] {
				continue
			}
			seen[flavor] = true
			labels, tolerations, _ := tree.Flavor(flavor)
			for k, v := range labels {
				if out[i].NodeSelector == nil {
					out[i].NodeSelector = map[string]string{}
				}
				out[i].NodeSelector[k] = v
			}
			out[i].Tolerations = append(out[i].Tolerations, tolerations...)
		}
	}
	return out
}

// setTolerations notes what the waiting pods of a job must be given.
func (l *Ledger) setTolerations(e *entry) {
	if !e.job.Gated {
		return
	}
	for i, info := range injections(e.job, e.assignment, l.quota) {
		e.sets[i].tolerations = info.Tolerations
	}
}

// phantom is the pod that holds a slot in the scheduler's cache.
func phantom(proto *corev1.Pod, index int, node string) *corev1.Pod {
	p := *proto
	p.Name = fmt.Sprintf("%s-%d", proto.Name, index)
	p.UID = types.UID(fmt.Sprintf("%s-%d", proto.UID, index))
	p.Spec.NodeName = node
	return &p
}

// holdAll puts a phantom into every slot of a job that has none and no pod.
func (l *Ledger) holdAll(e *entry, classes []class) error {
	for _, c := range classes {
		for _, s := range e.slotsOf(c) {
			if s.hold != nil || s.occupied() || s.done || s.node == "" {
				continue
			}
			if err := l.hold(s, phantom(c.pod, s.index, s.node)); err != nil {
				return fmt.Errorf("holding slot %d of pod set %s of %s: %w", s.index, s.set.set.Name, e, err)
			}
		}
	}
	return nil
}

func (l *Ledger) hold(s *slot, ph *corev1.Pod) error {
	if err := l.cache.AssumePod(l.logger, ph); err != nil {
		return err
	}
	s.hold = ph
	return nil
}

// holdIfRoom holds a slot whose node may have filled up meanwhile; the slot is
// lost if its node is gone or has no room for it.
func (l *Ledger) holdIfRoom(s *slot, ph *corev1.Pod) {
	info, err := l.cache.GetNode(s.node)
	if err == nil && info.Node() != nil && len(noderesources.Fits(ph, info, l.devices, noderesources.ResourceRequestsOptions{EnableDRAExtendedResource: l.devices != nil})) == 0 {
		err = l.hold(s, ph)
	} else if err == nil {
		err = errNoRoom
	}
	if err != nil {
		l.logger.V(2).Info("A slot is planned anew", "pod", klog.KObj(ph), "node", s.node, "why", err.Error())
		s.node = ""
	}
}

var errNoRoom = errors.New("the node has no room for it now")

// holdAgain puts the phantom of one slot back; the slot is lost if it cannot, or
// if the node has less room than its pod took.
func (l *Ledger) holdAgain(e *entry, s *slot) {
	if s.hold != nil || s.done || s.node == "" || !e.holdsCapacity() {
		return
	}
	c, found := l.classOf(e, s)
	if !found {
		return
	}
	if err := l.hold(s, phantom(c.pod, s.index, s.node)); err != nil {
		l.logger.Error(err, "Holding a slot again", "job", klog.KRef(e.job.Owner.Namespace, e.job.Owner.Name), "node", s.node)
		s.node = ""
		l.replan(e)
	} else if a := l.away[s.node]; a == nil || !a.short {
		l.inspect(s.node, nil)
	}
}

// classOf is the class of one slot of a job that is charged; there is none if
// the job's pod sets cannot be read any more.
func (l *Ledger) classOf(e *entry, s *slot) (class, bool) {
	all := bases(e, e.assignment, l.quota)
	for i := range e.job.PodSets {
		if ps := &e.job.PodSets[i]; ps.Name == s.set.set.Name {
			step := divisionOf(all).step(ps)
			c := newClass(ps, i, all[i], s.index/step*step, step)
			if s.set.domains != nil {
				c = c.in(s.set.domains[s.index], s.index, s.index+1)
			}
			return c, true
		}
	}
	return class{}, false
}

func (l *Ledger) dropHold(s *slot) {
	if s.hold == nil {
		return
	}
	if err := l.cache.ForgetPod(l.logger, s.hold); err != nil {
		l.logger.Error(err, "Forgetting a hold", "pod", klog.KObj(s.hold))
	}
	s.hold = nil
}

func (l *Ledger) dropHolds(e *entry) {
	for _, set := range e.sets {
		for _, s := range set.slots {
			l.dropHold(s)
		}
	}
}

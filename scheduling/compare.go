package scheduling

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/muster-gpu/muster/rendering"
	"github.com/muster-gpu/muster/workload"
)

// mostReplans bounds how often the pods of one set may turn out to need
// something else. After that the scheduler's own filters refuse what does not
// fit, and the job is released whole when it does not start.
const mostReplans = 5

// placed is what the pods of a set are planned as, to be changed freely: what
// they turned out to be, or else the rendered template.
func (e *entry) placed(ps *workload.PodSet) corev1.PodTemplateSpec {
	t := ps.PlacedTemplate()
	t = *t.DeepCopy()
	if set := e.set(ps.Name); set != nil && set.real != nil {
		t.Spec = *set.real.DeepCopy()
	}
	return t
}

// compare looks at the pod that has come for a slot. If it needs something
// else than was planned, all of its set that is not on nodes is planned anew as
// pods like this one, before any pod of the start group is let in. The room is
// held until then. A pod that is still to be given tolerations is looked at when
// it has them.
func (l *Ledger) compare(e *entry, s *slot) {
	set := s.set
	if s.occupied() || e.state == Leaving || e.assignment == nil || set.replans >= mostReplans || !set.admits(s.pod) {
		return
	}
	planned := l.plannedAs(e, s)
	if planned == nil {
		return
	}
	asked := rendering.Asked(s.pod)
	differences := rendering.Difference(planned, asked)
	if len(differences) == 0 {
		return
	}
	rendering.Cover(asked, planned)
	set.real = asked
	set.replans++
	for _, o := range set.slots {
		if !o.occupied() && !o.done && o.node != "" {
			o.stale = true
		}
	}
	e.version++
	l.sendBack(e, s.group(), "a pod of the gang needs something else than was planned")
	what := strings.Join(differences, ", and ")
	l.logger.V(2).Info("Pods are not what was planned", "job", klog.KRef(e.job.Owner.Namespace, e.job.Owner.Name), "podSet", set.set.Name, "pod", klog.KObj(s.pod), "they", what)
	l.effects.Note(e.job, "PodsDiffer", fmt.Sprintf("pods of set %s are not what was planned: they %s; they are planned anew", set.set.Name, what))
	l.replan(e)
}

// plannedAs is what a slot's node was chosen for, or will be.
func (l *Ledger) plannedAs(e *entry, s *slot) *corev1.PodSpec {
	if s.hold != nil && !s.stale {
		return &s.hold.Spec
	}
	c, found := l.classOf(e, s)
	if !found {
		return nil
	}
	return &c.pod.Spec
}

// shed gives up the nodes that were chosen for other pods than those that have
// come, right before new ones are looked for, so that nobody else takes them
// in between.
func (l *Ledger) shed(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.state != Admitted {
		return
	}
	any := false
	for _, set := range e.sets {
		for _, s := range set.slots {
			if s.stale {
				l.dropHold(s)
				s.node, s.stale, any = "", false, true
			}
		}
	}
	if any {
		l.roomCame()
	}
}

package scheduling

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// relief names the smallest job that would make room, if it left, for one that has
// found too little, as the end of the sentence that says why that waits; empty where
// there is none, or it is not known. It is no promise: who may be stopped for whom is
// for preemption to say. The Ledger's lock must not be held.
func (p *pass) relief(t *attempt, classes []class) (string, error) {
	fw, snap, why, err := p.framework(classes)
	if err != nil || why != nil {
		return "", err
	}
	gang := gangOf(t.job.Owner.Name, t.job.Owner.UID, classes, sizes(classes))
	l := p.ledger
	l.mu.Lock()
	keepOff(&gang, l.reservedFrom(t.e))
	all := l.occupants()
	l.mu.Unlock()
	pods := make([][]*corev1.Pod, len(all))
	for i := range all {
		pods[i] = all[i].pods
	}
	i, err := p.planner.Relief(p.ctx, fw, snap, gang, pods)
	if err != nil || i < 0 {
		return "", err
	}
	return fmt.Sprintf("; it would fit if %s (%s) left", all[i].name, amount(all[i].gpus, all[i].size)), nil
}

// occupant is a job that holds room on nodes with pods.
type occupant struct {
	name       string
	gpus, size int64
	pods       []*corev1.Pod
}

// occupants are the jobs that hold room, the smallest first.
func (l *Ledger) occupants() []occupant {
	var all []occupant
	for e := range l.waits.charged {
		if on := e.occupying(); len(on) > 0 {
			o := e.job.Owner
			all = append(all, occupant{name: o.Kind + " " + o.NamespacedName.String(), gpus: e.gpus(), size: podsOf(e.job), pods: on})
		}
	}
	slices.SortFunc(all, func(a, b occupant) int {
		return cmp.Or(cmp.Compare(a.gpus, b.gpus), cmp.Compare(a.size, b.size), cmp.Compare(a.name, b.name))
	})
	return all
}

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
	names, pods := l.occupants()
	l.mu.Unlock()
	i, err := p.planner.Relief(p.ctx, fw, snap, gang, pods)
	if err != nil || i < 0 {
		return "", err
	}
	return "; it would fit if " + names[i] + " left", nil
}

// occupants are the jobs that hold room, the smallest first, and what they hold it with.
func (l *Ledger) occupants() (names []string, pods [][]*corev1.Pod) {
	type occupant struct {
		name       string
		gpus, size int64
		pods       []*corev1.Pod
	}
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
	for _, o := range all {
		names = append(names, fmt.Sprintf("%s (%s)", o.name, amount(o.gpus, o.size)))
		pods = append(pods, o.pods)
	}
	return names, pods
}

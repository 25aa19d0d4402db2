package scheduling

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	v1helper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-gpu/muster/placement"
)

// absence is a node that does not take pods for now, and may again soon: it is
// cordoned, not ready, unreachable, or has less room than is held on it.
type absence struct {
	since time.Time
	// taints keep off the pods that do not tolerate them.
	taints []corev1.Taint
	// short: what is allocatable there is less than is used and held.
	short bool
}

// problemTaints is what the names of the taints begin with that the node
// controller puts on nodes for their conditions, and takes off again.
const problemTaints = "node.kubernetes.io/"

// awayTaints are the taints that keep pods off a node for now. A node that is
// cordoned or not ready has them before the node controller has come to it.
func awayTaints(node *corev1.Node) []corev1.Taint {
	var out []corev1.Taint
	if node.Spec.Unschedulable {
		out = append(out, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	out = append(out, placement.UnreadyTaints(node)...)
	for _, t := range node.Spec.Taints {
		if strings.HasPrefix(t.Key, problemTaints) && t.Effect != corev1.TaintEffectPreferNoSchedule {
			out = append(out, t)
		}
	}
	return out
}

// what says in what state the node is, as the end of "it has been ...".
func (a *absence) what() string {
	for _, t := range a.taints {
		switch t.Key {
		case corev1.TaintNodeUnschedulable:
			return "cordoned"
		case corev1.TaintNodeNotReady:
			return "not ready"
		case corev1.TaintNodeUnreachable:
			return "unreachable"
		}
	}
	if len(a.taints) > 0 {
		return "tainted with " + a.taints[0].Key
	}
	return "too small for what is held on it"
}

// nodeAway records that a node does not take pods for now. It is told before
// the scheduler's cache shows it, so that a pod which is refused there for it
// does not lose its node. old is nil for a node that was added.
func (l *Ledger) nodeAway(old, node *corev1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	taints, a := awayTaints(node), l.away[node.Name]
	short := a != nil && a.short
	if old != nil && !equality.Semantic.DeepEqual(old.Status.Allocatable, node.Status.Allocatable) {
		short = len(l.roomOf(node.Name, framework.NewResource(node.Status.Allocatable)).over()) > 0
	}
	switch {
	case len(taints) == 0 && !short:
	case a != nil:
		a.taints = taints
		a.short = a.short || short
	default:
		l.away[node.Name] = &absence{since: l.clock.Now(), taints: taints, short: short}
		l.nodeMoves++
		l.claimsOn(node.Name, "does not take pods now")
		l.logger.V(2).Info("A node is away; its slots are kept", "node", node.Name, "taints", taints, "short", short)
		for e, slots := range l.slotsOn(node.Name) {
			for _, s := range slots {
				if s.reserved && !s.bound {
					l.sendBack(e, s.group(), fmt.Sprintf("node %s is away", node.Name))
				}
			}
		}
	}
}

// nodeBack lets the pods in that have waited for the node, once the scheduler's
// cache shows that it takes pods.
func (l *Ledger) nodeBack(node *corev1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.away[node.Name]; a != nil {
		a.taints = awayTaints(node)
		l.returned(node.Name, a)
	}
}

// returned forgets the absence of a node that has ended.
func (l *Ledger) returned(name string, a *absence) {
	a.short = a.short && len(l.roomOf(name, nil).over()) > 0
	if len(a.taints) > 0 || a.short {
		return
	}
	delete(l.away, name)
	l.nodeMoves++
	l.logger.V(2).Info("A node is back", "node", name, "after", l.clock.Since(a.since))
	for e := range l.slotsOn(name) {
		l.wakeAll(e)
	}
	l.roomCame()
}

// isAway says that the node of a slot does not take its pod for now.
func (l *Ledger) isAway(e *entry, s *slot) bool {
	a := l.away[s.node]
	return a != nil && (a.short || l.keepsOff(e, s, a))
}

func (l *Ledger) keepsOff(e *entry, s *slot, a *absence) bool {
	_, off := v1helper.FindMatchingUntoleratedTaint(l.logger, a.taints, l.tolerations(e, s), nil, true)
	return off
}

// tolerations are those of the slot's pod, or of the one that will come.
func (l *Ledger) tolerations(e *entry, s *slot) []corev1.Toleration {
	if s.pod != nil {
		return s.pod.Spec.Tolerations
	}
	out := slices.Clone(s.set.set.Template.Spec.Tolerations)
	for _, info := range injections(e.job, e.assignment, l.quota) {
		if info.Name == s.set.set.Name {
			out = append(out, info.Tolerations...)
		}
	}
	return out
}

// awaited is the node that the start group waits for, "" if for none: one
// that is away, and that a pod of the group has yet to go to.
func (l *Ledger) awaited(e *entry, g startGroup) string {
	if len(l.away) == 0 {
		return ""
	}
	for s := range e.group(g) {
		if !s.bound && !s.done && l.isAway(e, s) {
			return s.node
		}
	}
	return ""
}

// slotsOn are the slots on a node that are not done, by their charged jobs.
func (l *Ledger) slotsOn(node string) map[*entry][]*slot {
	out := map[*entry][]*slot{}
	for e := range l.waits.charged {
		for _, set := range e.sets {
			for _, s := range set.slots {
				if s.node == node && !s.done {
					out[e] = append(out[e], s)
				}
			}
		}
	}
	return out
}

// shun are the nodes that new nodes for slots of a pod set are not looked for
// on, because they do not take pods for now.
func (l *Ledger) shun(e *entry, set *setSlots) []string {
	var out []string
	for name, a := range l.away {
		if a.short || l.keepsOff(e, &slot{set: set}, a) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// giveUpNodes gives up the slots without a running pod on nodes that have been away
// for grace. Where a node is only short, it is as few slots as fit no more.
func (l *Ledger) giveUpNodes(grace time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	for _, name := range slices.Sorted(maps.Keys(l.away)) {
		a := l.away[name]
		if l.returned(name, a); l.away[name] == nil || now.Sub(a.since) < grace {
			continue
		}
		for e, slots := range l.slotsOn(name) {
			if n := l.abandon(e, slots, a, now); n > 0 {
				l.effects.Note(e.job, noteNodeLost, fmt.Sprintf("node %s has been %s for %s; another one is looked for, for %s", name, a.what(), grace, amount(0, n)))
			}
		}
		if a.short {
			a.short = false
			l.inspect(name, l.shortage(name))
			l.returned(name, a)
		}
	}
}

// abandon gives up those of a job's slots on one node that the node keeps off
// and that no pod runs in, and returns how many these are.
func (l *Ledger) abandon(e *entry, slots []*slot, a *absence, now time.Time) int64 {
	if e.state != Admitted {
		return 0
	}
	var n int64
	for _, s := range slots {
		switch {
		case !l.keepsOff(e, s, a):
			continue
		case !s.occupied():
			l.lose(e, s)
		case s.overdue(now):
			l.desert(e, s)
		default:
			continue
		}
		n++
	}
	return n
}

// desert takes a slot from a pod that its node should have removed by now: the
// pod that replaces it goes elsewhere. Until the old pod is gone, it counts on
// its node as a pod without a slot.
func (l *Ledger) desert(e *entry, s *slot) {
	delete(e.seats, s.pod.UID)
	delete(l.sitters, s.pod.UID)
	put(&e.unplaced, s.pod.UID, s.pod)
	s.pod, s.bound = nil, false
	l.lose(e, s)
	l.place(e)
	// A replacement may have its node already, from others.
	l.enqueue(e)
}

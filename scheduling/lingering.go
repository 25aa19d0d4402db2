package scheduling

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// noteStillLeaving warns: a job that was stopped does not leave.
const noteStillLeaving = "StillLeaving"

const (
	// leavingLong is how long a job may take to leave, beside the time that its pods
	// have to end, before it is told what it waits for; tellLeavingEvery is when that
	// is told again.
	leavingLong      = time.Minute
	tellLeavingEvery = 10 * time.Minute
)

// lingering is what is known of a job that is being stopped.
type lingering struct {
	// since is when it was seen to leave first, toldAt when that was told last.
	since, toldAt time.Time
	// active is what its controllers have not stopped; empty if nothing is known.
	active string
}

// stillActive notes that the controllers of a job that is off its nodes have not
// stopped it.
func (l *Ledger) stillActive(uid types.UID, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.lingering[uid]; g != nil {
		g.active = what
	}
}

// tendLeaving tells of the jobs that were stopped and do not leave what they wait for.
func (l *Ledger) tendLeaving(now time.Time) {
	still := map[types.UID]*lingering{}
	for e := range l.waits.charged {
		if e.state != Leaving || l.kueueDecides() {
			continue
		}
		if live, ok := e.remnant(now); ok && e.givesUp(live) {
			l.effects.Sync(keyOf(e.job.Owner))
		}
		if e.ended {
			continue
		}
		uid := e.job.Owner.UID
		g := l.lingering[uid]
		if g == nil {
			g = &lingering{since: now}
		}
		still[uid] = g
		staying := e.staying()
		long := now.Sub(g.since)
		if long < leavingLong+graceOf(staying) || (!g.toldAt.IsZero() && now.Sub(g.toldAt) < tellLeavingEvery) {
			continue
		}
		if what := e.waitsToLeave(staying, g.active); what != "" {
			g.toldAt = now
			keeps := "its quota and its nodes"
			if e.live() != nil {
				keeps = "what these pods take of its quota and its nodes"
			}
			l.effects.Note(e.job, noteStillLeaving, fmt.Sprintf("it has been stopped for %s (%s), and keeps %s: %s",
				long.Round(time.Second), e.eviction.inShort(), keeps, what))
		}
	}
	l.lingering = still
}

// staying are the pods of a job that are on nodes, by name.
func (e *entry) staying() []*corev1.Pod {
	var out []*corev1.Pod
	for _, set := range e.sets {
		for _, s := range set.slots {
			if s.pod != nil && s.occupied() {
				out = append(out, s.pod)
			}
		}
	}
	for _, pod := range e.unplaced {
		if pod.Spec.NodeName != "" {
			out = append(out, pod)
		}
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// graceOf is the longest time that one of the pods is given to end.
func graceOf(pods []*corev1.Pod) time.Duration {
	longest := time.Duration(0)
	for _, p := range pods {
		if grace := p.Spec.TerminationGracePeriodSeconds; grace != nil {
			longest = max(longest, time.Duration(*grace)*time.Second)
		}
	}
	return longest
}

// waitsToLeave is what keeps a job from leaving; empty where that is told elsewhere.
func (e *entry) waitsToLeave(staying []*corev1.Pod, active string) string {
	const most = 3
	switch {
	case e.refusal() != "":
		return ""
	case len(staying) > 0:
		var names []string
		for _, p := range staying[:min(most, len(staying))] {
			names = append(names, p.Name)
		}
		if more := len(staying) - most; more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		return fmt.Sprintf("%s still on nodes (%s)", plural(len(staying), "a pod is", fmt.Sprintf("%d pods are", len(staying))), strings.Join(names, ", "))
	case active != "":
		return "its pods have gone, and " + active
	case !e.stopSent || !(e.job.Suspended || e.job.Gated):
		return "it has not been suspended"
	}
	return ""
}

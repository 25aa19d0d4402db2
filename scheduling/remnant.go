package scheduling

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
)

// A job that has finished may leave pods behind that go on running: the Training
// Operator keeps the workers of a job whose master has succeeded, unless its
// cleanPodPolicy says otherwise. What they take is charged as long as they run.
// The rest of the job's charge and room is given up: first in the Workload, as
// reclaimable pods, then here. So it is for a job that was stopped, where nothing is
// left of it but pods that a dead node never removes.

// reclaimEvery is how long the pods of a finished job have to end before those
// that are left are counted, and counted again: most end at once.
const reclaimEvery = 5 * time.Second

// reclaim is what a job that leaves needs that has pods on nodes.
func (l *Ledger) reclaim(e *entry) action {
	live, ok := e.remnant(l.clock.Now())
	if !ok || !e.givesUp(live) {
		return action{}
	}
	now := l.clock.Now()
	if e.remains == nil {
		e.remains = &remains{}
	}
	r := e.remains
	if r.reclaimAt.IsZero() {
		r.reclaimAt = now.Add(reclaimEvery)
	}
	if now.Before(r.reclaimAt) {
		return action{do: doLater, after: r.reclaimAt.Sub(now)}
	}
	return action{do: doReclaim, live: live, reclaim: e.reclaimable(live)}
}

// remnant is how many pods of each set a job has left on nodes that will not end soon;
// ok is false for a job that has not, and where it is not known of what set a
// pod is.
func (e *entry) remnant(now time.Time) (live []int32, ok bool) {
	if e.state != Leaving || ((e.job.Finish == nil || e.job.Deleting) && !e.isStuck(now)) {
		return nil, false
	}
	live = make([]int32, len(e.sets))
	for i, set := range e.sets {
		for _, s := range set.slots {
			if s.occupied() {
				live[i]++
			}
		}
	}
	for _, pod := range e.unplaced {
		w, ok := e.slotIn(pod)
		i := slices.IndexFunc(e.sets, func(s *setSlots) bool { return s.set.Name == w.PodSet })
		switch {
		case pod.Spec.NodeName == "":
		case !ok || i < 0:
			return nil, false
		default:
			// Its slot may have passed to another pod, which is here too.
			live[i] = min(live[i]+1, int32(len(e.sets[i].slots)))
		}
	}
	return live, true
}

// isStuck says that all pods that a job has on nodes should have left them for long.
func (e *entry) isStuck(now time.Time) bool {
	staying := e.staying()
	return len(staying) > 0 && !slices.ContainsFunc(staying, func(p *corev1.Pod) bool { return !outlives(p, now) })
}

// givesUp says that fewer pods of a job are left than it is charged
// for, or holds room for.
func (e *entry) givesUp(live []int32) bool {
	for i, set := range e.sets {
		charged := int32(len(set.slots))
		if live := e.live(); live != nil {
			charged = live[i]
		}
		if live[i] < charged || slices.ContainsFunc(set.slots, func(s *slot) bool { return s.hold != nil }) {
			return true
		}
	}
	return false
}

// reclaimable is what a Workload says of the pods that are not left.
func (e *entry) reclaimable(live []int32) []kueue.ReclaimablePod {
	var out []kueue.ReclaimablePod
	for i, set := range e.sets {
		if n := int32(len(set.slots)) - live[i]; n > 0 {
			out = append(out, kueue.ReclaimablePod{Name: kueue.NewPodSetReference(set.set.Name), Count: n})
		}
	}
	return out
}

// usageOf is what so many pods of each set take.
func (e *entry) usageOf(live []int32) quota.Usage {
	usage := quota.Usage{}
	for i := range e.sets {
		for r, flavor := range e.assignment.Flavors[i] {
			usage[quota.FlavorResource{Flavor: flavor, Resource: r}] += e.part(i, r, live)
		}
	}
	return usage
}

// part is what a set takes of what it is charged when so many pods of each set are left.
// What pods share stays until the last has gone, whose set may be another one; the
// rest is divisible by their number.
func (e *entry) part(i int, name corev1.ResourceName, live []int32) (usage int64) {
	set, all := e.sets[i], e.assignment.PodSetUsage[i][name]
	shared := min(all, quota.RequestsOf(set.set.Claimed.Shared)[name])
	if n := int64(len(set.slots)); n > 0 {
		usage = (all - shared) / n * int64(live[i])
	}
	for k, other := range e.sets {
		if live[k] > 0 && (k == i || set.sharesWith(other)) {
			return usage + shared
		}
	}
	return usage
}

// sharesWith says that pods of both sets name one claim.
func (s *setSlots) sharesWith(other *setSlots) bool {
	claims := other.set.ChargedSpec().ResourceClaims
	return slices.ContainsFunc(s.set.ChargedSpec().ResourceClaims, func(c corev1.PodResourceClaim) bool {
		return c.ResourceClaimName != nil && slices.ContainsFunc(claims, func(o corev1.PodResourceClaim) bool {
			return o.ResourceClaimName != nil && *o.ResourceClaimName == *c.ResourceClaimName
		})
	})
}

// restoreLive takes over from its Workload for how many pods a job that leaves is
// still charged.
func (l *Ledger) restoreLive(e *entry) {
	if (e.job.Finish == nil && saysEvicted(e.workload) == nil) || len(e.workload.Status.ReclaimablePods) == 0 {
		return
	}
	left := &remains{}
	for _, set := range e.sets {
		n := int32(len(set.slots))
		for _, r := range e.workload.Status.ReclaimablePods {
			if r.Name == kueue.NewPodSetReference(set.set.Name) {
				n = max(0, n-r.Count)
			}
		}
		left.live = append(left.live, n)
	}
	e.remains = left
	l.chargeLive(e)
}

// chargeLive charges the pods that are left, and no others.
func (l *Ledger) chargeLive(e *entry) {
	a := *e.assignment
	a.Usage = e.usageOf(e.live())
	e.assignment = &a
	l.quota.Charge(e.job.Owner.UID, a.ClusterQueue, a.Usage, e.holder(reservedAt(e.workload, l.clock.Now())))
}

// reclaimed ends the charge and the holds of a job that leaves for all but the pods
// that were left, after its Workload has said so.
func (l *Ledger) reclaimed(uid types.UID, live []int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e == nil || e.state != Leaving || len(live) != len(e.sets) {
		return
	}
	e.remains = &remains{live: slices.Clone(live), reclaimAt: l.clock.Now().Add(reclaimEvery)}
	for _, set := range e.sets {
		for _, s := range set.slots {
			if !s.occupied() {
				s.done = true
				l.dropHold(s)
			}
		}
	}
	l.chargeLive(e)
	l.enqueue(e)
	l.effects.Sync(keyOf(e.job.Owner))
	l.released(l.quota.Root(e.assignment.ClusterQueue))
	l.roomCame()
}

// remains is what is left of a job that leaves.
type remains struct {
	// live are the pods of each set for which it is still charged; nil is all of
	// them.
	live []int32
	// reclaimAt is when that may change next; zero before it has been asked.
	reclaimAt time.Time
}

// live are the pods of each set for which a job that leaves is still charged, as of
// remains.
func (e *entry) live() []int32 {
	if e.remains == nil {
		return nil
	}
	return e.remains.live
}

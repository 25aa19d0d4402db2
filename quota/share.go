package quota

import (
	"cmp"
	"math"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// share is how much of a cohort a member of it has borrowed: the largest, over
// all resources, of what it uses beyond its quota, as a fraction of what the
// cohort could lend it, divided by its weight. Kueue calls it the dominant
// resource share.
type share struct {
	// perMille is the fraction before the weight, in thousandths.
	perMille, weight float64
	// borrowed has the cells that are used beyond the quota.
	borrowed map[FlavorResource]bool
}

// weighted is the share that is compared and shown. It is infinite for whoever
// borrows with weight zero.
func (s share) weighted() float64 {
	switch {
	case s.perMille == 0:
		return 0
	case s.weight == 0:
		return math.Inf(1)
	default:
		return s.perMille / s.weight
	}
}

// compare orders shares, the smaller first. Of two that are infinite the
// fraction before the weight decides.
func (s share) compare(o share) int {
	return cmp.Or(cmp.Compare(s.weighted(), o.weighted()), cmp.Compare(s.infinite(), o.infinite()))
}

func (s share) infinite() float64 {
	if s.weight == 0 {
		return s.perMille
	}
	return 0
}

// on says whether any of the cells of a usage is used beyond the quota.
func (s share) on(u Usage) bool {
	for fr, v := range u {
		if v > 0 && s.borrowed[fr] {
			return true
		}
	}
	return false
}

// member is a node as its share is computed: of the tree, or of a copy.
type member struct {
	name     string
	parent   *member
	children []*member
	// queue says that it is a ClusterQueue.
	queue  bool
	weight float64
	cells  map[FlavorResource]*cell
	// lendable is what the members of a Cohort could borrow at most, worked out
	// once: it depends on quotas alone.
	lendable map[corev1.ResourceName]float64
}

// share is the member's share as its use is in a view. That of a root is zero.
func (m *member) share(v view) share {
	s := share{weight: m.weight}
	if m.parent == nil {
		return s
	}
	borrowed := map[corev1.ResourceName]amount{}
	for fr, c := range m.cells {
		if c.exceeds(v, amount{}) {
			if s.borrowed == nil {
				s.borrowed = map[FlavorResource]bool{}
			}
			s.borrowed[fr] = true
			borrowed[fr.Resource] = borrowed[fr.Resource].plus(c.used[v].minus(c.quota))
		}
	}
	for name, b := range borrowed {
		if lendable := m.parent.canLend()[name]; lendable > 0 {
			s.perMille = max(s.perMille, float64(b.value())*1000/lendable)
		}
	}
	return s
}

func (m *member) canLend() map[corev1.ResourceName]float64 {
	if m.lendable != nil {
		return m.lendable
	}
	root := m
	for root.parent != nil {
		root = root.parent
	}
	sums := map[corev1.ResourceName]amount{}
	for fr := range root.cells {
		// A node without the cell has no limits on it.
		n := m
		for n.cells[fr] == nil {
			n = n.parent
		}
		sums[fr.Resource] = sums[fr.Resource].plus(n.cells[fr].potential())
	}
	m.lendable = make(map[corev1.ResourceName]float64, len(sums))
	for name, sum := range sums {
		m.lendable[name] = float64(sum.value())
	}
	return m.lendable
}

// members are the members of a tree that stand for nodes.
type members map[*node]*member

// of returns the member that stands for a node, with those above it.
func (m members) of(n *node) *member {
	if n == nil {
		return nil
	}
	if have := m[n]; have != nil {
		return have
	}
	own := &member{name: n.name, parent: m.of(n.parent), weight: n.weight, cells: n.cells}
	m[n] = own
	return own
}

// Share is the weighted share of a ClusterQueue in its cohort as Kueue's status
// shows it: thousandths, rounded up, of what the cohort could lend it, for the
// resource of which it has borrowed most; the largest int64 if it borrows with
// weight zero. It is 0 for one that borrows nothing.
func (t *Tree) Share(cq string) int64 {
	q := t.existing(cq)
	if q == nil {
		return 0
	}
	return rounded(q.node)
}

// CohortShare is Share for a Cohort in its parent.
func (t *Tree) CohortShare(cohort string) int64 {
	n := t.cohorts[cohort]
	if n == nil {
		return 0
	}
	return rounded(n)
}

func rounded(n *node) int64 {
	w := math.Ceil(members{}.of(n).share(charged).weighted())
	if w >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(w)
}

// weightOf reads fairSharing.weight; it is 1 where none is set.
func weightOf(f *kueue.FairSharing) float64 {
	if f == nil || f.Weight == nil {
		return 1
	}
	return max(0, f.Weight.AsApproximateFloat64())
}

// SetFairSharing turns fair sharing on or off; it is off in a new Tree. With it
// a job may reclaim quota to borrow it, from those that have a larger share. The
// strategies say when: one, or LessThanOrEqualToFinalShare and then
// LessThanInitialShare, which none given means too.
func (t *Tree) SetFairSharing(on bool, strategies ...FairStrategy) {
	t.fair = nil
	if on {
		t.fair = append(t.fair, strategies...)
		if len(strategies) == 0 {
			t.fair = []FairStrategy{LessThanOrEqualToFinalShare, LessThanInitialShare}
		}
	}
}

// SharesFairly says whether SetFairSharing has turned it on.
func (t *Tree) SharesFairly() bool { return len(t.fair) > 0 }

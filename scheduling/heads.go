package scheduling

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/quota"
)

// head is where the buckets of one ClusterQueue wait for their turn. Those of
// LocalQueues without a ClusterQueue share the head of no name.
//
// A ClusterQueue has one head at a time: the first bucket that is due. The
// heads take turns as in Kueue: who borrows from fewer levels of the cohort
// tree first, then in queue order. From how many levels a head would borrow is
// known when it is looked at; until then it counts as borrowing from none, and
// one that turns out to borrow from more gives way to the others. With fair
// sharing those of one tree take turns as fairly.go says.
//
// With StrictFIFO the buckets stand in line, and only the first of them is
// tried. Those that are refused because of what they are, not because of what
// others have, step out of the line.
type head struct {
	queue  string
	strict bool
	// root is that of the tree that the ClusterQueue is in, choice says that it
	// has several flavors for a resource.
	root   string
	choice bool
	due    *pile[*bucket]
	// contender is, with fair sharing, the first job of the first due bucket, as
	// far as it was looked at.
	contender *quota.Head
	// levels is from how many levels of the tree the first due bucket borrows
	// at least; first is its rank, or both are those of the one for whose turn it
	// has to wait.
	levels int
	first  rank
	// passed are those of its buckets that were passed over.
	passed passedOver
	// line is, of a StrictFIFO queue, the buckets that stand in line, and front
	// the one that was its first when that was looked at last.
	line  *ordered[*bucket]
	front *bucket
	// placeless are the buckets that have had quota and no nodes.
	placeless *ordered[*bucket]
	// buckets is how many there are, at where it lies among the heads.
	buckets, at int
	// withheld is the job for which kept of the cohort's capacity is kept from
	// others, empty if there is none; borrows says that it borrows.
	withheld types.UID
	kept     quota.Usage
	borrows  bool
}

func newHead(queue string, strict bool) *head {
	return &head{
		queue: queue, strict: strict,
		due:       &pile[*bucket]{compare: byBucketRank, at: func(b *bucket) *int { return &b.at }},
		line:      &ordered[*bucket]{compare: byBucketRank},
		placeless: &ordered[*bucket]{compare: byBucketRank},
	}
}

func byBucketRank(a, b *bucket) int { return a.rank.compare(b.rank) }

// byTurn is the order in which heads are tried.
func byTurn(a, b *head) int {
	if a.levels != b.levels {
		return cmp.Compare(a.levels, b.levels)
	}
	if first := a.first.compare(b.first); first != 0 {
		return first
	}
	return cmp.Compare(a.queue, b.queue)
}

// headOf is the head of the ClusterQueue behind a LocalQueue.
func (l *Ledger) headOf(queue types.NamespacedName) *head {
	w := &l.waits
	if h := w.where[queue]; h != nil {
		return h
	}
	cq, _ := l.quota.ClusterQueueOf(queue)
	h := w.heads[cq]
	if h == nil {
		h = newHead(cq, l.quota.Strict(cq))
		h.root, h.choice = l.quota.Root(cq), l.quota.HasChoice(cq)
		w.heads[cq] = h
	}
	w.where[queue] = h
	return h
}

// refile has the buckets wait at the heads that their LocalQueues have now, in
// the way that those have now.
func (l *Ledger) refile() {
	w := &l.waits
	now := l.clock.Now()
	for _, h := range w.heads {
		h.root, h.choice = l.quota.Root(h.queue), l.quota.HasChoice(h.queue)
		if strict := l.quota.Strict(h.queue); strict != h.strict {
			w.restyle(h, strict, now)
		}
	}
	for queue, h := range w.where {
		if cq, _ := l.quota.ClusterQueueOf(queue); cq == h.queue {
			continue
		}
		delete(w.where, queue)
		line := w.lines[queue]
		if line == nil {
			continue
		}
		to := l.headOf(queue)
		for _, e := range line.items {
			if b := e.spot.bucket; b != nil && b.head != to {
				w.leave(b)
				w.stepOut(b, now)
				w.quit(h)
				b.head, b.cure = to, cure{wait: aside}
				to.buckets++
				w.put(b, cure{}, now)
			}
		}
	}
}

// restyle changes the strategy of a ClusterQueue.
func (w *waitlist) restyle(h *head, strict bool, now time.Time) {
	var all []*bucket
	for _, b := range w.buckets {
		if b.head == h {
			all = append(all, b)
			w.leave(b)
			w.stepOut(b, now)
			b.cure = cure{wait: aside}
		}
	}
	h.strict = strict
	for _, b := range all {
		w.put(b, cure{}, now)
	}
}

// quit forgets a head that has lost its last bucket.
func (w *waitlist) quit(h *head) {
	if h.buckets--; h.buckets == 0 {
		delete(w.heads, h.queue)
		for queue, at := range w.where {
			if at == h {
				delete(w.where, queue)
			}
		}
	}
}

// addDue and dropDue put a bucket among the due ones and take it out. Of the first
// one it is found out anew from how many levels it would borrow when there is a
// second one, which has to wait for it.
func (w *waitlist) addDue(b *bucket) {
	h := b.head
	others := len(h.due.items)
	anew := others == 0 || byBucketRank(h.due.items[0], b) > 0 || !h.holdsUp()
	if others > 0 && anew {
		w.turn.remove(h)
	}
	h.due.insert(b)
	w.dueBuckets++
	if anew {
		w.itsTurn(h)
	}
}

// holdsUp says that buckets of the ClusterQueue wait for the turn of others before
// them.
func (h *head) holdsUp() bool { return len(h.due.items) > 1 || len(h.passed.buckets) > 0 }

func (w *waitlist) dropDue(b *bucket) {
	h := b.head
	if h.due.items[0] != b {
		h.due.remove(b)
		w.dueBuckets--
		return
	}
	w.turn.remove(h)
	h.due.remove(b)
	w.dueBuckets--
	if len(h.due.items) > 0 {
		w.itsTurn(h)
	}
}

// itsTurn puts a head among the others that has another bucket first.
func (w *waitlist) itsTurn(h *head) {
	h.levels, h.first, h.contender = 0, h.due.items[0].rank, nil
	w.turn.insert(h)
}

// borrows notes from how many levels the first due bucket of a head would
// borrow. It reports whether others come first because of that, or because those
// before it that were passed over would borrow from more.
func (w *waitlist) borrows(h *head, levels int) bool {
	own := h.due.items[0].rank
	first := own
	if l, last := w.heldUp(h, own); l > levels {
		levels, first = l, last
	}
	if cmp.Or(cmp.Compare(levels, h.levels), first.compare(h.first)) > 0 {
		w.turn.remove(h)
		h.levels, h.first = levels, first
		w.turn.insert(h)
		if w.turn.items[0] != h {
			return true
		}
	}
	w.hadTurn(h, own)
	return false
}

// unsure says that the first jobs of some heads may borrow from fewer levels
// than was known.
func (w *waitlist) unsure(are func(*head) bool) {
	var again []*head
	for _, h := range w.turn.items {
		if (h.levels == 0 && h.contender == nil) || !are(h) {
			continue
		}
		h.contender = nil
		if h.levels > 0 {
			again = append(again, h)
		}
	}
	for _, h := range again {
		w.turn.remove(h)
		h.levels, h.first = 0, h.due.items[0].rank
		w.turn.insert(h)
	}
}

// standIn has a bucket stand in its line, where there is one, and reports
// whether it may be tried.
func (w *waitlist) standIn(b *bucket) bool {
	h := b.head
	if !h.strict {
		return true
	}
	if !b.stands {
		b.stands = true
		h.line.insert(b)
	}
	return h.line.items[0] == b
}

// stepOut takes a bucket out of its line: those behind it do not wait for it.
func (w *waitlist) stepOut(b *bucket, now time.Time) {
	if b.stands {
		b.head.line.remove(b)
		b.stands = false
		w.settle(b.head, now)
	}
}

// settle has the first in the line of a StrictFIFO queue tried, and the one that
// was it before wait behind.
func (w *waitlist) settle(h *head, now time.Time) {
	var front *bucket
	if len(h.line.items) > 0 {
		front = h.line.items[0]
	}
	if was := h.front; was != front {
		h.front = front
		if was != nil && was.stands {
			was.why = nil
			w.untold.addBucket(was)
			w.file(was, cure{wait: behind}, now)
		}
	}
	if h.withheld != "" && (front == nil || front.rank.uid != h.withheld) {
		w.loose[h] = struct{}{}
	}
	if front != nil && front.cure.wait == behind {
		w.file(front, cure{}, now)
	}
}

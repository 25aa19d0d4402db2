package scheduling

import "slices"

// headErrors compares the heads with what they would be, made anew, and returns
// how many buckets stand behind others.
func (l *Ledger) headErrors(wrong func(string, ...any)) (standing int) {
	w := &l.waits
	for _, h := range w.turn.items {
		if byTurn(w.turn.items[0], h) > 0 {
			wrong("the heads are not in order")
		}
		if slices.ContainsFunc(h.due.items, func(b *bucket) bool { return byBucketRank(h.due.items[0], b) > 0 }) {
			wrong("what is due in %q is not in order", h.queue)
		}
	}
	heads := map[string]int{}
	for _, b := range w.buckets {
		h := b.head
		heads[h.queue]++
		cq, _ := l.quota.ClusterQueueOf(b.key.line.queue)
		if h.queue != cq || w.heads[cq] != h || w.where[b.key.line.queue] != h || h.strict != l.quota.Strict(cq) {
			wrong("bucket %d waits at the head of %q, want %q", b.born, h.queue, cq)
		}
		if slices.Contains(h.due.items, b) != (b.cure.wait == nothing) {
			wrong("bucket %d is filed as %d, and due is %v", b.born, b.cure.wait, b.cure.wait != nothing)
		}
		if placeless := b.cure.wait == forRoom || b.cure.wait == forGPUs; slices.Contains(h.placeless.items, b) != placeless {
			wrong("bucket %d is filed as %d, and placeless is %v", b.born, b.cure.wait, !placeless)
		}
		switch {
		case b.stands != slices.Contains(h.line.items, b) || (b.stands && !h.strict):
			wrong("bucket %d does not know whether it stands in line", b.born)
		case b.stands && (b.cure.wait == behind) == (h.line.items[0] == b):
			wrong("bucket %d of %d stands in line and is filed as %d", b.born, len(h.line.items), b.cure.wait)
		case h.strict && !b.stands && b.cure.wait != forQuota && b.cure.wait != forRoom:
			wrong("bucket %d is out of line and is filed as %d", b.born, b.cure.wait)
		}
		if b.cure.wait == behind {
			standing++
		}
	}
	for queue, h := range w.heads {
		if h.buckets != heads[queue] {
			wrong("%d buckets are counted in %q, want %d", h.buckets, queue, heads[queue])
		}
		if len(h.due.items) > 0 != slices.Contains(w.turn.items, h) || (len(h.due.items) > 0 && h.first.compare(h.due.items[0].rank) > 0) {
			wrong("the head of %q has the wrong turn", queue)
		}
		if !slices.IsSortedFunc(h.line.items, byBucketRank) || !slices.IsSortedFunc(h.placeless.items, byBucketRank) {
			wrong("what waits in %q is not in order", queue)
		}
		if len(h.line.items) > 0 && h.front != h.line.items[0] {
			wrong("the line of %q has another front", queue)
		}
		if h.withheld != "" && (h.front == nil || h.front.rank.uid != h.withheld) {
			wrong("capacity is withheld in %q for %s, who is not its head", queue, h.withheld)
		}
	}
	for queue := range w.where {
		if w.lines[queue] == nil {
			wrong("%s has a head and no jobs", queue)
		}
	}
	return standing
}

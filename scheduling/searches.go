package scheduling

import (
	"cmp"
	"time"
)

// efforts is what a bucket remembers of what took long, and what its last searches
// for victims add to why it waits.
type efforts struct {
	vain   vain
	search lastSearch
	// restUntil is set when a plan took so long that pods must come first for a
	// while.
	restUntil time.Time
	progress  progresses
}

// effort is where to note that something took long.
func (b *bucket) effort() *efforts {
	if b.efforts == nil {
		b.efforts = &efforts{}
	}
	return b.efforts
}

// lastSearch is the last search for victims, the zero one if there was none.
func (b *bucket) lastSearch() lastSearch {
	if b.efforts == nil {
		return lastSearch{}
	}
	return b.efforts.search
}

// lastSearch is what a bucket remembers of the last search for victims. A
// search in vain is made again when something that matters to it may have
// changed: room, charges, who may be stopped by now. Much changes all the time,
// so the Ledger looks once a second, at one bucket of each ClusterQueue.
type lastSearch struct {
	// made: there has been one.
	made bool
	seen moves
	// again is a time at which it is to be made again, zero for none.
	again time.Time
}

// searched records a search; done says that the job has a claim by it. All that
// were in vain together keep the scheduling goroutine for a twentieth of the time
// at most.
func (l *Ledger) searched(b *bucket, seen moves, again time.Time, took time.Duration, done bool) {
	now := l.clock.Now()
	if done {
		if b.efforts != nil {
			b.efforts.search = lastSearch{}
		}
		delete(l.waits.searches, b)
		return
	}
	l.searchRest = now.Add(restShare * took)
	b.effort().search = lastSearch{made: true, seen: seen, again: again}
	l.waits.searches[b] = struct{}{}
}

// searchRests says that a search is not to be made now, because it was made
// before and others have taken their time.
func (l *Ledger) searchRests(b *bucket, now time.Time) bool {
	return b.lastSearch().made && now.Before(l.searchRest)
}

// searchLater has a search made that could not be made now.
func (l *Ledger) searchLater(b *bucket) {
	if b.efforts != nil {
		b.efforts.search.seen = moves{}
	}
	l.waits.searches[b] = struct{}{}
}

// searchAgain has one bucket of each ClusterQueue tried whose last search may
// end in another way now: the one that was least lately searched.
func (l *Ledger) searchAgain(now time.Time) {
	w := &l.waits
	first := map[string]*bucket{}
	for b := range w.searches {
		if b.cure.wait == nothing || b.cure.wait == aside || b.cure.wait == behind || now.Before(l.searchRest) {
			continue
		}
		queue := b.head.queue
		if l.claimOf(queue) != nil {
			continue
		}
		last := b.lastSearch()
		due := last.seen != w.seen || (!last.again.IsZero() && !now.Before(last.again))
		if due && b.jobs.items[0].noClaimBefore.after(now) {
			due = false
		}
		if o := first[queue]; due && (o == nil || last.before(o.lastSearch()) || (last.seen == o.lastSearch().seen && b.rank.compare(o.rank) < 0)) {
			first[queue] = b
		}
	}
	for _, b := range first {
		w.put(b, cure{queue: b.cure.queue, root: b.cure.root, blind: true}, now)
		l.effects.Admit()
	}
}

// before says that a search was made before another one.
func (s lastSearch) before(o lastSearch) bool {
	a, b := s.seen, o.seen
	return cmp.Or(cmp.Compare(a.quota, b.quota), cmp.Compare(a.room, b.room), cmp.Compare(a.queues, b.queues), cmp.Compare(a.idle, b.idle)) < 0
}

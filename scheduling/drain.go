package scheduling

// drain stops the jobs of queues that are stopped with HoldAndDrain. They wait
// in their queue then, and are admitted again when it is opened.
func (l *Ledger) drain() {
	if !l.restored || l.kueueDecides() {
		return
	}
	for _, d := range l.quota.Drain() {
		if e := l.jobs[d.ID]; e != nil && !e.ended {
			l.evict(e, eviction{reason: d.Reason, message: d.Message + " (HoldAndDrain)"})
		}
	}
}

package scheduling

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/api/inquiry"
)

// standingOf is how the job of an owner stands; false if there is none. The exact reason
// is worked out for it however many jobs are before it.
func (l *Ledger) standingOf(owner types.UID) (inquiry.Standing, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[owner]
	if e == nil {
		return inquiry.Standing{}, false
	}
	out := inquiry.Standing{State: string(e.state)}
	out.ClusterQueue, _ = l.quota.ClusterQueueOf(e.queue())
	if !e.spot.waits {
		return out, true
	}
	if !e.spot.uncounted {
		out.Position, out.Pending = l.placeIn(out.ClusterQueue, e)
	}
	// It is told as the first of its queue would be.
	if why := l.whyPending(e, l.clock.Now(), 1); why != nil {
		out.Reason, out.Message = string(why.Class), why.Message
	}
	return out, true
}

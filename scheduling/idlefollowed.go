package scheduling

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// followedUses are the jobs that run where Kueue decides.
func (l *Ledger) followedUses(now time.Time) map[types.UID]*spender {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[types.UID]*spender{}
	if !l.kueueDecides() {
		return out
	}
	for e := range l.waits.charged {
		if u := l.useOf(e, now); u.gpus > 0 && e.state == Admitted {
			out[e.job.Owner.UID] = &spender{use: u, message: l.useInWords(e, u), on: eventObjects(e.job)}
		}
	}
	return out
}

// followedLapses are the jobs that Kueue runs and that have used none of their GPUs for
// as long as their queues let them, with what is told of them.
func (l *Ledger) followedLapses(now time.Time) map[types.UID]*spender {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[types.UID]*spender{}
	if !l.kueueDecides() {
		return out
	}
	for e := range l.waits.charged {
		if e.state != Admitted || e.workload == nil || isParked(e.workload) || !startedByKueue(e.job, e.workload) {
			// Kueue stops one that is not active, when it gets to it.
			continue
		}
		if late := l.idleTooLong(e, now); late != nil {
			out[e.job.Owner.UID] = &spender{use: l.useOf(e, now), message: late.eviction.message, on: eventObjects(e.job)}
		}
	}
	return out
}

// suspendFollowed has Kueue stop them: it suspends the job of a Workload that is not
// active, and would resume a job that others suspend. It is told before, so that a crash
// in between forgets neither; what is told twice is recorded once.
func (j *Jobs) suspendFollowed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tellsBound)
	defer cancel()
	for uid, s := range j.ledger.followedLapses(j.clock.Now()) {
		err := j.noteEach(ctx, "Suspended", s)
		if err == nil {
			err = j.deactivate(ctx, uid)
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Having Kueue suspend a job that idles failed, it is tried again", "job", klog.KRef(s.on[0].Namespace, s.on[0].Name))
		}
	}
}

package scheduling

import (
	"context"
	"fmt"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// watchTimeouts looks once a second for jobs that have not started in time
// and for jobs whose back-off is over.
func (j *Jobs) watchTimeouts(ctx context.Context) {
	tick := j.clock.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
			j.ledger.expire(j.timing.StartTimeout)
			// Some reasons are worth telling only when they last.
			j.effects.Report()
		}
	}
}

// expire releases, whole, the jobs in which a pod that should be on its node
// has not been there for timeout.
func (l *Ledger) expire(timeout time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	l.renew()
	for _, e := range l.jobs {
		switch {
		case e.state == Pending && !e.requeueAt.IsZero() && !now.Before(e.requeueAt):
			e.requeueAt = time.Time{}
			e.tried = 0
			l.touch()
		case e.state != Admitted || !e.late():
			e.lateSince = time.Time{}
		case e.lateSince.IsZero():
			e.lateSince = now
		case now.Sub(e.lateSince) >= timeout:
			bound, all := e.progress()
			l.evict(e, eviction{
				reason:  kueue.WorkloadEvictedByPodsReadyTimeout,
				message: fmt.Sprintf("only %d of %d pods came onto their nodes in %s; all are released and the job is tried again", bound, all, timeout),
				backOff: true,
			})
		}
	}
}

// progress is the number of slots with a pod on its node, of all.
func (e *entry) progress() (bound, all int) {
	for _, set := range e.sets {
		for _, s := range set.slots {
			all++
			if s.bound || s.done {
				bound++
			}
		}
	}
	return bound, all
}

func (e *entry) podCount() int64 {
	var n int64
	for i := range e.job.PodSets {
		n += int64(e.job.PodSets[i].Count)
	}
	return n
}

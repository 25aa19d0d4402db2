package scheduling

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
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
			j.freeOrphans(ctx)
			j.countUnmanaged()
			// Some reasons are worth telling only when they last.
			j.effects.Report()
		}
	}
}

// orphanAge is how old a pod is that should have been told of its owner.
const orphanAge = 10 * time.Second

// freeOrphans lets pods go whose JobSet does not exist: nobody will ever say
// whose they are.
func (j *Jobs) freeOrphans(ctx context.Context) {
	for owner, pod := range j.ledger.oldStrays(orphanAge) {
		if _, alone := workload.PodJob(pod); alone {
			// The pod itself is there to be read, sooner or later.
			continue
		}
		js := &jobset.JobSet{}
		key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[jobset.JobSetNameKey]}
		err := j.client.Get(ctx, key, js)
		switch {
		case err == nil && js.UID == owner:
		case client.IgnoreNotFound(err) != nil:
			klog.FromContext(ctx).Error(err, "Looking for the JobSet of a pod", "pod", klog.KObj(pod))
		default:
			j.ledger.Unmanaged(owner)
		}
	}
}

// oldStrays are owners that are not known, each with a pod of its that is
// older than age.
func (l *Ledger) oldStrays(age time.Duration) map[types.UID]*corev1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[types.UID]*corev1.Pod{}
	for owner, pods := range l.strays {
		for _, pod := range pods {
			if l.clock.Since(pod.CreationTimestamp.Time) > age {
				out[owner] = pod
				break
			}
		}
	}
	return out
}

// expire releases, whole, the jobs in which a pod that should be on its node
// has not been there for timeout.
func (l *Ledger) expire(timeout time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	l.renew()
	for e := range l.waits.sleeping {
		l.enqueue(e)
	}
	for e := range l.waits.charged {
		switch {
		case e.state != Admitted || !e.late():
			e.lateSince = time.Time{}
			if e.state == Admitted && starts(e.workload) > 0 {
				// It has started: failures before this count no more.
				l.effects.Sync(keyOf(e.job.Owner))
			}
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

package scheduling

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// wantsNodes is a job that has quota, and waits for nodes that may not exist yet.
type wantsNodes struct {
	job *workload.Job
	wl  *kueue.Workload
	// pods are one of each pod set, as it would be in the flavors in which the job
	// has quota.
	pods []*corev1.Pod
}

// wantNodes are the jobs that nodes would start and that have no pods which could say
// so, of the first of each ClusterQueue, in queue order: those that have quota beside
// each other and beside those with pods, so that there are never more nodes than may
// be used. The lock is let go between the queues, because pods wait for it.
func (l *Ledger) wantNodes(now time.Time) []wantsNodes {
	l.mu.Lock()
	queues := l.queuesBy()
	l.mu.Unlock()
	var lacking []*entry
	for _, of := range queues {
		lacking = append(lacking, l.lackNodes(of, now)...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.SortFunc(lacking, byRank)
	var out []wantsNodes
	for _, e := range lacking {
		if !e.spot.waits || e.workload == nil || e.claim != nil {
			continue
		}
		a, no := l.assign(e)
		if no != nil {
			continue
		}
		uid := e.job.Owner.UID
		l.quota.Claim(uid, a.ClusterQueue, a.Usage)
		defer l.quota.Unclaim(uid)
		if !e.job.Gated {
			out = append(out, wantsNodes{job: e.job, wl: e.workload, pods: bases(e, a, l.quota)})
		}
	}
	return out
}

// lackNodes are those of the first jobs of one ClusterQueue that were refused for
// want of nodes.
func (l *Ledger) lackNodes(queues []types.NamespacedName, now time.Time) []*entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*entry
	for i, e := range l.waits.first(queues) {
		if missesNodes(l.whyPending(e, now, i+1)) && !l.needsNoNodes(e) {
			out = append(out, e)
		}
	}
	return out
}

// missesNodes says that nodes are what a job waits for that has this reason.
func missesNodes(why *reason.Reason) bool {
	return why != nil && (why.Class == reason.NoPlacement || why.Class == reason.ExceedsCluster)
}

// knowsAll says that the jobs which there were when this process began to lead are in
// the Ledger.
func (l *Ledger) knowsAll() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.restored && !l.unread
}

// waitsStill says that the job is in the Ledger and waits.
func (l *Ledger) waitsStill(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	return e != nil && e.spot.waits
}

// sayProvisioning records what became of the nodes that were asked for a job, to be
// said with its reason; empty for nothing. It reports whether that is news.
func (l *Ledger) sayProvisioning(uid types.UID, says string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e == nil || ptr.Deref(e.provisioning, "") == says {
		return false
	}
	e.provisioning = nil
	if says != "" {
		e.provisioning = &says
	}
	if e.spot.waits {
		l.waits.untold.add(e)
		l.effects.Report()
	}
	return true
}

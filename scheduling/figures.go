package scheduling

import (
	"cmp"
	"math"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/quota"
)

// figures are what the metrics tell of queues and of the nodes that have GPU agents. They
// are read for a scrape, and let the lock go between the queues as a report does.
func (l *Ledger) figures() metrics.State {
	all, _ := l.count()
	due := l.due()
	state := metrics.State{ClusterQueues: make([]metrics.ClusterQueue, 0, len(all.clusterQueues)), GPUNodes: l.heartbeats()}
	for name, n := range all.clusterQueues {
		q := metrics.ClusterQueue{
			Name: name, Status: n.status(), Due: min(due[name], int(n.pending)),
			Reserving: int(n.reserving), Admitted: int(n.admitted), ReservedNodes: all.reservedNodes[name],
		}
		if q.Status != metrics.QueueActive {
			// No job has a turn there.
			q.Due = 0
		}
		q.Refused = int(n.pending) - q.Due
		if n.share != nil {
			q.Share = new(shareOf(n.share.WeightedShare))
		}
		l.addQuota(&q, n)
		state.ClusterQueues = append(state.ClusterQueues, q)
	}
	slices.SortFunc(state.ClusterQueues, func(a, b metrics.ClusterQueue) int { return strings.Compare(a.Name, b.Name) })
	return state
}

// addQuota adds what the tree of quota knows of a ClusterQueue.
func (l *Ledger) addQuota(q *metrics.ClusterQueue, n *count) {
	l.mu.Lock()
	cells := l.quota.Cells(q.Name)
	q.Cohort = l.quota.Cohort(q.Name)
	l.mu.Unlock()
	for _, c := range cells {
		q.Quota = append(q.Quota, metrics.Quota{
			Flavor: c.Flavor, Resource: string(c.Resource), Nominal: c.Float(c.Nominal),
			BorrowingLimit: limitOf(c, c.Borrowing), LendingLimit: limitOf(c, c.Lending),
			Reserved: c.Float(n.reserved[c.Flavor][c.Resource]), Used: c.Float(n.used[c.Flavor][c.Resource]), Overuse: c.Float(c.Overuse),
		})
	}
	slices.SortFunc(q.Quota, func(a, b metrics.Quota) int {
		return cmp.Or(strings.Compare(a.Flavor, b.Flavor), strings.Compare(a.Resource, b.Resource))
	})
}

// limitOf is a limit of a cell, +Inf where there is none.
func limitOf(c quota.Cell, limit *int64) float64 {
	if limit == nil {
		return math.Inf(1)
	}
	return c.Float(*limit)
}

// due is how many jobs of each ClusterQueue wait for nothing but their turn: they were
// not refused, nor was the one that they stand behind, or others leave for them.
func (l *Ledger) due() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]int{}
	for _, b := range l.waits.buckets {
		if b.waitsForTurn() || (b.cure.wait == behind && b.head.front.waitsForTurn()) {
			if cq, ok := l.quota.ClusterQueueOf(b.key.line.queue); ok {
				out[cq] += len(b.jobs.items)
			}
		}
	}
	for _, e := range l.claims {
		out[e.claim.assignment.ClusterQueue]++
	}
	return out
}

// waitsForTurn says that the jobs of the bucket are neither refused nor behind others.
func (b *bucket) waitsForTurn() bool { return b.cure.wait == nothing || b.cure.wait == aside }

// status is what a ClusterQueue is, in Kueue's words.
func (n *count) status() string {
	switch {
	case n.active.Status == metav1.ConditionTrue:
		return metrics.QueueActive
	case n.active.Reason == kueue.ClusterQueueActiveReasonTerminating:
		return metrics.QueueTerminating
	}
	return metrics.QueuePending
}

// shareOf is a share as metrics tell it: an infinite one is the largest number in a
// status.
func shareOf(thousandths int64) float64 {
	if thousandths == math.MaxInt64 {
		return math.NaN()
	}
	return float64(thousandths)
}

// heartbeats are the nodes that there are of which something was said, and when it was
// heard last. What was said of a node that has gone is nobody's silence.
func (l *Ledger) heartbeats() []metrics.GPUNode {
	out := l.gpuNodes.heard()
	l.shown.mu.Lock()
	defer l.shown.mu.Unlock()
	return slices.DeleteFunc(out, func(n metrics.GPUNode) bool {
		_, exists := l.shown.nodes[n.Name]
		return !exists
	})
}

// heard are the nodes of which something was said, and when it was heard last, by our
// clock: that of a node may be wrong.
func (g *gpuNodes) heard() []metrics.GPUNode {
	g.mu.RLock()
	defer g.mu.RUnlock()
	out := make([]metrics.GPUNode, 0, len(g.nodes))
	for name, n := range g.nodes {
		if !n.said.IsZero() {
			out = append(out, metrics.GPUNode{Name: name, Heartbeat: n.heard})
		}
	}
	slices.SortFunc(out, func(a, b metrics.GPUNode) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// priorityClassOf is the name of the class that a Workload has its priority from, "" if
// it has none.
func priorityClassOf(wl *kueue.Workload) string {
	if wl == nil || wl.Spec.PriorityClassRef == nil {
		return ""
	}
	return wl.Spec.PriorityClassRef.Name
}

// clusterQueueOf is the ClusterQueue that has a job's charge, or else the one of its
// LocalQueue.
func (l *Ledger) clusterQueueOf(uid types.UID) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e == nil {
		return ""
	}
	if e.assignment != nil {
		return e.assignment.ClusterQueue
	}
	cq, _ := l.quota.ClusterQueueOf(e.queue())
	return cq
}

package scheduling

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

// count is the jobs of one queue, and what they take.
type count struct {
	pending, reserving, admitted int32
	reserved, used               taken
	active                       metav1.Condition
	known                        bool
	// share is nil without fair sharing.
	share *kueue.FairSharingStatus
}

type counts struct {
	clusterQueues map[string]*count
	localQueues   map[types.NamespacedName]*count
	// reservedNodes is how many nodes are kept for a job, by its ClusterQueue.
	reservedNodes map[string]int
	// cohorts have their shares, nil without fair sharing.
	cohorts map[string]*kueue.FairSharingStatus
	// more: further jobs are to be told their reason.
	more bool
}

// picture is the Ledger's state as it is reported: the counts of all queues,
// the first waiting jobs of each ClusterQueue, of the others some of those that
// are to be told something new, and the admitted jobs that miss nodes. The lock
// is let go between the queues, because pods wait for it.
func (l *Ledger) picture(now time.Time) ([]pendingLine, counts) {
	c, queues := l.count()
	var lines []pendingLine
	first := map[*entry]struct{}{}
	for _, of := range queues {
		lines = append(lines, l.firstLines(of, now, first)...)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	u := &l.waits.untold
	u.setFirst(first)
	others := u.next(tellAtOnce, now, first)
	slices.SortFunc(others, byRank)
	for _, e := range others {
		if why := l.whyPending(e, now, exactReasons+1); why != nil {
			lines = append(lines, l.line(e, *why))
		}
	}
	c.more = u.left(now)
	return append(lines, l.replanLines(now)...), c
}

// firstLines are what the first jobs of one ClusterQueue say; they are added
// to first.
func (l *Ledger) firstLines(queues []types.NamespacedName, now time.Time, first map[*entry]struct{}) []pendingLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []pendingLine
	for i, e := range l.waits.first(queues) {
		if why := l.whyPending(e, now, i+1); why != nil && !tooEarly(e, now) {
			said := *why
			said.Message += l.surgeHint(e)
			lines = append(lines, l.line(e, said))
		}
		first[e] = struct{}{}
	}
	return lines
}

// needsNoNodes says that more nodes are not what the job waits for: it was refused for
// want of quota, whatever it says, or there are nodes on which it was not tried yet.
func (l *Ledger) needsNoNodes(e *entry) bool {
	b := e.spot.bucket
	return b != nil && (b.unfinished(l.waits.seen.queues) || (b.why != nil && b.why.Class == reason.WaitingForQuota))
}

// farBehind is what the jobs say that are not among the first of their queue.
var farBehind = fmt.Sprintf("behind the first %d jobs of its queue", exactReasons)

func (l *Ledger) line(e *entry, why reason.Reason) pendingLine {
	line := pendingLine{job: e.job, wl: e.workload, why: why, event: "Pending", prefix: "pending: ", said: e.lastSaid(), needsNoNodes: l.needsNoNodes(e)}
	if e.job.Gated {
		for _, pod := range e.unplaced {
			if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
				line.pods = append(line.pods, pod)
			}
		}
	}
	return line
}

// replanLines are what the admitted jobs say that lost nodes and found no
// others.
func (l *Ledger) replanLines(now time.Time) []pendingLine {
	var lines []pendingLine
	for e := range l.waits.lost {
		if e.why == nil {
			continue
		}
		bound, all := e.progress(now)
		line := pendingLine{
			job: e.job, why: *e.why, event: "Replanning",
			prefix: onlySome(bound, all) + " pods have a node: ", said: e.lastSaid(),
		}
		if l.kueueDecides() {
			line.pods = e.placelessPods()
		}
		lines = append(lines, line)
	}
	return lines
}

// count is the counts of all queues, and the LocalQueues in which jobs wait by
// their ClusterQueue.
func (l *Ledger) count() (counts, map[string][]types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := counts{clusterQueues: map[string]*count{}, localQueues: map[types.NamespacedName]*count{}, reservedNodes: map[string]int{}, cohorts: map[string]*kueue.FairSharingStatus{}}
	for _, name := range l.quota.ClusterQueues() {
		n := newCount()
		n.active, n.known = l.quota.Status(name)
		n.share = l.shareOf(l.quota.Share, name)
		c.clusterQueues[name] = n
	}
	for _, name := range l.quota.Cohorts() {
		c.cohorts[name] = l.shareOf(l.quota.CohortShare, name)
	}
	for _, name := range l.quota.LocalQueues() {
		n := newCount()
		n.active, n.known = l.quota.LocalQueueStatus(name)
		c.localQueues[name] = n
	}
	for e := range l.waits.charged {
		c.clusterQueues[e.assignment.ClusterQueue].add(e)
		c.localQueues[e.queue()].add(e)
	}
	for cq, r := range l.reserved {
		c.reservedNodes[cq] = len(r.nodes)
	}
	queues := l.queuesBy()
	for cq, of := range queues {
		for _, q := range of {
			n := int32(len(l.waits.lines[q].items)) - l.waits.uncounted[q]
			c.clusterQueues[cq].wait(n)
			c.localQueues[q].wait(n)
		}
	}
	return c, queues
}

// whyBackingOff is why a job was released that is tried again later.
func (e *entry) whyBackingOff() string {
	if !e.requeueAt.time().Equal(requeueAt(e.workload)) {
		return "its admission could not be written"
	}
	if c := saysEvicted(e.workload); c != nil && strings.HasPrefix(c.Message, cannotStart) {
		return "it could not be resumed"
	}
	return "its pods were not all on nodes, or not all ready, in time"
}

// whyPending is the reason to report for a waiting job; nil while no job
// of its bucket has been tried.
func (l *Ledger) whyPending(e *entry, now time.Time, position int) *reason.Reason {
	switch {
	case e.blocked != nil:
		return e.blocked
	case l.rival != nil:
		return l.rival
	case e.claim != nil:
		return l.whyClaimed(e)
	case e.requeueAt.after(now):
		return reason.New(reason.BackingOff, "%s; it is tried again at %s", e.whyBackingOff(), e.requeueAt.time().Format(time.RFC3339))
	}
	b := e.spot.bucket
	if b != nil && b.cure.wait == behind {
		why := b.behindWhom()
		if position > exactReasons {
			why.Message = farBehind
		}
		return why
	}
	switch {
	case b == nil || b.why == nil:
		return nil
	case position > exactReasons:
		return &reason.Reason{Class: b.why.Class, Message: farBehind}
	case b.why.Class == reason.WaitingForQuota && l.lastingly(e) != nil:
		return l.lastingly(e)
	case b.why.Class == reason.WaitingForQuota && b.whyUsed != l.waits.seen.quota:
		// The numbers are arithmetic, and change with every other admission.
		_, now := l.assign(e)
		now = now.And(b.inVain().words())
		if now == nil && b.why.Message == "" {
			// It is about to be tried.
			return nil
		}
		if now != nil && now.Class == b.why.Class {
			b.why = now
		} else if now != nil {
			return now
		}
		b.whyUsed = l.waits.seen.quota
	}
	why := b.why.And(wouldDo(e.job))
	if l.heldFor != "" && why.Class == reason.NoPlacement && e.gpus() > 0 {
		why = why.And(l.heldFor)
	}
	if missesNodes(why) {
		why = why.And(ptr.Deref(e.provisioning, ""))
	}
	if r := e.reservation; r != nil {
		why = why.And("; " + r.String())
	}
	return why
}

// told records what was last said of a job.
func (l *Ledger) told(uid types.UID, s said) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.jobs[uid]; e != nil && (e.spot.waits || e.state == Admitted) {
		e.said = &s
	}
}

// retell has a job told again, because it could not be written.
func (l *Ledger) retell(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.jobs[uid]; e != nil && e.spot.waits {
		l.waits.untold.add(e)
	}
}

func newCount() *count {
	return &count{reserved: taken{}, used: taken{}}
}

// add counts a job that holds capacity; nil is a queue that is gone.
func (n *count) add(e *entry) {
	if n == nil {
		return
	}
	n.reserving++
	n.reserved.add(e)
	if e.state != Admitting {
		n.admitted++
		n.used.add(e)
	}
}

// wait counts jobs that wait.
func (n *count) wait(jobs int32) {
	if n != nil {
		n.pending += jobs
	}
}

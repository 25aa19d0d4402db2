package scheduling

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/workload"
)

const (
	// reportEvery is the shortest time between two reports.
	reportEvery = 300 * time.Millisecond
	// exactReasons is how many of the first jobs of each ClusterQueue carry
	// their reason in full; the others carry its class.
	exactReasons = 20
	// eventEvery is the shortest time between two pending events of a job
	// whose class of reason is the same.
	eventEvery = 30 * time.Second
	// templatesDue is how long a job's pod templates may take to appear before
	// their absence is worth an event.
	templatesDue = 10 * time.Second
)

// pendingLine is what is said of one waiting job.
type pendingLine struct {
	job *workload.Job
	// wl is the Workload that is to carry the reason; nil for a job that has
	// none yet, or that is admitted.
	wl  *kueue.Workload
	why reason.Reason
	// event and prefix are how it is said on the owner.
	event, prefix string
}

// said is what was last told of a waiting job in an event.
type said struct {
	why reason.Reason
	at  time.Time
}

// reporter tells the API why jobs wait and how full the queues are.
type reporter struct {
	*Jobs
	said map[types.UID]said
}

// run reports whenever the Ledger says that something changed.
func (r *reporter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.effects.reports:
		}
		if err := r.report(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Report incomplete, it is made again", "err", err.Error())
			r.effects.Report()
		}
		timer := r.clock.NewTimer(reportEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

func (r *reporter) report(ctx context.Context) error {
	lines, counts := r.ledger.picture(r.clock.Now())
	waiting := map[types.UID]bool{}
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	for _, l := range lines {
		waiting[l.job.Owner.UID] = true
		keep(r.tell(ctx, l))
	}
	maps.DeleteFunc(r.said, func(uid types.UID, _ said) bool { return !waiting[uid] })
	metrics.PendingWorkloads.Reset()
	for name, c := range counts.clusterQueues {
		metrics.PendingWorkloads.WithLabelValues(name).Set(float64(c.pending))
		keep(r.writeClusterQueue(ctx, name, c))
	}
	for name, c := range counts.localQueues {
		keep(r.writeLocalQueue(ctx, name, c))
	}
	return first
}

// tell writes the reason of one waiting job: an event on the owner, and the
// condition of its Workload.
func (r *reporter) tell(ctx context.Context, l pendingLine) error {
	now := r.clock.Now()
	if l.why.Class == reason.WaitingForPodTemplates && now.Sub(l.job.Created) < templatesDue {
		return nil
	}
	last, ok := r.said[l.job.Owner.UID]
	if !ok || last.why.Class != l.why.Class || (last.why != l.why && now.Sub(last.at) >= eventEvery) {
		r.note(l.job, l.event, l.prefix+l.why.Message)
		r.said[l.job.Owner.UID] = said{why: l.why, at: now}
	}
	if l.wl == nil {
		return nil
	}
	c := apimeta.FindStatusCondition(l.wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	if c != nil && c.Status == metav1.ConditionFalse && c.Reason == string(l.why.Class) && c.Message == clip(l.why.Message) {
		return nil
	}
	wl := l.wl.DeepCopy()
	r.condition(wl, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, string(l.why.Class), l.why.Message)
	switch err := r.client.Status().Update(ctx, wl); {
	case err == nil:
		r.ledger.observe(l.job.Owner.UID, wl)
		return nil
	case apierrors.IsNotFound(err):
		return nil
	default:
		return fmt.Errorf("writing why Workload %s is pending: %w", klog.KObj(wl), err)
	}
}

// count is the jobs of one queue, and what they take.
type count struct {
	pending, reserving, admitted int32
	reserved, used               taken
	active                       metav1.Condition
	known                        bool
}

type counts struct {
	clusterQueues map[string]*count
	localQueues   map[types.NamespacedName]*count
}

// picture is the Ledger's state as it is reported: waiting jobs in queue
// order, and the counts of all queues.
func (l *Ledger) picture(now time.Time) ([]pendingLine, counts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := counts{clusterQueues: map[string]*count{}, localQueues: map[types.NamespacedName]*count{}}
	for _, name := range l.quota.ClusterQueues() {
		n := newCount()
		n.active, n.known = l.quota.Status(name)
		c.clusterQueues[name] = n
	}
	for _, name := range l.quota.LocalQueues() {
		n := newCount()
		n.active, n.known = l.quota.LocalQueueStatus(name)
		c.localQueues[name] = n
	}
	ordered := slices.SortedFunc(maps.Values(l.jobs), (*entry).before)
	positions := map[string]int{}
	var lines []pendingLine
	for _, e := range ordered {
		lq := types.NamespacedName{Namespace: e.job.Owner.Namespace, Name: e.job.Queue}
		cq, _ := l.quota.ClusterQueueOf(lq)
		if e.assignment != nil {
			cq = e.assignment.ClusterQueue
		}
		for _, n := range []*count{c.clusterQueues[cq], c.localQueues[lq]} {
			if n != nil {
				n.add(e)
			}
		}
		if e.state == Admitted && e.why != nil {
			bound, all := e.progress()
			lines = append(lines, pendingLine{
				job: e.job, why: *e.why, event: "Replanning",
				prefix: fmt.Sprintf("only %d of %d pods have a node: ", bound, all),
			})
		}
		if e.state != Pending || e.ended {
			continue
		}
		positions[cq]++
		if why := l.whyPending(e, now, positions[cq]); why != nil {
			lines = append(lines, pendingLine{job: e.job, wl: e.workload, why: *why, event: "Pending", prefix: "pending: "})
		}
	}
	return lines, c
}

// whyPending is the reason to report for a waiting job; nil while it has not
// been tried.
func (l *Ledger) whyPending(e *entry, now time.Time, position int) *reason.Reason {
	switch {
	case e.blocked != nil:
		return e.blocked
	case l.rival != nil:
		return l.rival
	case now.Before(e.requeueAt):
		return reason.New(reason.BackingOff, "it did not start and is tried again at %s", e.requeueAt.UTC().Format(time.RFC3339))
	case e.why == nil:
		return nil
	case position > exactReasons:
		return &reason.Reason{Class: e.why.Class, Message: fmt.Sprintf("behind the first %d jobs of its queue", exactReasons)}
	case e.why.Class == reason.WaitingForQuota:
		// The numbers are arithmetic, and change with every other admission.
		if _, now := l.quota.Assign(e.request(l.namespaces[e.job.Owner.Namespace])); now != nil {
			return now
		}
	}
	return e.why
}

// renew has the first jobs that wait for nodes tried again where others were
// admitted meanwhile, so that what they say is true: room has only become
// less, but their reason has numbers.
func (l *Ledger) renew() {
	if !l.stale {
		return
	}
	l.stale = false
	waiting := 0
	for _, e := range slices.SortedFunc(maps.Values(l.jobs), (*entry).before) {
		if e.state != Pending || e.why == nil || e.why.Class != reason.NoPlacement {
			continue
		}
		if waiting++; waiting > exactReasons {
			break
		}
		e.tried = 0
		l.effects.Admit()
	}
}

func newCount() *count {
	return &count{reserved: taken{}, used: taken{}}
}

func (n *count) add(e *entry) {
	switch {
	case e.state == Pending && !e.ended:
		n.pending++
	case e.holdsCapacity():
		n.reserving++
		n.reserved.add(e)
		if e.state != Admitting {
			n.admitted++
			n.used.add(e)
		}
	}
}

package scheduling

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
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

// pendingLine is what is said of one job that waits, or of whose slots some do.
type pendingLine struct {
	job *workload.Job
	// wl is the Workload that is to carry the reason; nil for a job that has
	// none yet, or that is admitted.
	wl  *kueue.Workload
	why reason.Reason
	// event and prefix are how it is said on the owner.
	event, prefix string
	said          said
	// needsNoNodes: more nodes would not help it.
	needsNoNodes bool
	// pods are those that wait at the gate, for a job that has pods already.
	pods []*corev1.Pod
}

// said is what was last told of a job in an event.
type said struct {
	event string
	why   reason.Reason
	at    time.Time
}

// stale says that something else is to be told by now: at once with a new class, and
// of new numbers only now and then.
func (s said) stale(event string, why reason.Reason, now time.Time) bool {
	return s.event != event || s.why.Class != why.Class || (s.why != why && now.Sub(s.at) >= eventEvery)
}

// lastSaid is what was last told of the job, the zero value if nothing was.
func (e *entry) lastSaid() said {
	if e.said == nil {
		return said{}
	}
	return *e.said
}

// reporter tells the API why jobs wait and how full the queues are.
type reporter struct {
	*Jobs
	// cycles are those of Cohorts that have been told, invalid what else was told of
	// Cohorts.
	cycles, invalid map[string]string
	// topologies is what flavors have been told of theirs, lookedAt when that was
	// last looked for.
	topologies map[string]string
	lookedAt   time.Time
	// doubts is what nodes have been told of their GPUs, doubtsAt when that was last
	// looked for.
	doubts   map[string]string
	doubtsAt time.Time
	// hints is what queues have been told of their annotations.
	hints map[types.NamespacedName]string
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
	follows := r.ledger.followsKueue()
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	for name, c := range counts.clusterQueues {
		if !follows {
			keep(r.writeClusterQueue(ctx, name, c))
		}
	}
	for name, share := range counts.cohorts {
		if !follows {
			keep(r.writeCohort(ctx, name, share))
		}
	}
	for name, c := range counts.localQueues {
		if !follows {
			keep(r.writeLocalQueue(ctx, name, c))
		}
	}
	if !follows {
		keep(r.keepQueueFinalizers(ctx, counts.clusterQueues))
		keep(r.tellCohorts(ctx))
		keep(r.tellTopologies(ctx))
	}
	keep(r.tellDoubts())
	keep(r.tellQueueHints(ctx))
	for _, l := range lines {
		if follows {
			// The Workload is Kueue's.
			l.wl = nil
		}
		if err := r.tell(ctx, l); err != nil {
			r.ledger.retell(l.job.Owner.UID)
			keep(err)
		}
	}
	if counts.more {
		r.effects.Report()
	}
	return first
}

// tell writes the reason of one waiting job: an event on the owner, and the
// condition of its Workload.
func (r *reporter) tell(ctx context.Context, l pendingLine) error {
	now := r.clock.Now()
	if l.said.stale(l.event, l.why, now) {
		r.note(l.job, l.event, l.prefix+l.why.Message)
		r.ledger.told(l.job.Owner.UID, said{event: l.event, why: l.why, at: now})
	}
	if err := r.mark(ctx, l.pods, l.why, l.needsNoNodes); err != nil {
		return err
	}
	if l.wl == nil {
		return nil
	}
	defer r.writesOf.one(l.job.Owner.UID)()
	// It may have been admitted since, or written.
	have := r.ledger.waitingWorkload(l.job.Owner.UID)
	if have == nil {
		return nil
	}
	c := apimeta.FindStatusCondition(have.Status.Conditions, kueue.WorkloadQuotaReserved)
	if c != nil && c.Status == metav1.ConditionFalse && c.Reason == string(l.why.Class) && c.Message == clip(l.why.Message) {
		return nil
	}
	wl := have.DeepCopy()
	r.condition(wl, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, string(l.why.Class), l.why.Message)
	r.sayBack(wl, l.why.Class)
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

// saidBefore is what an earlier scheduler has told of a job that waits, so that
// a restart does not tell it again.
func saidBefore(wl *kueue.Workload, now time.Time) said {
	if wl == nil {
		return said{}
	}
	c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	if c == nil || c.Status != metav1.ConditionFalse {
		return said{}
	}
	return said{event: "Pending", why: reason.Reason{Class: reason.Class(c.Reason), Message: c.Message}, at: now}
}

// saysPending is what a Workload says of why it waits.
func saysPending(wl *kueue.Workload) reason.Reason {
	if wl != nil {
		if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil {
			return reason.Reason{Class: reason.Class(c.Reason), Message: string(c.Status) + c.Message}
		}
	}
	return reason.Reason{}
}

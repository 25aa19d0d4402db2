package scheduling

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// doing is what an owner needs now.
type doing int

const (
	doNothing doing = iota
	doSuspend
	doResume
	// doUngate: pods of an admitted job have gates that only Kueue takes off.
	doUngate
	// doReady: all pods of the job have been ready; its Workload says so, and
	// its failed starts count no more.
	doReady
	// doRecovery: pods of a job that has been ready have gone, or come again; its
	// Workload says so.
	doRecovery
	// doSayUse: the job does something else with its GPUs than its Workload says.
	doSayUse
	// doRequeue: the job has left its nodes; its Workload becomes pending again.
	doRequeue
	// doReclaim: the job has left, but for some pods that stay on nodes; its
	// Workload says which are no longer charged.
	doReclaim
	// doLater: nothing now, look again after a while.
	doLater
	// doFinish: the job has finished and left; its Workload says so.
	doFinish
	// doForget: the job has left its nodes, and Kueue does the rest.
	doForget
	// doDelete: the owner is gone and its pods too; so goes its Workload.
	doDelete
)

// action is one step towards what the Ledger has decided.
type action struct {
	do       doing
	message  string
	eviction *eviction
	infos    []workload.PodSetInfo
	// live and reclaim are of doReclaim: the pods of each set that are left,
	// and what the Workload says of the others.
	live    []int32
	reclaim []kueue.ReclaimablePod
	// after is how long doLater waits.
	after time.Duration
	// pods are those of doUngate.
	pods []*corev1.Pod
	// use is of doSayUse.
	use gpuState
	// first: nobody has resumed the owner since its job was admitted.
	first bool
}

// want is the step that brings the owner towards the entry's state.
func (l *Ledger) want(e *entry) action {
	if l.kueueDecides() {
		return l.wantFollowing(e)
	}
	job := e.job
	switch e.state {
	case Pending, Claimed:
		if !job.Suspended && !job.Gated {
			return action{do: doSuspend, message: "it ran without being admitted; it is suspended until it is"}
		}
	case Admitted:
		switch {
		case job.Gated && e.lackTolerations():
			return action{do: doResume, infos: injections(job, e.assignment, l.quota)}
		case job.Suspended && !job.Gated:
			return action{do: doResume, infos: injections(job, e.assignment, l.quota), first: !e.resumed}
		case len(e.waitForKueue()) > 0:
			return action{do: doUngate, pods: e.waitForKueue()}
		case e.unsaidReady():
			return action{do: doReady}
		}
		if news, gone := e.recovery(l.clock.Now()); news {
			return action{do: doRecovery, message: gone}
		}
		if u, news := l.unsaidUse(e, l.clock.Now()); news {
			return action{do: doSayUse, use: u.state, message: l.useInWords(e, u)}
		}
	case Leaving:
		switch {
		case !e.ended && (!e.stopSent || e.runs()):
			return action{do: doSuspend, message: e.eviction.inShort(), eviction: e.eviction}
		case e.occupied():
			return l.reclaim(e)
		case !e.ended:
			return action{do: doRequeue}
		case job.Finish != nil && !job.Deleting:
			return action{do: doFinish}
		default:
			return action{do: doDelete}
		}
	case Gone:
		if job.Finish != nil && !job.Deleting {
			return action{do: doFinish}
		}
		return action{do: doDelete}
	}
	return action{}
}

// runs says that a job is not stopped, or not any more. Pods that no owner stops do
// not run once they are being deleted: nothing is left to be done but to wait.
func (e *entry) runs() bool {
	if !e.job.Gated {
		return !e.job.Suspended
	}
	return slices.ContainsFunc(e.job.Pods, func(p *corev1.Pod) bool { return p.Spec.NodeName != "" && p.DeletionTimestamp == nil })
}

// waitForKueue are the pods of an admitted job that Kueue holds back by a gate. It
// has put that into the pod templates of a job that it started, so pods which are
// made anew have it too.
func (e *entry) waitForKueue() []*corev1.Pod {
	var out []*corev1.Pod
	for _, set := range e.sets {
		for _, s := range set.slots {
			if s.pod != nil && s.pod.DeletionTimestamp == nil && workload.WaitsForKueue(s.pod) {
				out = append(out, s.pod)
			}
		}
	}
	return out
}

// inShort is why a job is stopped, in an event beside the one that says why just
// this job is stopped for another.
func (w *eviction) inShort() string {
	if w.by != "" {
		return "preempted by " + w.by
	}
	return w.message
}

// lackTolerations says that pods of a gated job wait to be given tolerations.
func (e *entry) lackTolerations() bool {
	for _, set := range e.sets {
		if slices.ContainsFunc(set.slots, func(s *slot) bool { return !s.bound && !set.admits(s.pod) }) {
			return true
		}
	}
	return false
}

// stopped records that an owner was suspended by us. It reports whether that
// is worth an event: not a second time for a job that is leaving, nor for one that
// was never resumed.
func (l *Ledger) stopped(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e != nil {
		e.refused = nil
	}
	if e == nil || e.state != Leaving {
		return true
	}
	news := !e.stopSent && (e.resumed || e.job.Gated || !e.job.Suspended)
	e.stopSent = true
	l.effects.Sync(keyOf(e.job.Owner))
	return news
}

// started records that the owner of an admitted job was resumed by us. It
// reports whether someone else had suspended it meanwhile, and whether its
// Workload says that it cannot be resumed.
func (l *Ledger) started(uid types.UID) (again, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e == nil || e.state != Admitted {
		return false, false
	}
	refused, e.refused = e.refusal() != "", nil
	if e.job.Gated {
		return false, refused
	}
	again, e.resumed = e.resumed, true
	return again, refused
}

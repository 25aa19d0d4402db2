package scheduling

import (
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// admission is what an admission writes: a copy taken under the lock.
type admission struct {
	job        *workload.Job
	workload   *kueue.Workload
	assignment *quota.Assignment
	nodes      [][]string
	state      State
	replanned  int32
	message    string
	close      *closeness
}

// admissionOf returns what is to be written for a job that is admitting, or
// was admitted and has changed nodes.
func (l *Ledger) admissionOf(uid types.UID) (admission, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e == nil || (e.state != Admitting && e.state != Admitted) || e.workload == nil {
		return admission{}, false
	}
	a := admission{workload: e.workload, state: e.state, replanned: e.replanned, close: e.close}
	a.job, a.assignment = e.remaining()
	var on []string
	for _, set := range e.sets {
		var nodes []string
		for _, s := range set.slots {
			if s.surplus {
				continue
			}
			if s.node == "" && !s.done {
				// A lost slot is written when it has a node again.
				return admission{}, false
			}
			nodes = append(nodes, s.node)
			if s.node != "" && !slices.Contains(on, s.node) {
				on = append(on, s.node)
			}
		}
		a.nodes = append(a.nodes, nodes)
	}
	a.message = fmt.Sprintf("%s on %s from queue %s", amount(gpusOf(a.job), podsOf(a.job)), nodeRange(on), a.job.Queue)
	if podsOf(a.job) == 0 {
		a.message = fmt.Sprintf("no pods, as it asks for none, from queue %s", a.job.Queue)
	}
	if runsInPart(a.job) {
		a.message += fmt.Sprintf(", with %d of the %d pods that it asks for", a.job.PodSets[0].Count, a.job.PodSets[0].Whole)
	}
	if close := e.close.String(); close != "" {
		a.message += ", " + close
	}
	return a, true
}

// nodesWritten lets pods into slots whose new nodes the Workload names now.
func (l *Ledger) nodesWritten(e *entry) {
	for _, set := range e.sets {
		for _, s := range set.slots {
			s.unwritten = false
		}
	}
	l.wakeAll(e)
}

// outcome is what is known of a write to the API.
type outcome int

const (
	// wrote: the API has what was written.
	wrote outcome = iota
	// refused: the API has something else, and our write will not come.
	refused
	// unknown: the write may or may not have come through.
	unknown
)

// outcomeOf tells from an error whether a write with a resource version can
// still have an effect.
func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return wrote
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsInvalid(err),
		apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsBadRequest(err), apierrors.IsTooManyRequests(err):
		return refused
	default:
		return unknown
	}
}

// written records the outcome of writing an admission, or, for a job that is
// admitted, its slots' new nodes; latest is the newest Workload known. It
// reports whether the job is admitted now and was not before. While the outcome
// is unknown charge and holds stay, and the write is tried again.
func (l *Ledger) written(uid types.UID, replanned int32, latest *kueue.Workload, result outcome, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e == nil {
		return false
	}
	if e.newer(latest) {
		e.workload = latest
		l.enqueue(e)
	}
	switch {
	case e.state == Admitted:
		if result == wrote && replanned == e.replanned {
			l.nodesWritten(e)
			l.dropSurplus(e)
		}
		return false
	case result == unknown:
		return false
	case result == wrote:
		e.move(evWritten)
		l.inspectAgain()
		l.effects.Sync(keyOf(e.job.Owner))
		l.enqueue(e)
		if e.state != Admitted {
			return false
		}
		l.wakeAll(e)
		if e.lost() {
			l.replan(e)
		}
		l.resize(e)
		l.effects.Report()
		return true
	}
	if e.move(evRefused) && e.state == Pending {
		l.dropHolds(e)
		root := l.quota.Root(e.assignment.ClusterQueue)
		l.quota.Release(uid)
		l.unseat(e)
		e.assignment, e.tried = nil, 0
		e.stale = e.stale || runsInPart(e.job)
		if e.stale {
			l.effects.Sync(keyOf(e.job.Owner))
		}
		if !apierrors.IsConflict(err) {
			// Not at once again: the API refuses for a reason of its own.
			e.requeueAt = instantOf(l.clock.Now().Add(time.Second))
		}
		l.enqueue(e)
		l.released(root)
		l.roomCame()
	}
	return false
}

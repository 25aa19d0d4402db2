package scheduling

import (
	"context"
	"fmt"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// refusedFor is how long the API server must go on refusing to resume or to stop a
// job until that is told: a batch Job whose last pods have just gone is refused too.
const refusedFor = time.Second

// denial is what is known of the API server's refusals to resume a job that is
// admitted, or to stop one that is to stop.
type denial struct {
	since time.Time
	// said is the text that was told last; empty if none was.
	said string
}

// isRefusal says that an error is an answer: the API server, a disruption budget, or
// a webhook that it asks or cannot reach, does not take the change. Others may pass
// by themselves.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) ||
		apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) ||
		apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
}

// sayStartRefused tells that an admitted job cannot be resumed, and why, as soon as it
// has been refused for a while: in an event and in its Workload. It is tried
// again until startTimeout is over.
func (j *Jobs) sayStartRefused(ctx context.Context, job *workload.Job, refusal error) error {
	text, news := j.ledger.refusedAgain(job.Owner.UID, refusal)
	if !news {
		return nil
	}
	message := "it is admitted and cannot be resumed: " + text
	err := j.change(ctx, job.Owner.UID, func(wl *kueue.Workload) {
		j.condition(wl, kueue.WorkloadPodsReady, metav1.ConditionFalse, kueue.WorkloadWaitForStart, message)
	})
	if err != nil {
		return err
	}
	j.note(job, noteStartRefused, message+"; it is tried again")
	j.ledger.saidRefused(job.Owner.UID, text)
	return nil
}

// sayStopRefused tells that a job cannot be stopped, why is the reason for which it
// is to stop. It keeps its quota and its nodes, and is tried again without end.
func (j *Jobs) sayStopRefused(job *workload.Job, why string, refusal error) {
	if text, news := j.ledger.refusedAgain(job.Owner.UID, refusal); news {
		j.note(job, noteStopRefused, fmt.Sprintf("it is to be stopped (%s) and cannot be: %s; it is tried again", why, text))
		j.ledger.saidRefused(job.Owner.UID, text)
	}
}

// refusedAgain notes that a job was not resumed, or not stopped. It reports what is to
// be told of that, if it is news.
func (l *Ledger) refusedAgain(uid types.UID, refusal error) (say string, news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e == nil {
		return "", false
	}
	now := l.clock.Now()
	if e.refused == nil {
		e.refused = &denial{since: now}
	}
	text := shorten(refusal.Error())
	return text, now.Sub(e.refused.since) >= refusedFor && e.refused.said != text
}

func (l *Ledger) saidRefused(uid types.UID, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.jobs[uid]; e != nil && e.refused != nil {
		e.refused.said = text
		l.effects.Report()
	}
}

// refusal is why a job could not be resumed, or stopped; empty if it was, or nothing
// is known.
func (e *entry) refusal() string {
	if e.refused == nil {
		return ""
	}
	return e.refused.said
}

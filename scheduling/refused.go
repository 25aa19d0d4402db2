package scheduling

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// refusedFor is how long the API server must go on refusing to resume a job until
// that is told: a batch Job whose last pods have just gone is refused too.
const refusedFor = time.Second

// refusedStart is what is known of the API server's refusals to resume a job.
type refusedStart struct {
	since time.Time
	// said is the text that was told last; empty if none was.
	said string
}

// refusesStart says that an error is an answer: the API server, or a webhook that
// it asks or cannot reach, does not take the change. Others may pass by
// themselves.
func refusesStart(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
}

// sayRefused tells that an admitted job cannot be resumed, and why, as soon as it
// has been refused for a while: in an event and in its Workload. It is tried
// again until startTimeout is over.
func (j *Jobs) sayRefused(ctx context.Context, job *workload.Job, refusal error) error {
	text, news := j.ledger.startRefused(job.Owner.UID, shorten(refusal.Error()))
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

// startRefused notes that an admitted job was not resumed. It reports what is to
// be told of that, if it is news.
func (l *Ledger) startRefused(uid types.UID, text string) (say string, news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[uid]
	if e == nil || e.state != Admitted {
		return "", false
	}
	now := l.clock.Now()
	if e.refused == nil {
		e.refused = &refusedStart{since: now}
	}
	return text, now.Sub(e.refused.since) >= refusedFor && e.refused.said != text
}

func (l *Ledger) saidRefused(uid types.UID, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.jobs[uid]; e != nil && e.refused != nil {
		e.refused.said = text
	}
}

// refusal is why a job could not be resumed, as the end of a sentence; empty if
// it was, or nothing is known.
func (e *entry) refusal() string {
	if e.refused == nil || e.refused.said == "" {
		return ""
	}
	return "; it could not be resumed: " + e.refused.said
}

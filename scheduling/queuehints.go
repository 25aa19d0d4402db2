package scheduling

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// queueSays takes in what the annotations of a queue say of its jobs.
func (l *Ledger) queueSays(queue client.Object) {
	l.setQueueHints(client.ObjectKeyFromObject(queue), workload.QueueHintsOf(queue))
}

// tellQueueHints tells queues which of their annotations cannot be read, once.
func (r *reporter) tellQueueHints(ctx context.Context) error {
	invalid := r.ledger.invalidHints()
	for key, wrong := range invalid {
		if r.hints[key] == wrong {
			continue
		}
		var queue client.Object = &kueue.LocalQueue{}
		kind := "LocalQueue"
		if key.Namespace == "" {
			queue, kind = &kueue.ClusterQueue{}, "ClusterQueue"
		}
		if err := r.reader.Get(ctx, key, queue); isGone(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("reading %s %s: %w", kind, key, err)
		}
		r.recorder.Event(&corev1.ObjectReference{
			APIVersion: kueue.SchemeGroupVersion.String(), Kind: kind, Namespace: key.Namespace, Name: key.Name, UID: queue.GetUID(),
		}, corev1.EventTypeWarning, noteInvalidAnnotation, wrong+"; it is ignored")
	}
	r.hints = invalid
	return nil
}

// invalidHints are which annotations of queues cannot be read.
func (l *Ledger) invalidHints() map[types.NamespacedName]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[types.NamespacedName]string{}
	for key, hints := range l.queueHints {
		if hints.Invalid != "" {
			out[key] = hints.Invalid
		}
	}
	return out
}

// saysOtherwise says that the annotations of a queue are new or other ones.
func saysOtherwise[T any, P interface {
	*T
	client.Object
}](old, queue P) bool {
	return old == nil || workload.HintAnnotations(old) != workload.HintAnnotations(queue)
}

// setQueueHints records what a LocalQueue says of its jobs, or a ClusterQueue, which
// has no namespace.
func (l *Ledger) setQueueHints(queue types.NamespacedName, hints workload.QueueHints) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queueHints[queue].Equal(hints) {
		return
	}
	if hints.Equal(workload.QueueHints{}) {
		delete(l.queueHints, queue)
	} else {
		l.queueHints[queue] = hints
	}
	l.touch()
}

// queuesOf are what the queues of an admitted job say, the LocalQueue's first.
func (l *Ledger) queuesOf(e *entry) [2]workload.QueueHints {
	return [2]workload.QueueHints{l.queueHints[e.queue()], l.queueHints[types.NamespacedName{Name: e.assignment.ClusterQueue}]}
}

// protectedUntil is when a job may be preempted that was admitted at since.
func (l *Ledger) protectedUntil(e *entry, since time.Time) time.Time {
	least := e.job.Hints.MinRuntime
	for _, queue := range l.queuesOf(e) {
		if least == nil {
			least = queue.MinRuntime
		}
	}
	if least == nil {
		return time.Time{}
	}
	return since.Add(*least)
}

// idlePolicy is what becomes of an admitted job that does nothing with its GPUs.
func (l *Ledger) idlePolicy(e *entry) workload.IdlePolicy {
	for _, queue := range l.queuesOf(e) {
		if queue.Idle != nil {
			return *queue.Idle
		}
	}
	return workload.IdlePolicy{}
}

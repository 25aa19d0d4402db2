package scheduling

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// settle finds out how a pod that left its node had ended. The scheduler's
// informer shows a pod that succeeded as deleted, so the API is asked.
func (j *Jobs) settle(ctx context.Context, s settle) error {
	j.effects.mu.Lock()
	last := j.effects.gone[s.uid]
	j.effects.mu.Unlock()
	if last == nil {
		return nil
	}
	pod := &corev1.Pod{}
	err := j.client.Get(ctx, s.pod, pod)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading pod %s: %w", s.pod, err)
	}
	succeeded := err == nil && pod.UID == s.uid && pod.Status.Phase == corev1.PodSucceeded
	j.ledger.Settled(s.owner, last, succeeded)
	j.effects.mu.Lock()
	delete(j.effects.gone, s.uid)
	j.effects.mu.Unlock()
	return nil
}

package scheduling

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/metrics"
)

// kueueLease is the Lease that Kueue's manager renews while it leads, in the
// namespace and under the name of its shipped configuration.
var kueueLease = client.ObjectKey{Namespace: "kueue-system", Name: "c1f6bfd2.kueue.x-k8s.io"}

// rivalEvery is how often the Lease is looked at.
const rivalEvery = 2 * time.Second

// watchRival stops admissions while a Kueue manager is alive: two programs
// that charge the same quota would each overrule the other.
func (j *Jobs) watchRival(ctx context.Context) {
	logger := klog.FromContext(ctx)
	for {
		if err := j.lookForRival(ctx); err != nil {
			logger.Error(err, "Looking for a live Kueue manager")
		}
		select {
		case <-ctx.Done():
			return
		case <-j.clock.After(rivalEvery):
		}
	}
}

// lookForRival has the Ledger know whether a Kueue manager is alive. Where Kueue
// decides by the configuration, that is no obstacle.
func (j *Jobs) lookForRival(ctx context.Context) error {
	why, err := j.rival(ctx)
	if err != nil {
		return err
	}
	if j.ledger.SetRival(why) {
		j.tellRival(ctx, why)
		j.ledger.syncAll()
	}
	return nil
}

// tellRival tells those who run the cluster that Muster has stopped to admit jobs,
// or begins again: every job that waits says so too, but each to its own user.
func (j *Jobs) tellRival(ctx context.Context, why *reason.Reason) {
	logger := klog.FromContext(ctx)
	if why == nil {
		metrics.SetAnotherScheduler(false)
		logger.Info("No Kueue manager is alive any more, jobs are admitted")
		return
	}
	metrics.SetAnotherScheduler(true)
	logger.Error(nil, "Nothing is admitted, because quota.provider is native and somebody else decides quota", "why", why.Message)
	lease := &corev1.ObjectReference{
		APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease", Namespace: kueueLease.Namespace, Name: kueueLease.Name,
	}
	j.recorder.Event(lease, corev1.EventTypeWarning, string(reason.AnotherScheduler), "Muster admits nothing: "+why.Message)
}

// rival is why nothing may be admitted now, nil where no Kueue manager lives.
func (j *Jobs) rival(ctx context.Context) (*reason.Reason, error) {
	lease := &coordinationv1.Lease{}
	if err := j.client.Get(ctx, kueueLease, lease); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	s := lease.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return nil, nil
	}
	if j.clock.Since(s.RenewTime.Time) > time.Duration(*s.LeaseDurationSeconds)*time.Second {
		return nil, nil
	}
	return reason.New(reason.AnotherScheduler, "a Kueue manager (%s) decides quota in this cluster; stop it, or Muster", *s.HolderIdentity), nil
}

package scheduling

import (
	"fmt"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/features"
)

// watchClaims has jobs with claims tried again when volumes, claims, devices or
// their classes change. Plugins learn of a change from listeners of their own,
// which may be later than this one: so it only leaves word for the next ticks.
func (j *Jobs) watchClaims(f informers.SharedInformerFactory) error {
	watched := []toolscache.SharedIndexInformer{
		f.Core().V1().PersistentVolumeClaims().Informer(),
		f.Core().V1().PersistentVolumes().Informer(),
		f.Storage().V1().StorageClasses().Informer(),
		f.Storage().V1().CSINodes().Informer(),
		f.Storage().V1().CSIStorageCapacities().Informer(),
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.DynamicResourceAllocation) {
		watched = append(watched,
			f.Resource().V1().ResourceClaims().Informer(),
			f.Resource().V1().ResourceClaimTemplates().Informer(),
			f.Resource().V1().ResourceSlices().Informer(),
			f.Resource().V1().DeviceClasses().Informer())
	}
	changed := func() { j.claimNews.Store(claimTicks) }
	for _, informer := range watched {
		_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { changed() },
			UpdateFunc: func(any, any) { changed() },
			DeleteFunc: func(any) { changed() },
		})
		if err != nil {
			return fmt.Errorf("watching volumes and devices: %w", err)
		}
	}
	return nil
}

// claimTicks is for how many ticks jobs with claims are tried after a change:
// at the first, a plugin may not have heard of it.
const claimTicks = 2

// retryClaims tries the jobs with claims again if something was changed.
func (j *Jobs) retryClaims() {
	if n := j.claimNews.Load(); n > 0 && j.claimNews.CompareAndSwap(n, n-1) {
		j.ledger.claimsChanged()
	}
}

// claimsChanged has the jobs tried again whose pods claim volumes or devices.
func (l *Ledger) claimsChanged() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch++
	l.waits.seen.room++
	l.cured(func(b *bucket) bool { return b.needsClaims }, forRoom)
	if len(l.waits.lost) > 0 {
		l.effects.Admit()
	}
}

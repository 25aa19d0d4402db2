package scheduling

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/features"

	"github.com/muster-gpu/muster/rendering"
	"github.com/muster-gpu/muster/workload"
)

// watchClaims has jobs with claims tried again when volumes, claims, devices or
// their classes change. Plugins learn of a change from listeners of their own,
// which may be later than this one: so it only leaves word for the next ticks.
// Jobs that name a claim, or a template of one, are read again when it comes: what
// they are charged for is in it.
func (j *Jobs) watchClaims(f informers.SharedInformerFactory, classes map[string]corev1.ResourceName) error {
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
		templates, claims := f.Resource().V1().ResourceClaimTemplates().Lister(), f.Resource().V1().ResourceClaims().Lister()
		j.renderer.CountClaims(rendering.Claims{
			Template: func(namespace, name string) (*resourceapi.ResourceClaimTemplate, error) {
				return templates.ResourceClaimTemplates(namespace).Get(name)
			},
			Claim: func(namespace, name string) (*resourceapi.ResourceClaim, error) {
				return claims.ResourceClaims(namespace).Get(name)
			},
			Classes: classes,
		})
		if err := j.readOnceTheyCome(f.Resource().V1().ResourceClaimTemplates().Informer(), f.Resource().V1().ResourceClaims().Informer()); err != nil {
			return err
		}
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

// readOnceTheyCome has the waiting jobs of a namespace read again when an object comes
// there that no controller has made.
func (j *Jobs) readOnceTheyCome(informers ...toolscache.SharedIndexInformer) error {
	for _, informer := range informers {
		_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
			if object, ok := o.(metav1.Object); ok && metav1.GetControllerOfNoCopy(object) == nil {
				j.ledger.syncWaiting(object.GetNamespace())
			}
		}})
		if err != nil {
			return fmt.Errorf("watching claims: %w", err)
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

// claimsChanged has the jobs tried again whose pods claim volumes or devices, or ask
// for resources behind which there may be devices by now.
func (l *Ledger) claimsChanged() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch++
	l.waits.seen.room++
	devices := l.waits.extended.Clone()
	for name := range devices {
		if !l.isDevice(name) {
			devices.Delete(name)
		}
	}
	mayBeDevices := func(b *bucket) bool {
		return len(devices) > 0 && slices.ContainsFunc(extendedOf(b.jobs.items[0].job), devices.Has)
	}
	l.cured(func(b *bucket) bool { return b.needsClaims || mayBeDevices(b) }, forRoom)
	if len(devices) > 0 {
		l.cured(mayBeDevices, forGPUs)
	}
	if len(l.waits.lost) > 0 {
		l.effects.Admit()
	}
}

// takesDevices says that pods of the job claim devices, or ask for resources behind
// which there are some.
func (l *Ledger) takesDevices(job *workload.Job) bool {
	claims := func(ps workload.PodSet) bool { return len(ps.PlacedTemplate().Spec.ResourceClaims) > 0 }
	return slices.ContainsFunc(job.PodSets, claims) || slices.ContainsFunc(extendedOf(job), l.isDevice)
}

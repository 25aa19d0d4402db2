package placement

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	informerscore "k8s.io/client-go/informers/core"
	informerscorev1 "k8s.io/client-go/informers/core/v1"
	listerscorev1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
)

// overlay is the API server's objects of one kind, as its informer has them,
// with those of a trial laid over them.
type overlay struct {
	cache.Indexer
	// mu: the handlers of informers read while a trial writes.
	mu   sync.RWMutex
	over map[string]any
}

func newOverlay(indexer cache.Indexer) *overlay {
	return &overlay{Indexer: indexer, over: map[string]any{}}
}

// GetByKey returns the object of the trial before that of the API server.
// Lists are left alone: a volume or claim of a trial matters only to the pods
// that name it.
func (o *overlay) GetByKey(key string) (any, bool, error) {
	o.mu.RLock()
	found, ok := o.over[key]
	o.mu.RUnlock()
	if ok {
		return found, true, nil
	}
	return o.Indexer.GetByKey(key)
}

// lay puts an object over others of its key and returns how to take it away.
func (o *overlay) lay(key string, object any) (undo func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, had := o.over[key]
	o.over[key] = object
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if had {
			o.over[key] = before
		} else {
			delete(o.over, key)
		}
	}
}

// planningHandle is what plugins that plan claims are built with: the
// scheduler's own handle with the objects of trials laid over the informers'.
type planningHandle struct {
	fwk.Handle
	factory informers.SharedInformerFactory
	devices fwk.SharedDRAManager
}

func (h planningHandle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }
func (h planningHandle) SharedDRAManager() fwk.SharedDRAManager                 { return h.devices }

// ProfileName is no profile's: plugins name their indices after it.
func (h planningHandle) ProfileName() string { return "planning" }

// volumes is an informer factory whose volumes and volume claims have overlays.
type volumes struct {
	informers.SharedInformerFactory
	claims, volumes *overlay
}

func newVolumes(f informers.SharedInformerFactory) *volumes {
	return &volumes{
		SharedInformerFactory: f,
		claims:                newOverlay(f.Core().V1().PersistentVolumeClaims().Informer().GetIndexer()),
		volumes:               newOverlay(f.Core().V1().PersistentVolumes().Informer().GetIndexer()),
	}
}

// claim returns the volume claim, false if there is none.
func (v *volumes) claim(namespace, name string) (*v1.PersistentVolumeClaim, bool) {
	found, ok, err := v.claims.GetByKey(namespace + "/" + name)
	if err != nil || !ok {
		return nil, false
	}
	pvc, ok := found.(*v1.PersistentVolumeClaim)
	return pvc, ok
}

func (v *volumes) Core() informerscore.Interface {
	return coreGroup{v.SharedInformerFactory.Core(), v}
}

type coreGroup struct {
	informerscore.Interface
	v *volumes
}

func (g coreGroup) V1() informerscorev1.Interface { return coreV1{g.Interface.V1(), g.v} }

type coreV1 struct {
	informerscorev1.Interface
	v *volumes
}

func (c coreV1) PersistentVolumeClaims() informerscorev1.TypedPersistentVolumeClaimInformer {
	return claimInformer{overlaid{c.Interface.PersistentVolumeClaims().Informer(), c.v.claims}}
}

func (c coreV1) PersistentVolumes() informerscorev1.TypedPersistentVolumeInformer {
	return volumeInformer{overlaid{c.Interface.PersistentVolumes().Informer(), c.v.volumes}}
}

// overlaid is an informer that shows an overlay.
type overlaid struct {
	cache.SharedIndexInformer
	overlay *overlay
}

func (o overlaid) GetIndexer() cache.Indexer { return o.overlay }

type claimInformer struct{ overlaid }

func (i claimInformer) Informer() cache.SharedIndexInformer { return i.overlaid }

func (i claimInformer) TypedInformer() informerscorev1.PersistentVolumeClaimIndexInformer {
	return cache.NewTypedSharedIndexInformer[*v1.PersistentVolumeClaim](i.overlaid)
}

func (i claimInformer) Lister() listerscorev1.PersistentVolumeClaimLister {
	return listerscorev1.NewPersistentVolumeClaimLister(i.overlay)
}

type volumeInformer struct{ overlaid }

func (i volumeInformer) Informer() cache.SharedIndexInformer { return i.overlaid }

func (i volumeInformer) TypedInformer() informerscorev1.PersistentVolumeIndexInformer {
	return cache.NewTypedSharedIndexInformer[*v1.PersistentVolume](i.overlaid)
}

func (i volumeInformer) Lister() listerscorev1.PersistentVolumeLister {
	return listerscorev1.NewPersistentVolumeLister(i.overlay)
}

package scheduling

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
)

// watchCluster feeds the Ledger with pods and namespaces from the scheduler's
// own informers; nodes come by way of the cache.
func watchCluster(l *Ledger, f informers.SharedInformerFactory) error {
	_, err := f.Core().V1().Pods().Informer().AddEventHandler(handler(func(old, pod *corev1.Pod) {
		l.Seen(pod)
	}, l.Deleted))
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	_, err = f.Core().V1().Namespaces().Informer().AddEventHandler(handler(func(old, ns *corev1.Namespace) {
		if old == nil || !equality.Semantic.DeepEqual(old.Labels, ns.Labels) {
			l.SetNamespace(ns.Name, ns.Labels)
		}
	}, func(*corev1.Namespace) {}))
	if err != nil {
		return fmt.Errorf("watching namespaces: %w", err)
	}
	return nil
}

// watched are the kinds without which no job can be admitted. A kind of job
// that is not installed is not among them.
func (j *Jobs) watched() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		kueue.SchemeGroupVersion.WithKind("ResourceFlavor"),
		kueue.SchemeGroupVersion.WithKind("ClusterQueue"),
		kueue.SchemeGroupVersion.WithKind("LocalQueue"),
		kueue.SchemeGroupVersion.WithKind("WorkloadPriorityClass"),
		kueue.SchemeGroupVersion.WithKind("Workload"),
		jobset.SchemeGroupVersion.WithKind("JobSet"),
	}
}

// watchJobs feeds the Ledger with queues, flavors, owners and Workloads.
func (j *Jobs) watchJobs(ctx context.Context, c cache.Cache) error {
	l := j.ledger
	for _, w := range []struct {
		obj client.Object
		h   toolscache.ResourceEventHandler
	}{
		{&kueue.ResourceFlavor{}, handler(func(_, o *kueue.ResourceFlavor) {
			l.UpdateQuota(func(t *quota.Tree) { t.SetFlavor(o) })
		}, func(o *kueue.ResourceFlavor) { l.UpdateQuota(func(t *quota.Tree) { t.DeleteFlavor(o.Name) }) })},
		{&kueue.ClusterQueue{}, handler(func(old, o *kueue.ClusterQueue) {
			if old == nil || old.Generation != o.Generation || old.DeletionTimestamp != o.DeletionTimestamp {
				l.UpdateQuota(func(t *quota.Tree) { t.SetClusterQueue(o) })
			}
		}, func(o *kueue.ClusterQueue) { l.UpdateQuota(func(t *quota.Tree) { t.DeleteClusterQueue(o.Name) }) })},
		{&kueue.LocalQueue{}, handler(func(old, o *kueue.LocalQueue) {
			if old == nil || old.Generation != o.Generation {
				l.UpdateQuota(func(t *quota.Tree) { t.SetLocalQueue(o) })
			}
		}, func(o *kueue.LocalQueue) {
			l.UpdateQuota(func(t *quota.Tree) { t.DeleteLocalQueue(client.ObjectKeyFromObject(o)) })
		})},
		{&kueue.WorkloadPriorityClass{}, handler(func(_, _ *kueue.WorkloadPriorityClass) { l.resyncBlocked() }, func(*kueue.WorkloadPriorityClass) {})},
		{&schedulingv1.PriorityClass{}, handler(func(_, _ *schedulingv1.PriorityClass) { l.resyncBlocked() }, func(*schedulingv1.PriorityClass) {})},
		{&kueue.Workload{}, handler(func(_, o *kueue.Workload) { j.workloadSeen(o) }, j.workloadGone)},
		{&jobset.JobSet{}, handler(func(_, o *jobset.JobSet) { j.jobSetSeen(ctx, o) }, func(o *jobset.JobSet) {
			l.ForgetPodOwner(o.UID)
			j.sync(o)
		})},
	} {
		if err := watch(ctx, c, w.obj, w.h); err != nil {
			return err
		}
	}
	for _, kind := range []string{"ClusterTrainingRuntime", "TrainingRuntime"} {
		runtime := &metav1.PartialObjectMetadata{}
		runtime.SetGroupVersionKind(schema.GroupVersionKind{Group: "trainer.kubeflow.org", Version: "v1alpha1", Kind: kind})
		changed := func(*metav1.PartialObjectMetadata) { l.resyncBlocked() }
		err := watch(ctx, c, runtime, handler(func(_, o *metav1.PartialObjectMetadata) { changed(o) }, changed))
		if err != nil && !apimeta.IsNoMatchError(err) {
			return err
		}
	}
	for _, k := range j.kinds {
		if k.GroupVersionKind().GroupKind() == jobset.SchemeGroupVersion.WithKind("JobSet").GroupKind() {
			continue
		}
		gk := k.GroupVersionKind().GroupKind()
		enqueue := func(o client.Object) {
			l.effects.Sync(JobKey{Group: gk.Group, Kind: gk.Kind, NamespacedName: client.ObjectKeyFromObject(o)})
		}
		err := watch(ctx, c, k.New(), handler(func(_, o client.Object) { enqueue(o) }, enqueue))
		if apimeta.IsNoMatchError(err) {
			klog.FromContext(ctx).Info("A kind of job is not installed and is not managed until a restart", "kind", gk)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func watch(ctx context.Context, c cache.Cache, obj client.Object, h toolscache.ResourceEventHandler) error {
	informer, err := c.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching %T: %w", obj, err)
	}
	if _, err := informer.AddEventHandler(h); err != nil {
		return fmt.Errorf("watching %T: %w", obj, err)
	}
	return nil
}

// workloadSeen takes in a Workload and has its job looked at where someone
// else changed it.
func (j *Jobs) workloadSeen(wl *kueue.Workload) {
	owner := metav1.GetControllerOf(wl)
	if owner == nil {
		return
	}
	j.ledger.observe(owner.UID, wl)
	j.syncOwner(wl.Namespace, owner)
}

func (j *Jobs) workloadGone(wl *kueue.Workload) {
	owner := metav1.GetControllerOf(wl)
	if owner == nil {
		return
	}
	j.ledger.workloadDeleted(owner.UID, wl.UID)
	j.syncOwner(wl.Namespace, owner)
}

// jobSetSeen has the owner of a JobSet's pods looked at: the TrainJob that
// controls it, or the JobSet itself.
func (j *Jobs) jobSetSeen(ctx context.Context, js *jobset.JobSet) {
	j.sync(js)
	if managed, err := j.managesPodsOf(ctx, js); err != nil {
		klog.FromContext(ctx).Error(err, "Reading who owns a JobSet", "jobSet", klog.KObj(js))
	} else if !managed {
		j.ledger.Unmanaged(js.UID)
	}
}

// managesPodsOf says whether a JobSet's pods belong to a job of Muster's.
func (j *Jobs) managesPodsOf(ctx context.Context, js *jobset.JobSet) (bool, error) {
	obj, gk := client.Object(js), jobset.SchemeGroupVersion.WithKind("JobSet").GroupKind()
	if owner := metav1.GetControllerOf(js); owner != nil {
		if ownerKind := groupKindOf(owner); j.kinds[ownerKind] != nil {
			parent := j.kinds[ownerKind].New()
			if err := j.reader.Get(ctx, types.NamespacedName{Namespace: js.Namespace, Name: owner.Name}, parent); err != nil {
				// The parent is not read yet, or gone: it decides when it comes.
				return true, client.IgnoreNotFound(err)
			}
			obj, gk = parent, ownerKind
		}
	}
	_, managed, _, err := j.kinds[gk].Read(ctx, j.reader, obj)
	return managed, err
}

func (j *Jobs) sync(js *jobset.JobSet) {
	if owner := metav1.GetControllerOf(js); owner != nil && j.kinds[groupKindOf(owner)] != nil {
		j.syncOwner(js.Namespace, owner)
		return
	}
	j.effects.Sync(JobKey{Group: jobset.SchemeGroupVersion.Group, Kind: "JobSet", NamespacedName: client.ObjectKeyFromObject(js)})
}

func (j *Jobs) syncOwner(namespace string, owner *metav1.OwnerReference) {
	gk := groupKindOf(owner)
	j.effects.Sync(JobKey{Group: gk.Group, Kind: gk.Kind, NamespacedName: types.NamespacedName{Namespace: namespace, Name: owner.Name}})
}

func groupKindOf(owner *metav1.OwnerReference) schema.GroupKind {
	return schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
}

// handler adapts typed functions to an informer. set is called with a nil old
// object for an addition.
func handler[T any](set func(old, obj T), del func(T)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if obj, ok := o.(T); ok {
				var none T
				set(none, obj)
			}
		},
		UpdateFunc: func(a, b any) {
			old, ok1 := a.(T)
			if obj, ok2 := b.(T); ok1 && ok2 {
				set(old, obj)
			}
		},
		DeleteFunc: func(o any) {
			if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if obj, ok := o.(T); ok {
				del(obj)
			}
		},
	}
}

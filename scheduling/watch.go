package scheduling

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// watchCluster feeds the Ledger with pods and namespaces from the scheduler's
// own informers; nodes come by way of the cache.
func watchCluster(l *Ledger, f informers.SharedInformerFactory) error {
	_, err := f.Core().V1().Pods().Informer().AddEventHandler(handler(func(old, pod *corev1.Pod) {
		if old != nil && pod.Spec.NodeName == "" {
			l.relabelled(old, pod)
		}
		l.Seen(pod)
	}, l.Deleted))
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	_, err = f.Core().V1().Namespaces().Informer().AddEventHandler(l.heardNamespaces.handler(handler(func(old, ns *corev1.Namespace) {
		if old == nil || !equality.Semantic.DeepEqual(old.Labels, ns.Labels) {
			l.SetNamespace(ns.Name, ns.Labels)
		}
	}, func(*corev1.Namespace) {})))
	if err != nil {
		return fmt.Errorf("watching namespaces: %w", err)
	}
	return nil
}

// source is one kind of object that the Ledger learns from.
type source struct {
	gvk     schema.GroupVersionKind
	obj     client.Object
	handler toolscache.ResourceEventHandler
	need    need
}

// need says what must be read of a source before anything is admitted.
type need int

const (
	notNeeded need = iota
	// neededIfServed: all that exists, unless the kind is not served; then there
	// is none of it.
	neededIfServed
	// needed: all that exists, and the kind is waited for.
	needed
)

// sources are the queues, flavors, priorities, Workloads and owners.
func (j *Jobs) sources(ctx context.Context) []source {
	l := j.ledger
	of := kueue.SchemeGroupVersion.WithKind
	out := []source{
		{of("ResourceFlavor"), &kueue.ResourceFlavor{}, handler(func(_, o *kueue.ResourceFlavor) {
			l.setTopology(o.Name, o.Spec.TopologyName != nil)
			l.UpdateQuota(func(t *quota.Tree) { t.SetFlavor(o) })
		}, func(o *kueue.ResourceFlavor) { l.UpdateQuota(func(t *quota.Tree) { t.DeleteFlavor(o.Name) }) }), needed},
		{of("ClusterQueue"), &kueue.ClusterQueue{}, handler(func(old, o *kueue.ClusterQueue) {
			metrics.ClusterQueueKnown(o.Name)
			if old == nil || old.Generation != o.Generation || !old.DeletionTimestamp.Equal(o.DeletionTimestamp) {
				l.UpdateQuota(func(t *quota.Tree) { t.SetClusterQueue(o) })
			}
			if saysOtherwise(old, o) {
				l.queueSays(o)
			}
		}, func(o *kueue.ClusterQueue) {
			l.setQueueHints(client.ObjectKeyFromObject(o), workload.QueueHints{})
			l.UpdateQuota(func(t *quota.Tree) { t.DeleteClusterQueue(o.Name) })
		}), needed},
		{of("Cohort"), &kueue.Cohort{}, handler(func(old, o *kueue.Cohort) {
			if old == nil || old.Generation != o.Generation {
				l.UpdateQuota(func(t *quota.Tree) { t.SetCohort(o) })
			}
		}, func(o *kueue.Cohort) { l.UpdateQuota(func(t *quota.Tree) { t.DeleteCohort(o.Name) }) }), neededIfServed},
		{of("Topology"), &kueue.Topology{}, handler(func(_, o *kueue.Topology) {
			l.UpdateQuota(func(t *quota.Tree) { t.SetTopology(o) })
		}, func(o *kueue.Topology) { l.UpdateQuota(func(t *quota.Tree) { t.DeleteTopology(o.Name) }) }), neededIfServed},
		{of("LocalQueue"), &kueue.LocalQueue{}, handler(func(old, o *kueue.LocalQueue) {
			if old == nil || old.Generation != o.Generation {
				l.UpdateQuota(func(t *quota.Tree) { t.SetLocalQueue(o) })
			}
			if saysOtherwise(old, o) {
				l.queueSays(o)
			}
		}, func(o *kueue.LocalQueue) {
			l.setQueueHints(client.ObjectKeyFromObject(o), workload.QueueHints{})
			l.UpdateQuota(func(t *quota.Tree) { t.DeleteLocalQueue(client.ObjectKeyFromObject(o)) })
		}), needed},
		{of("WorkloadPriorityClass"), &kueue.WorkloadPriorityClass{},
			handler(func(_, _ *kueue.WorkloadPriorityClass) { l.syncBlocked() }, func(*kueue.WorkloadPriorityClass) {}), needed},
		{of("Workload"), &kueue.Workload{}, handler(func(_, o *kueue.Workload) { j.workloadSeen(o) }, j.workloadGone), needed},
		{schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), &schedulingv1.PriorityClass{},
			handler(func(_, _ *schedulingv1.PriorityClass) {
				j.renderAgain("")
				l.syncBlocked()
			}, func(*schedulingv1.PriorityClass) { j.renderAgain("") }), needed},
		{nodev1.SchemeGroupVersion.WithKind("RuntimeClass"), &nodev1.RuntimeClass{},
			handler(func(_, _ *nodev1.RuntimeClass) { j.renderAgain("") }, func(*nodev1.RuntimeClass) { j.renderAgain("") }), needed},
		{corev1.SchemeGroupVersion.WithKind("LimitRange"), &corev1.LimitRange{},
			handler(func(_, o *corev1.LimitRange) { j.renderAgain(o.Namespace) }, func(o *corev1.LimitRange) { j.renderAgain(o.Namespace) }), needed},
		{jobset.SchemeGroupVersion.WithKind("JobSet"), &jobset.JobSet{}, handler(func(_, o *jobset.JobSet) { j.sync(o) }, func(o *jobset.JobSet) {
			l.ForgetPodOwner(o.UID)
			j.sync(o)
		}), neededIfServed},
		{batchv1.SchemeGroupVersion.WithKind("Job"), &batchv1.Job{}, handler(func(_, o *batchv1.Job) { j.syncJob(o) }, func(o *batchv1.Job) {
			l.ForgetPodOwner(o.UID)
			j.syncJob(o)
		}), needed},
	}
	for _, kind := range []string{"ClusterTrainingRuntime", "TrainingRuntime"} {
		gvk := schema.GroupVersionKind{Group: "trainer.kubeflow.org", Version: "v1alpha1", Kind: kind}
		runtime := &metav1.PartialObjectMetadata{}
		runtime.SetGroupVersionKind(gvk)
		changed := func(*metav1.PartialObjectMetadata) { l.syncBlocked() }
		out = append(out, source{gvk, runtime, handler(func(_, o *metav1.PartialObjectMetadata) { changed(o) }, changed), notNeeded})
	}
	out = append(out, j.groupSources()...)
	replicas := &metav1.PartialObjectMetadata{}
	replicas.SetGroupVersionKind(workload.ReplicaGVK)
	replicasChanged := func(o *metav1.PartialObjectMetadata) { l.replicasChanged(client.ObjectKeyFromObject(o)) }
	out = append(out, source{workload.ReplicaGVK, replicas, handler(func(_, o *metav1.PartialObjectMetadata) { replicasChanged(o) }, replicasChanged), notNeeded})
	out = append(out, source{v1alpha1.GroupVersion.WithKind("GPUNode"), &v1alpha1.GPUNode{}, handler(func(_, o *v1alpha1.GPUNode) {
		j.gpuNodes.set(o)
	}, func(o *v1alpha1.GPUNode) { j.gpuNodes.forget(o.Name) }), notNeeded})
	experiment := &unstructured.Unstructured{}
	experiment.SetGroupVersionKind(workload.ExperimentGVK)
	out = append(out, source{workload.ExperimentGVK, experiment, handler(func(_, o *unstructured.Unstructured) {
		j.experimentSeen(ctx, o)
	}, func(o *unstructured.Unstructured) { j.experiments.news(o.GetUID(), "") }), notNeeded})
	if j.provisioning.ClassName != "" {
		request := &unstructured.Unstructured{}
		request.SetGroupVersionKind(provisioningGVK)
		// The provisioner looks at them by itself.
		unheard := handler(func(_, _ *unstructured.Unstructured) {}, func(*unstructured.Unstructured) {})
		out = append(out, source{provisioningGVK, request, unheard, notNeeded})
	}
	for gk, k := range j.kinds {
		_, assembled := k.(workload.Assembler)
		if assembled || gk == corev1.SchemeGroupVersion.WithKind("Pod").GroupKind() || slices.ContainsFunc(out, func(s source) bool { return s.gvk.GroupKind() == gk }) {
			// Pods are told by the scheduler's own informer, the others above.
			continue
		}
		enqueue := func(o client.Object) {
			l.effects.Sync(JobKey{Group: gk.Group, Kind: gk.Kind, NamespacedName: client.ObjectKeyFromObject(o), UID: o.GetUID()})
		}
		gone := func(o client.Object) {
			l.ForgetPodOwner(o.GetUID())
			enqueue(o)
		}
		versions := []schema.GroupVersionKind{k.GroupVersionKind()}
		if v, ok := k.(workload.Versioned); ok {
			versions = v.Versions()
		}
		for _, gvk := range versions {
			obj := k.New()
			obj.GetObjectKind().SetGroupVersionKind(gvk)
			out = append(out, source{gvk, obj, handler(func(_, o client.Object) { enqueue(o) }, gone), notNeeded})
		}
	}
	return out
}

// renderAgain has the waiting jobs of a namespace, or of all with an empty
// name, rendered anew, after something changed that their pods are made of.
func (j *Jobs) renderAgain(namespace string) {
	j.renderer.Forget(namespace)
	j.ledger.syncWaiting(namespace)
}

// workloadSeen takes in a Workload and has its job looked at, unless it was read
// with that very version: it has written it itself.
func (j *Jobs) workloadSeen(wl *kueue.Workload) {
	if goesWithFinalizer(wl) {
		j.deletions.Add(client.ObjectKeyFromObject(wl))
	}
	owner, ok := workload.OwnerOf(wl)
	if !ok {
		return
	}
	if j.ledger.observe(owner.UID, wl) {
		j.syncOwner(owner)
	}
}

func (j *Jobs) workloadGone(wl *kueue.Workload) {
	owner, ok := workload.OwnerOf(wl)
	if !ok {
		return
	}
	j.ledger.workloadDeleted(owner.UID, wl.UID)
	j.syncOwner(owner)
}

// sync has the owner of a JobSet's pods looked at: the TrainJob that controls
// it, or the JobSet itself.
func (j *Jobs) sync(js *jobset.JobSet) {
	if ref := metav1.GetControllerOf(js); ref != nil {
		gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
		if j.kinds[gvk.GroupKind()] != nil {
			j.syncOwner(workload.Owner{
				GroupVersionKind: gvk, NamespacedName: types.NamespacedName{Namespace: js.Namespace, Name: ref.Name}, UID: ref.UID,
			})
			return
		}
	}
	j.effects.Sync(JobKey{Group: jobset.SchemeGroupVersion.Group, Kind: "JobSet", NamespacedName: client.ObjectKeyFromObject(js), UID: js.UID})
}

// syncJob has a batch Job looked at, whoever made it: its pods wait to hear
// whether they are managed.
func (j *Jobs) syncJob(job *batchv1.Job) {
	j.effects.Sync(JobKey{Group: batchv1.GroupName, Kind: "Job", NamespacedName: client.ObjectKeyFromObject(job), UID: job.UID})
}

func (j *Jobs) syncOwner(owner workload.Owner) { j.effects.Sync(keyOf(owner)) }

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

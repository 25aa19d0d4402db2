package scheduling

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-gpu/muster/rendering"
	"github.com/muster-gpu/muster/workload"
)

// watchTimeouts looks once a second for jobs that have run out of time and for
// jobs whose back-off is over.
func (j *Jobs) watchTimeouts(ctx context.Context) {
	tick := j.clock.NewTicker(time.Second)
	defer tick.Stop()
	last, rendered, measured := j.clock.Now(), j.clock.Now(), j.clock.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
			now := j.clock.Now()
			j.countHeld(now.Sub(last))
			last = now
			j.ledger.reshowOld(now)
			j.ledger.giveUpNodes(j.timing.NodeLossGrace)
			j.expire(ctx)
			j.suspendFollowed(ctx)
			j.tellIdles(ctx)
			j.endVacancies()
			j.freeOrphans(ctx)
			j.countUnmanaged()
			j.retryClaims()
			if now.Sub(rendered) >= rendering.Freshness {
				// A webhook that changed is not told to anyone.
				rendered = now
				j.ledger.syncFirst()
			}
			if now.Sub(measured) >= measureEvery {
				// A pass measures, also where there is nothing to admit.
				measured = now
				j.effects.Admit()
			}
			// Some reasons are worth telling only when they last.
			j.effects.Report()
		}
	}
}

// orphanAge is how old a pod is that should have been told of its owner.
const orphanAge = 10 * time.Second

// freeOrphans lets pods go whose owner does not exist: nobody will ever
// say whose they are.
func (j *Jobs) freeOrphans(ctx context.Context) {
	for owner, pod := range j.ledger.oldStrays(orphanAge) {
		if _, alone := workload.PodJob(pod); alone {
			// The pod itself is there to be read, sooner or later.
			continue
		}
		obj, of := podOwnerOf(pod, owner)
		err := j.client.Get(ctx, of.NamespacedName, obj)
		claimed := false
		if isGone(err) && !j.ledger.isRestored() {
			// A job whose owner is gone is charged until its pods are, and may be
			// about to be restored.
			claimed, err = j.claimed(ctx, of, nil)
		}
		switch {
		case claimed, err == nil && obj.GetUID() == owner:
		case err != nil && !isGone(err):
			klog.FromContext(ctx).Error(err, "Looking for the owner of a pod", "pod", klog.KObj(pod))
		default:
			j.ledger.Unmanaged(owner)
		}
	}
}

// podOwnerOf is an empty object of the kind by whose UID a pod names its job,
// and which one it is: the controller of the pod, or the JobSet of its labels.
func podOwnerOf(pod *corev1.Pod, owner types.UID) (client.Object, workload.Owner) {
	of := workload.Owner{UID: owner, NamespacedName: types.NamespacedName{Namespace: pod.Namespace}}
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil && ref.UID == owner {
		of.GroupVersionKind, of.Name = schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind), ref.Name
		obj := &metav1.PartialObjectMetadata{}
		obj.SetGroupVersionKind(of.GroupVersionKind)
		return obj, of
	}
	of.GroupVersionKind, of.Name = jobset.SchemeGroupVersion.WithKind("JobSet"), pod.Labels[jobset.JobSetNameKey]
	return &jobset.JobSet{}, of
}

// oldStrays are owners that are not known, each with a pod of its that is
// older than age.
func (l *Ledger) oldStrays(age time.Duration) map[types.UID]*corev1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[types.UID]*corev1.Pod{}
	for owner, pods := range l.strays {
		for _, pod := range pods {
			if l.clock.Since(pod.CreationTimestamp.Time) > age {
				out[owner] = pod
				break
			}
		}
	}
	return out
}

// progress is the number of slots with a pod on its node, of all.
func (e *entry) progress(now time.Time) (bound, all int) {
	for _, set := range e.sets {
		for _, s := range set.slots {
			all++
			if !s.missing(now) {
				bound++
			}
		}
	}
	return bound, all
}

// podsOf is the number of pods of a job.
func podsOf(job *workload.Job) int64 {
	var n int64
	for i := range job.PodSets {
		n += int64(job.PodSets[i].Count)
	}
	return n
}

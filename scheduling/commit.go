package scheduling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// writeAdmission writes a plan that was charged and held in memory to the
// Workload. Only after that is the owner resumed, so every pod that is ever
// bound belongs to a Workload that the API knew as admitted. A failed write
// takes the charge and the holds back.
func (j *Jobs) writeAdmission(ctx context.Context, uid types.UID) error {
	defer j.writesOf.one(uid)()
	a, ok := j.ledger.admissionOf(uid)
	if !ok {
		return nil
	}
	if j.ledger.followsKueue() {
		j.placeFollowing(ctx, a)
		return nil
	}
	wl := a.workload.DeepCopy()
	wl.Status.Admission = admissionStatus(a)
	message := "admitted: " + a.message
	j.condition(wl, kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", "Quota reserved in ClusterQueue "+a.assignment.ClusterQueue)
	j.condition(wl, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", message)
	if c := saysEvicted(wl); c != nil {
		j.condition(wl, kueue.WorkloadEvicted, metav1.ConditionFalse, "QuotaReserved", "Previously: "+c.Message)
	}
	j.sayNotPreempted(wl)
	j.sayBack(wl, "")
	if a.state == Admitting {
		j.sayWaiting(wl)
	}
	err := j.client.Status().Update(ctx, wl)
	result := outcomeOf(err)
	if result != wrote {
		metrics.AdmissionsUndone.Inc()
		latest := &kueue.Workload{}
		if getErr := j.client.Get(ctx, client.ObjectKeyFromObject(wl), latest); getErr != nil {
			// An earlier try may have come through after all.
			latest, result = nil, unknown
		} else if equality.Semantic.DeepEqual(latest.Status.Admission, wl.Status.Admission) && isAdmitted(latest) {
			// The answer was lost, the write was not.
			result = wrote
		}
		wl = latest
	}
	news := j.ledger.written(uid, a.replanned, wl, result, err)
	switch {
	case news:
		metrics.Admitted(a.assignment.ClusterQueue, priorityClassOf(wl), j.clock.Since(waitsSince(a)))
		a.close.count(a.assignment.ClusterQueue)
		j.note(a.job, noteAdmitted, message)
		return nil
	case result == wrote:
		if a.state == Admitted && !equality.Semantic.DeepEqual(a.workload.Status.Admission, wl.Status.Admission) {
			if resized(a.workload.Status.Admission, wl.Status.Admission) {
				j.note(a.job, "Resized", "it has other numbers of pods now: "+a.message)
			} else {
				j.note(a.job, "Replanned", "some of its pods have other nodes now: "+a.message)
			}
		}
		return nil
	case result == refused && a.state == Admitting:
		klog.FromContext(ctx).V(2).Info("Admission taken back, its write was refused", "workload", klog.KObj(a.workload), "err", err.Error())
		return nil
	default:
		return fmt.Errorf("writing the admission of Workload %s: %w", klog.KObj(a.workload), err)
	}
}

// resized says that two admissions are for different numbers of pods.
func resized(a, b *kueue.Admission) bool {
	return a != nil && b != nil && !slices.EqualFunc(a.PodSetAssignments, b.PodSetAssignments, func(x, y kueue.PodSetAssignment) bool {
		return ptr.Equal(x.Count, y.Count)
	})
}

// waitsSince is since when a job that is being admitted has waited: what it ran
// for before an eviction is no waiting.
func waitsSince(a admission) time.Time {
	since := a.job.Created
	c := apimeta.FindStatusCondition(a.workload.Status.Conditions, kueue.WorkloadEvicted)
	if c != nil && c.Status == metav1.ConditionTrue && c.LastTransitionTime.After(since) {
		return c.LastTransitionTime.Time
	}
	return since
}

// admissionStatus is the durable form of an assignment and a plan.
func admissionStatus(a admission) *kueue.Admission {
	out := &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(a.assignment.ClusterQueue)}
	for i := range a.job.PodSets {
		ps := &a.job.PodSets[i]
		set := kueue.PodSetAssignment{
			Name:               kueue.NewPodSetReference(ps.Name),
			Flavors:            map[corev1.ResourceName]kueue.ResourceFlavorReference{},
			ResourceUsage:      corev1.ResourceList{},
			Count:              &ps.Count,
			TopologyAssignment: workload.EncodeNodes(a.nodes[i]),
		}
		for r, f := range a.assignment.Flavors[i] {
			set.Flavors[r] = kueue.ResourceFlavorReference(f)
		}
		for r, v := range a.assignment.PodSetUsage[i] {
			set.ResourceUsage[r] = quota.Quantity(r, v)
		}
		out.PodSetAssignments = append(out.PodSetAssignments, set)
	}
	return out
}

// writeFinish says in the Workload that its job has ended, and only then ends
// the job's charge.
func (j *Jobs) writeFinish(ctx context.Context, job *workload.Job) error {
	wl, key := j.ledger.workloadOf(job.Owner.UID), j.workloadKey(job)
	if wl == nil {
		wl = &kueue.Workload{}
		if err := j.client.Get(ctx, key, wl); apierrors.IsNotFound(err) {
			wl = nil
		} else if err != nil {
			return fmt.Errorf("reading Workload %s: %w", key, err)
		}
	}
	if !isFinished(wl) {
		why := kueue.WorkloadFinishedReasonFailed
		if job.Finish.Succeeded {
			why = kueue.WorkloadFinishedReasonSucceeded
		}
		err := j.changeFrom(ctx, job.Owner.UID, wl, func(wl *kueue.Workload) {
			j.condition(wl, kueue.WorkloadFinished, metav1.ConditionTrue, why, job.Finish.Message)
			j.sayNotIdle(wl, stoppedIdle)
		})
		if err != nil {
			return fmt.Errorf("finishing Workload %s: %w", key, err)
		}
	}
	j.keepPlace(ctx, job)
	j.ledger.left(job.Owner.UID)
	return nil
}

// deleteWorkload deletes the Workload of an owner that is gone, without
// waiting for the garbage collector, and only then ends the job's charge.
func (j *Jobs) deleteWorkload(ctx context.Context, job *workload.Job) error {
	wl := &kueue.Workload{}
	key := j.workloadKey(job)
	wl.Namespace, wl.Name = key.Namespace, key.Name
	if err := j.client.Delete(ctx, wl); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Workload %s: %w", klog.KObj(wl), err)
	}
	j.keepPlace(ctx, job)
	j.ledger.left(job.Owner.UID)
	return nil
}

// workloadKey is where the Workload of a job is: a job whose owner is gone may not
// know any more how it was named.
func (j *Jobs) workloadKey(job *workload.Job) client.ObjectKey {
	if wl := j.ledger.workloadOf(job.Owner.UID); wl != nil {
		return client.ObjectKeyFromObject(wl)
	}
	return client.ObjectKey{Namespace: job.Owner.Namespace, Name: job.WorkloadName()}
}

// change writes a change of a Workload's status, on the newest object.
func (j *Jobs) change(ctx context.Context, uid types.UID, edit func(*kueue.Workload)) error {
	return j.changeFrom(ctx, uid, nil, edit)
}

// changeFrom does so for a Workload that is known as wl if the Ledger knows none.
func (j *Jobs) changeFrom(ctx context.Context, uid types.UID, wl *kueue.Workload, edit func(*kueue.Workload)) error {
	defer j.writesOf.one(uid)()
	if newest := j.ledger.workloadOf(uid); newest != nil {
		wl = newest
	}
	for range 5 {
		if wl == nil {
			return nil
		}
		changed := wl.DeepCopy()
		edit(changed)
		err := j.client.Status().Update(ctx, changed)
		switch {
		case err == nil:
			j.ledger.observe(uid, changed)
			return nil
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return fmt.Errorf("updating Workload %s: %w", klog.KObj(wl), err)
		}
		wl = wl.DeepCopy()
		if err := j.client.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	return errors.New("the Workload keeps changing")
}

func (j *Jobs) condition(wl *kueue.Workload, kind string, status metav1.ConditionStatus, why, message string) {
	apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: why, Message: clip(message), ObservedGeneration: wl.Generation,
		LastTransitionTime: metav1.NewTime(j.clock.Now()),
	})
}

// clip keeps a message within what a condition may hold.
func clip(s string) string {
	const most = 32 * 1024
	if len(s) > most {
		return s[:most]
	}
	return s
}

func isAdmitted(wl *kueue.Workload) bool {
	return wl != nil && apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadAdmitted)
}

// claimsAdmission says that a Workload counts as charged in the API.
func claimsAdmission(wl *kueue.Workload) bool {
	return isAdmitted(wl) && !isFinished(wl) && wl.Status.Admission != nil
}

func isFinished(wl *kueue.Workload) bool {
	return wl != nil && apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished)
}

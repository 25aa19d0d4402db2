package scheduling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// errNotRestored is returned for an owner that can be read only once the admitted
// jobs are known.
var errNotRestored = errors.New("the admitted jobs are not known yet")

// reconcile brings one owner and its Workload in line with the Ledger. Where that
// is too early, it returns errNotRestored.
func (j *Jobs) reconcile(ctx context.Context, key JobKey) error {
	kind := j.kinds[schema.GroupKind{Group: key.Group, Kind: key.Kind}]
	if kind == nil {
		return nil
	}
	reading, over := j.ledger.reads(key.Namespace)
	defer over()
	obj, err := j.cached(ctx, kind, key.NamespacedName)
	if err != nil && !isGone(err) {
		return fmt.Errorf("reading %s %s: %w", key.Kind, key.NamespacedName, err)
	}
	if err != nil || (key.UID != "" && obj.GetUID() != key.UID) {
		if _, assembled := kind.(workload.Assembler); assembled {
			// Nobody else tells that it has no pods any more.
			j.ledger.ForgetPodOwner(key.UID)
		}
		return j.leftBehind(ctx, kind, key.UID)
	}
	if g, ok := obj.(*workload.PodGroup); ok && g.Basic {
		switch {
		case !j.ledger.isRestored():
			return errNotRestored
		case !j.ledger.isCharged(g.UID):
			return j.part(ctx, g)
		}
		// It was a gang when it was admitted, and is one until it has left.
	}
	job, managed, no, err := j.readHeld(ctx, kind, obj)
	if err != nil {
		return fmt.Errorf("reading the pod sets of %s %s: %w", key.Kind, key.NamespacedName, err)
	}
	if managed && no == nil {
		no = workload.CheckTopology(job)
	}
	if managed && job.Gated && !job.Suspended && !waits(job) && !j.ledger.knows(job.Owner.UID) {
		// Its pods are on nodes. If it was not admitted, it is none of ours. While
		// one waits it is: a pod that others put onto a node lets no other in.
		managed, err = j.claimed(ctx, job.Owner, obj)
		if err != nil {
			return err
		}
	}
	if !managed {
		if !j.ledger.isRestored() && !j.ledger.isUnmanaged(obj.GetUID()) {
			claimed, err := j.claimed(ctx, workload.Owner{
				GroupVersionKind: kind.GroupVersionKind(), NamespacedName: key.NamespacedName, UID: obj.GetUID(),
			}, obj)
			if err != nil {
				return err
			}
			if claimed {
				// Its pods are charged; they are told apart after the restoration.
				return errNotRestored
			}
		}
		if err := j.leftBehind(ctx, kind, obj.GetUID()); err != nil {
			return err
		}
		return j.disown(ctx, kind, obj)
	}
	if !j.ledger.isRestored() {
		// Only pods of no queue are let go before.
		return errNotRestored
	}
	job.Hints = hintsOf(job, obj)
	var wl *kueue.Workload
	follows := j.ledger.followsKueue()
	switch {
	case follows:
		wl, err = j.kueuesWorkload(ctx, job)
	case no == nil && !job.Deleting:
		wl, no, err = j.ensureWorkload(ctx, job)
	}
	if err != nil {
		return err
	}
	if no == nil && job.Gated && !follows && !claimsAdmission(wl) && !j.ledger.isCharged(job.Owner.UID) {
		no = runsAlready(job)
	}
	if no == nil && job.Finish == nil && !job.Deleting && !j.ledger.isCharged(job.Owner.UID) {
		if no, err = j.renderer.Render(ctx, job); err != nil {
			return err
		}
	}
	want := j.ledger.read(job, wl, no)
	j.ledger.syncIfCalled(job.Owner.UID, reading)
	return j.act(ctx, kind, obj, job, want)
}

// claimed says whether an owner that is not managed (any more) has a Workload
// that is admitted. obj is the owner, nil if it is gone.
func (j *Jobs) claimed(ctx context.Context, owner workload.Owner, obj client.Object) (bool, error) {
	wl := &kueue.Workload{}
	key := types.NamespacedName{Namespace: owner.Namespace, Name: workload.WorkloadNameOf(owner, obj)}
	err := j.client.Get(ctx, key, wl)
	switch {
	case err == nil:
		return claimsAdmission(wl), nil
	case isGone(err):
		return false, nil
	default:
		return false, fmt.Errorf("reading Workload %s: %w", key, err)
	}
}

// waits says that a pod of a gated job is not on a node yet.
func waits(job *workload.Job) bool {
	return slices.ContainsFunc(job.Pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == "" })
}

// runsAlready is the reason against a job that is not admitted and has a pod on
// a node, where others put it.
func runsAlready(job *workload.Job) *reason.Reason {
	for _, p := range job.Pods {
		if p.Spec.NodeName != "" {
			return reason.New(reason.WaitingForPods, "pod %s is on node %s without having been admitted; the group starts when it is gone", p.Name, p.Spec.NodeName)
		}
	}
	return nil
}

// isGone says that an object does not exist, or that the API does not even have
// its kind.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) }

// leftBehind releases a job whose owner is gone or is not managed any more.
func (j *Jobs) leftBehind(ctx context.Context, kind workload.Kind, uid types.UID) error {
	job, want := j.ledger.ownerGone(uid)
	if job == nil {
		return nil
	}
	return j.act(ctx, kind, nil, job, want)
}

// disown lets the pods of an owner go that Muster does not manage, and those of
// its children. Of an object that is itself the child of another one, that one
// says whose its pods are.
func (j *Jobs) disown(ctx context.Context, kind workload.Kind, obj client.Object) error {
	parent, err := j.parentOf(ctx, obj)
	if err != nil {
		return err
	}
	if parent != nil {
		j.syncOwner(*parent)
		return nil
	}
	if group, ok := obj.(*workload.PodGroup); ok {
		j.ledger.LetGo(group.UID, group.Pods)
		return nil
	}
	uids := []types.UID{obj.GetUID()}
	if p, ok := kind.(workload.Parent); ok {
		children, err := p.Children(ctx, j.reader, obj)
		if err != nil {
			return fmt.Errorf("looking for the children of %s: %w", klog.KObj(obj), err)
		}
		uids = append(uids, children...)
	}
	for _, uid := range uids {
		j.ledger.Unmanaged(uid)
	}
	return nil
}

// parentOf is the owner whose controller has made obj, nil if there is none
// that speaks for its pods.
func (j *Jobs) parentOf(ctx context.Context, obj client.Object) (*workload.Owner, error) {
	ref := metav1.GetControllerOfNoCopy(obj)
	if _, pod := obj.(*corev1.Pod); pod || ref == nil {
		// What a pod itself says of its job has been read.
		return nil, nil
	}
	owner := workload.Owner{
		GroupVersionKind: schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind), UID: ref.UID,
		NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: ref.Name},
	}
	kind := j.kinds[owner.GroupKind()]
	if _, speaks := kind.(workload.Parent); !speaks {
		return nil, nil
	}
	parent, err := j.cached(ctx, kind, owner.NamespacedName)
	if isGone(err) || (err == nil && parent.GetUID() != ref.UID) {
		// The cache may not have seen it yet.
		parent, err = j.current(ctx, kind, owner.NamespacedName)
	}
	switch {
	case isGone(err) || (err == nil && parent.GetUID() != ref.UID):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s %s: %w", owner.Kind, owner.NamespacedName, err)
	}
	return &owner, nil
}

// restoreSoon is how long a job waits to be looked at again while the admitted
// jobs are still being read.
const restoreSoon = 200 * time.Millisecond

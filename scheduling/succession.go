package scheduling

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// The pods of a Deployment or a StatefulSet are jobs of their own, but the place
// of one that goes is its keeper's: the pod that replaces it takes over quota and
// node in one step, when the API knows of the end of the one before, and nobody
// else comes in between. A pod that has come early, as those of a rolling update
// do, gets the place of one that is being deleted. Where the replacement is still
// to come, and the keeper wants it, the place is kept for a moment.

// heirGrace is how long the place of a pod that has gone is kept for one that is
// still to come.
const heirGrace = 15 * time.Second

// vacant says that the job's pod has gone by itself, so that its place can pass
// to another one: Muster has not stopped it.
func (e *entry) vacant() bool {
	return e.state == Leaving && e.ended && e.eviction == nil && e.live() == nil && e.job.Keeper != (workload.Keeper{}) && !e.occupied() &&
		len(e.sets) == 1 && len(e.sets[0].slots) == 1 && e.sets[0].slots[0].node != "" && !e.sets[0].slots[0].done
}

// heirOf is the first waiting job that may take over the place of a job: a pod
// of the same keeper that asks for the same of the same queue, if that admits
// anybody now.
func (l *Ledger) heirOf(e *entry) *entry {
	if l.kueueDecides() || !e.vacant() || l.isPromised(e) || l.isAway(e, e.sets[0].slots[0]) {
		return nil
	}
	first := l.firstLike(e)
	if first == nil {
		return nil
	}
	if cq, _ := l.quota.ClusterQueueOf(first.queue()); cq != e.assignment.ClusterQueue {
		return nil
	}
	if _, no := l.quota.Assign(first.request(l.namespaces[first.job.Owner.Namespace])); no != nil && stepsOut(no.Class) {
		return nil
	}
	return first
}

// firstLike is the first waiting pod of a job's keeper that asks for the same.
func (l *Ledger) firstLike(e *entry) *entry {
	var first *entry
	for uid := range l.kept[e.job.Keeper] {
		o := l.jobs[uid]
		if o == nil || o.state != Pending || !o.startable() || o.job.Queue != e.job.Queue || len(o.job.PodSets) != 1 ||
			!equality.Semantic.DeepEqual(o.job.PodSets[0].PerPod(), e.job.PodSets[0].PerPod()) {
			continue
		}
		if first == nil || o.before(first) < 0 {
			first = o
		}
	}
	return first
}

// passesOn says that the place of a job that leaves is likely to pass to another
// pod of its keeper. A StatefulSet makes that one only when this one has gone.
func (l *Ledger) passesOn(e *entry) bool {
	if !e.ended || e.eviction != nil || e.live() != nil || e.job.Keeper == (workload.Keeper{}) || len(e.sets) != 1 || l.isPromised(e) {
		return false
	}
	return e.job.Keeper.Kind == "StatefulSet" || e.keptUntil.after(l.clock.Now()) || l.firstLike(e) != nil
}

// isPromised says that a claim counts on what a job leaves: jobs were stopped
// for that, so it passes to nobody else.
func (l *Ledger) isPromised(e *entry) bool {
	for _, o := range l.claims {
		if _, counted := o.claim.gone[e.job.Owner.UID]; counted {
			return true
		}
	}
	return false
}

// keepFor has the place of a job that has gone kept until then, for the pod that
// replaces it.
func (l *Ledger) keepFor(uid types.UID, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.jobs[uid]; e != nil && e.vacant() && e.keptUntil == 0 {
		e.keptUntil = instantOf(until)
	}
}

// isKept says that the place of a job which has gone waits for its heir.
func (l *Ledger) isKept(e *entry) bool {
	return e.vacant() && e.keptUntil.after(l.clock.Now()) && !l.isPromised(e) && !l.isAway(e, e.sets[0].slots[0])
}

// inherit gives a job the place of another one, which was released just now: its
// quota and its node. It is not refused quota, and finds the room that the other
// one has left. A node that is not right for it shows when the pod is scheduled.
func (l *Ledger) inherit(heir *entry, a *quota.Assignment, node string) {
	if err := l.commit(heir, a, placement.Assignment{{node}}, prototypes(heir, a, l.quota)); err != nil {
		l.logger.V(2).Info("A pod does not take over the place of another", "job", klog.KRef(heir.job.Owner.Namespace, heir.job.Owner.Name), "why", err.Error())
		return
	}
	l.effects.Write(heir.job.Owner.UID)
}

// succeedIn looks for a place that a waiting job may take over, and has it.
func (l *Ledger) succeedIn(e *entry) {
	if e.state != Pending || e.job.Keeper == (workload.Keeper{}) || !e.startable() {
		return
	}
	for uid := range l.kept[e.job.Keeper] {
		if from := l.jobs[uid]; from != nil && from != e && from.keptUntil != 0 && l.isKept(from) && l.heirOf(from) == e {
			l.depart(from)
			return
		}
	}
}

// lapsed are the jobs whose place was kept in vain.
func (l *Ledger) lapsed() []types.UID {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []types.UID
	for _, jobs := range l.kept {
		for uid := range jobs {
			if e := l.jobs[uid]; e != nil && e.keptUntil != 0 && e.vacant() && !l.isKept(e) {
				out = append(out, uid)
			}
		}
	}
	return out
}

// keeps records that a job is one of its keeper's, unkeeps that it is gone.
func (l *Ledger) keeps(job *workload.Job) {
	if job.Keeper == (workload.Keeper{}) {
		return
	}
	if l.kept[job.Keeper] == nil {
		l.kept[job.Keeper] = map[types.UID]struct{}{}
	}
	l.kept[job.Keeper][job.Owner.UID] = struct{}{}
}

func (l *Ledger) unkeeps(job *workload.Job) {
	if delete(l.kept[job.Keeper], job.Owner.UID); len(l.kept[job.Keeper]) == 0 {
		delete(l.kept, job.Keeper)
	}
}

// placesOf is how many places a keeper has, without that of one job.
func (l *Ledger) placesOf(k workload.Keeper, without types.UID) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var n int32
	for uid := range l.kept[k] {
		e := l.jobs[uid]
		if uid != without && e != nil && (e.state == Admitting || e.state == Admitted || (e.state == Leaving && l.isKept(e))) {
			n++
		}
	}
	return n
}

// keepPlace has the place of a pod that has gone kept, if its keeper wants more
// pods than it has places beside it.
func (j *Jobs) keepPlace(ctx context.Context, job *workload.Job) {
	if job.Keeper == (workload.Keeper{}) {
		return
	}
	wants, err := j.wantedBy(ctx, job.Keeper)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("The place of a pod is not kept, because its keeper cannot be read", "keeper", job.Keeper, "err", err.Error())
		return
	}
	if wants > j.ledger.placesOf(job.Keeper, job.Owner.UID) {
		j.ledger.keepFor(job.Owner.UID, j.clock.Now().Add(heirGrace))
	}
}

// wantedBy is how many pods a keeper is to have; none if it is gone.
func (j *Jobs) wantedBy(ctx context.Context, k workload.Keeper) (int32, error) {
	var obj client.Object
	var replicas **int32
	switch k.Kind {
	case "Deployment":
		d := &appsv1.Deployment{}
		obj, replicas = d, &d.Spec.Replicas
	case "ReplicaSet":
		r := &appsv1.ReplicaSet{}
		obj, replicas = r, &r.Spec.Replicas
	case "StatefulSet":
		s := &appsv1.StatefulSet{}
		obj, replicas = s, &s.Spec.Replicas
	default:
		return 0, nil
	}
	err := j.client.Get(ctx, k.NamespacedName, obj)
	switch {
	case isGone(err):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("reading %s %s: %w", k.Kind, k.NamespacedName, err)
	case obj.GetDeletionTimestamp() != nil:
		return 0, nil
	}
	return ptr.Deref(*replicas, 1), nil
}

// endVacancies releases the places that were kept in vain.
func (j *Jobs) endVacancies() {
	for _, uid := range j.ledger.lapsed() {
		j.ledger.left(uid)
	}
}

// surgeHint is what to add to the reason of a waiting pod whose Deployment is
// being updated, and keeps all pods of before until this one is ready.
func (l *Ledger) surgeHint(e *entry) string {
	if e.job.Keeper.Kind != "Deployment" || len(e.job.Pods) != 1 {
		return ""
	}
	hash := e.job.Pods[0].Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	before := func(uid types.UID) bool {
		o := l.jobs[uid]
		return o != nil && o.state == Admitted && len(o.job.Pods) == 1 && o.job.Pods[0].Labels[appsv1.DefaultDeploymentUniqueLabelKey] != hash
	}
	if !slices.ContainsFunc(slices.Collect(maps.Keys(l.kept[e.job.Keeper])), before) {
		return ""
	}
	return fmt.Sprintf("; Deployment %s is being updated and keeps its earlier pods until new ones are ready: with maxSurge: 0 in spec.strategy.rollingUpdate each new pod takes the place of an earlier one",
		e.job.Keeper.Name)
}

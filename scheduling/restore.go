package scheduling

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// restore reads from the API, not from a cache that may be behind, which jobs
// are admitted, and takes their charges and slots into the Ledger. It runs
// once, before anything is admitted.
func (j *Jobs) restore(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	list := &kueue.WorkloadList{}
	if err := j.client.List(ctx, list); err != nil {
		return fmt.Errorf("listing Workloads: %w", err)
	}
	j.ledger.restoring()
	succeeded, err := j.succeededPods(ctx)
	if err != nil {
		return err
	}
	// Where two claim the same room, the one that was admitted first has it.
	slices.SortStableFunc(list.Items, func(a, b kueue.Workload) int { return admittedAt(&a).Compare(admittedAt(&b)) })
	jobs, err := j.readOwners(ctx, list.Items)
	if err != nil {
		return err
	}
	restored := 0
	for i, job := range jobs {
		if job != nil && (!j.ledger.followsKueue() || startedByKueue(job, &list.Items[i])) {
			var over []*corev1.Pod
			for _, podOwner := range job.PodOwners() {
				over = append(over, succeeded[podOwner]...)
			}
			j.ledger.restore(job, &list.Items[i], over)
			restored++
		}
	}
	logger.Info("Admitted jobs taken over from the API", "jobs", restored)
	return nil
}

// admittedAt is when a Workload was admitted; zero if it is not.
func admittedAt(wl *kueue.Workload) time.Time {
	if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted); c != nil && c.Status == metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// readOwners reads and renders the admitted jobs that own the Workloads; nil
// where there is none. Many are read at a time, because pods wait for it.
func (j *Jobs) readOwners(ctx context.Context, list []kueue.Workload) ([]*workload.Job, error) {
	out := make([]*workload.Job, len(list))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(restoreAtOnce)
	for i := range list {
		wl := &list[i]
		owner, ok := workload.OwnerOf(wl)
		if !ok || !claimsAdmission(wl) || j.kinds[owner.GroupKind()] == nil {
			continue
		}
		group.Go(func() error {
			job, err := j.readOwner(ctx, wl, owner)
			if err != nil || job == nil {
				return err
			}
			job = asAdmitted(job, wl)
			// It is admitted, so a reason against it comes too late.
			if _, err := j.renderer.Render(ctx, job); err != nil {
				return err
			}
			out[i] = job
			return nil
		})
	}
	return out, group.Wait()
}

// restoreAtOnce is how many jobs are read from the API at a time.
const restoreAtOnce = 16

// readOwner reads the owner of a Workload from the API; nil if it is not
// managed. An owner that lost its queue label after it was admitted is read as
// if it had it, and one that is gone as one that is being deleted: both are
// charged until their pods are gone.
func (j *Jobs) readOwner(ctx context.Context, wl *kueue.Workload, owner workload.Owner) (*workload.Job, error) {
	kind := j.kinds[owner.GroupKind()]
	obj, err := j.current(ctx, kind, owner.NamespacedName)
	if err != nil {
		if !isGone(err) {
			return nil, fmt.Errorf("reading %s %s: %w", owner.Kind, owner.NamespacedName, err)
		}
		return goneOwner(wl, owner), nil
	}
	if obj.GetUID() != owner.UID {
		return goneOwner(wl, owner), nil
	}
	if obj.GetLabels()[workload.QueueLabel] == "" {
		obj = workload.InQueue(obj, string(wl.Spec.QueueName))
	}
	job, managed, _, err := kind.Read(ctx, j.client, obj)
	if err != nil {
		return nil, fmt.Errorf("reading the pod sets of %s %s: %w", owner.Kind, owner.NamespacedName, err)
	}
	if !managed {
		return nil, nil
	}
	job.Hints = hintsOf(job, obj)
	return job, nil
}

// goneOwner is what a Workload knows of an owner that is gone. The pods of a
// TrainJob carry the UID of a JobSet that is gone too, and are not found.
func goneOwner(wl *kueue.Workload, owner workload.Owner) *workload.Job {
	return &workload.Job{
		Owner: owner,
		Queue: string(wl.Spec.QueueName), PodOwnerUID: owner.UID, Created: wl.CreationTimestamp.Time,
		Suspended: true, Deleting: true, PodSets: podSetsOf(wl),
	}
}

// succeededPods are the pods of JobSets, training jobs and groups that have succeeded, by the
// UID of their owner: the scheduler's own informer does not show them, and no
// owner says which pods are over, as a batch Job does.
func (j *Jobs) succeededPods(ctx context.Context) (map[types.UID][]*corev1.Pod, error) {
	out := map[types.UID][]*corev1.Pod{}
	for _, label := range []string{jobset.JobSetUIDKey, workload.TrainingJobLabel, workload.KueueGroupLabel, workload.PodGroupLabel} {
		list := &corev1.PodList{}
		err := j.client.List(ctx, list, client.HasLabels{label}, client.MatchingFields{"status.phase": string(corev1.PodSucceeded)})
		if err != nil {
			return nil, fmt.Errorf("listing pods that have succeeded: %w", err)
		}
		for i := range list.Items {
			if owner, _, ok := workload.SlotOf(&list.Items[i]); ok {
				out[owner] = append(out[owner], &list.Items[i])
			}
		}
	}
	return out, nil
}

// restore takes an admitted job in, once.
func (l *Ledger) restore(job *workload.Job, wl *kueue.Workload, succeeded []*corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.jobs[job.Owner.UID]; e != nil && e.state != Pending {
		return
	}
	e := l.takeOver(job, wl, succeeded)
	if job.Finish != nil || job.Deleting {
		l.end(e)
	}
	l.effects.Sync(keyOf(job.Owner))
}

// takeOver makes an admitted job's entry as its Workload has it. Slots whose
// node is gone, or which the Workload does not name, are planned anew; those
// whose pod has succeeded are done. A job that was being stopped goes on
// leaving.
func (l *Ledger) takeOver(job *workload.Job, wl *kueue.Workload, succeeded []*corev1.Pod) *entry {
	if !l.kueueDecides() || len(job.PodSets) == 0 {
		job = asAdmitted(job, wl)
	}
	e := newEntry(job)
	e.workload, e.version = wl, 1
	if wl.Spec.Priority != nil {
		e.priority = *wl.Spec.Priority
	}
	before := l.jobs[job.Owner.UID]
	l.jobs[job.Owner.UID] = e
	l.keeps(job)
	if before != nil {
		// It was read as a waiting one.
		e.podOwners = before.podOwners
		e.unplaced = maps.Clone(before.unplaced)
		l.enqueue(before)
	}
	e.assignment = assignmentOf(job, wl.Status.Admission)
	l.quota.Charge(job.Owner.UID, e.assignment.ClusterQueue, e.assignment.Usage, e.holder(reservedAt(wl, l.clock.Now())))
	for i := range job.PodSets {
		nodes := nodesOf(wl.Status.Admission, job.PodSets[i].Name)
		e.sets = append(e.sets, newSet(job.PodSets[i], nodes))
	}
	l.restoreLive(e)
	if l.kueueDecides() {
		l.fixDomains(e, wl.Status.Admission)
	} else {
		l.setTolerations(e)
	}
	for _, pod := range succeeded {
		e.succeed(pod)
	}
	e.readyAgain()
	e.move(evRestored)
	e.resumed = !job.Suspended
	for _, podOwner := range job.PodOwners() {
		l.ownedBy(e, podOwner)
		l.adopt(podOwner)
		for _, pod := range l.early[podOwner] {
			l.effects.Settle(job.Owner.UID, pod)
		}
	}
	l.place(e)
	l.endSlots(e)
	for _, c := range prototypes(e, e.assignment, l.quota) {
		for _, s := range e.slotsOf(c) {
			if s.node != "" && !s.done && !s.occupied() {
				l.holdIfRoom(s, phantom(c.pod, s.index, s.node))
			}
		}
	}
	if c := saysEvicted(wl); c != nil {
		l.evict(e, eviction{reason: c.Reason, message: c.Message})
	}
	l.enqueue(e)
	l.touch()
	return e
}

// takeOverLate takes in an admission that this process has not made, of a job
// that waited until now: a scheduler that leads no more had sent it, and it
// came through late. It stands unless its quota or its room was given away
// meanwhile.
func (l *Ledger) takeOverLate(waiting *entry) *entry {
	admitted := waiting.workload.Status.Admission
	if part := admittedPart(waiting.job, admitted); part != nil {
		waiting.setJob(part)
	}
	job := waiting.job
	_, no := l.assignIn(waiting, assignmentOf(job, admitted))
	fits := no == nil && admittedWith(job, admitted)
	e := l.takeOver(job, waiting.workload, nil)
	for _, set := range e.sets {
		fits = fits && !slices.ContainsFunc(set.slots, (*slot).lost)
	}
	if !fits {
		l.evict(e, eviction{
			reason:  evictedTooLate,
			message: "it was admitted by a scheduler that leads no more, onto quota or nodes that were given to others since",
		})
	}
	return e
}

// asAdmitted is the job in the queue and with the pod sets that it was admitted with:
// where its templates are away, or others now, the Workload has a copy.
func asAdmitted(job *workload.Job, wl *kueue.Workload) *workload.Job {
	if queue := string(wl.Spec.QueueName); queue != "" && job.Queue != queue {
		inQueue := *job
		inQueue.Queue = queue
		job = &inQueue
	}
	if admittedWith(job, wl.Status.Admission) {
		return job
	}
	if counts := admittedCounts(job, wl.Status.Admission); counts != nil && job.Elastic {
		return withCounts(job, counts)
	}
	if part := admittedPart(job, wl.Status.Admission); part != nil {
		return part
	}
	copied := *job
	copied.PodSets = podSetsOf(wl)
	return &copied
}

// admittedWith says that an admission is for the pod sets that the job has.
func admittedWith(job *workload.Job, a *kueue.Admission) bool {
	if len(job.PodSets) != len(a.PodSetAssignments) {
		return false
	}
	for i := range job.PodSets {
		set := &a.PodSetAssignments[i]
		if set.Name != kueue.NewPodSetReference(job.PodSets[i].Name) || set.Count == nil || *set.Count != job.PodSets[i].Count {
			return false
		}
	}
	return true
}

// podSetsOf are the pod sets that a Workload was made with.
func podSetsOf(wl *kueue.Workload) []workload.PodSet {
	var out []workload.PodSet
	for i := range wl.Spec.PodSets {
		ps := &wl.Spec.PodSets[i]
		count := ps.Count
		if a := wl.Status.Admission; a != nil && i < len(a.PodSetAssignments) && a.PodSetAssignments[i].Count != nil {
			// An elastic job may ask for others than it has.
			count = *a.PodSetAssignments[i].Count
		}
		set := workload.PodSet{
			Name: string(ps.Name), Count: count, Completions: count, PodsPerReplica: max(count, 1),
			Template: ps.Template, Topology: ps.TopologyRequest,
		}
		if set.MinCount = ptr.Deref(ps.MinCount, 0); set.MinCount > 0 && ps.Count > count {
			set.Whole = ps.Count
		}
		out = append(out, set)
	}
	return out
}

// reservedAt is when an admitted job got its quota, as its Workload says.
func reservedAt(wl *kueue.Workload, now time.Time) time.Time {
	c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	if c == nil || c.Status != metav1.ConditionTrue {
		return now
	}
	return c.LastTransitionTime.Time
}

func nodesOf(a *kueue.Admission, podSet string) []string {
	for i := range a.PodSetAssignments {
		if a.PodSetAssignments[i].Name == kueue.NewPodSetReference(podSet) {
			// What cannot be decoded is planned anew, as if it were not there.
			nodes, err := workload.DecodeNodes(a.PodSetAssignments[i].TopologyAssignment)
			if err != nil {
				return nil
			}
			return nodes
		}
	}
	return nil
}

// assignmentOf reads back what admissionStatus has written.
func assignmentOf(job *workload.Job, a *kueue.Admission) *quota.Assignment {
	out := &quota.Assignment{ClusterQueue: string(a.ClusterQueue), Usage: quota.Usage{}}
	for i := range job.PodSets {
		flavors, usage := map[corev1.ResourceName]string{}, quota.Requests{}
		for k := range a.PodSetAssignments {
			set := &a.PodSetAssignments[k]
			if set.Name != kueue.NewPodSetReference(job.PodSets[i].Name) {
				continue
			}
			usage = quota.RequestsOf(set.ResourceUsage)
			for r, f := range set.Flavors {
				flavors[r] = string(f)
				out.Usage[quota.FlavorResource{Flavor: string(f), Resource: r}] += usage[r]
			}
		}
		out.Flavors, out.PodSetUsage = append(out.Flavors, flavors), append(out.PodSetUsage, usage)
	}
	return out
}

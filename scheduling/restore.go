package scheduling

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// restore reads from the API, not from a cache that may be behind, which jobs
// are admitted, and takes their charges and slots into the Ledger. It runs
// once, before anything is admitted.
func (j *Jobs) restore(ctx context.Context, nodeExists func(string) bool) error {
	logger := klog.FromContext(ctx)
	list := &kueue.WorkloadList{}
	if err := j.client.List(ctx, list); err != nil {
		return fmt.Errorf("listing Workloads: %w", err)
	}
	restored := 0
	for i := range list.Items {
		wl := &list.Items[i]
		owner := metav1.GetControllerOf(wl)
		if owner == nil || !isAdmitted(wl) || isFinished(wl) || wl.Status.Admission == nil {
			continue
		}
		kind := j.kinds[groupKindOf(owner)]
		if kind == nil {
			continue
		}
		obj := kind.New()
		key := types.NamespacedName{Namespace: wl.Namespace, Name: owner.Name}
		if err := j.client.Get(ctx, key, obj); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("reading %s %s: %w", owner.Kind, key, err)
			}
			continue
		}
		if obj.GetUID() != owner.UID {
			continue
		}
		job, managed, _, err := kind.Read(ctx, j.client, obj)
		if err != nil {
			return fmt.Errorf("reading the pod sets of %s %s: %w", owner.Kind, key, err)
		}
		if !managed {
			continue
		}
		if err := j.ledger.restore(job, wl, nodeExists); err != nil {
			logger.Error(err, "An admitted job is not taken over as it was", "workload", klog.KObj(wl))
		}
		restored++
	}
	logger.Info("Admitted jobs taken over from the API", "jobs", restored)
	return nil
}

// restore takes an admitted job in as its Workload has it. Slots whose node is
// gone, or which the Workload does not name, are planned anew.
func (l *Ledger) restore(job *workload.Job, wl *kueue.Workload, nodeExists func(string) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.jobs[job.Owner.UID]; e != nil && e.state != Pending {
		return nil
	}
	e := &entry{job: job, workload: wl, state: Pending, version: 1}
	if wl.Spec.Priority != nil {
		e.priority = *wl.Spec.Priority
	}
	l.jobs[job.Owner.UID], l.byName[keyOf(job.Owner)] = e, job.Owner.UID
	e.assignment = assignmentOf(job, wl.Status.Admission)
	l.quota.Charge(job.Owner.UID, e.assignment.ClusterQueue, e.assignment.Usage)
	for i := range job.PodSets {
		set := &setSlots{set: job.PodSets[i]}
		nodes := nodesOf(wl.Status.Admission, job.PodSets[i].Name)
		for k := range int(job.PodSets[i].Count) {
			s := &slot{}
			if k < len(nodes) && nodeExists(nodes[k]) {
				s.node = nodes[k]
			}
			set.slots = append(set.slots, s)
		}
		e.sets = append(e.sets, set)
	}
	e.move(evRestored)
	if job.PodOwnerUID != "" {
		l.podOwners[job.PodOwnerUID] = job.Owner.UID
		l.adopt(job.PodOwnerUID)
	}
	err := l.holdAll(e, prototypes(e, e.assignment, l.quota))
	if job.Finish != nil || job.Deleting {
		l.end(e)
	}
	l.effects.Sync(keyOf(job.Owner))
	return err
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

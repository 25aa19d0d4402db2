package scheduling

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

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
	for i := range copied.PodSets {
		ps := &copied.PodSets[i]
		pods := slices.DeleteFunc(slices.Clone(job.Pods), func(p *corev1.Pod) bool { return workload.RoleOf(p) != ps.Name })
		ps.FirstRank = workload.FirstRank(pods, ps.Count, nodesOf(wl.Status.Admission, ps.Name))
	}
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

// admittedAt is when a Workload was admitted; zero if it is not.
func admittedAt(wl *kueue.Workload) time.Time {
	if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted); c != nil && c.Status == metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

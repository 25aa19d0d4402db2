package workload

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

// podGroupKind is a group of pods without an owner that Muster manages. All of
// them are one gang: how many there must be is said by Kueue's annotation, or by
// the controllers of the pods, or, at the least, by the PodGroup object.
type podGroupKind struct {
	Options
	gvk schema.GroupVersionKind
	// label is the pods' label that holds the group's name; empty where something
	// else does.
	label string
}

var (
	_ Kind      = podGroupKind{}
	_ Assembler = podGroupKind{}
)

func (k podGroupKind) GroupVersionKind() schema.GroupVersionKind { return k.gvk }

func (podGroupKind) New() client.Object { return &PodGroup{} }

// Read implements Kind. r must know LocalQueues.
func (k podGroupKind) Read(ctx context.Context, r client.Reader, obj client.Object) (*Job, bool, *reason.Reason, error) {
	g, ok := obj.(*PodGroup)
	if !ok {
		return nil, false, nil, fmt.Errorf("a %T was given where a group of pods is read", obj)
	}
	queue, no := g.Labels[QueueLabel], k.mixedQueues(g)
	if queue == "" && no == nil {
		var err error
		queue, no, err = k.queueOfPods(ctx, r, g.Namespace, g.Pods...)
		if err != nil || (queue == "" && no == nil && !k.awaitsObject(g)) {
			return nil, false, nil, err
		}
	}
	if g.Missing {
		// It may name a queue when it comes.
		no = reason.New(reason.PodGroupNotFound, "PodGroup %s does not exist", g.Name)
	}
	job := newJob(k.gvk, g)
	job.Queue, job.Gated, job.PodOwnerUID = queue, true, g.UID
	want, wrong := k.size(g)
	succeeded := int64(0)
	var members []*corev1.Pod
	job.Suspended = true
	for _, pod := range g.Pods {
		switch {
		case pod.Status.Phase == corev1.PodSucceeded:
			succeeded++
			members = append(members, pod)
		case pod.Status.Phase == corev1.PodFailed, pod.DeletionTimestamp != nil && pod.Spec.NodeName == "":
		default:
			job.Pods = append(job.Pods, pod)
			job.Suspended = job.Suspended && pod.Spec.NodeName == ""
			if pod.DeletionTimestamp == nil {
				members = append(members, pod)
			}
		}
	}
	if len(job.Pods) == 0 && wrong == nil && succeeded >= max(want, 1) {
		job.Finish = &Finish{Succeeded: true, Message: fmt.Sprintf("%d pods of the group succeeded", succeeded)}
		return job, true, nil, nil
	}
	members = k.chosen(g, members, want)
	for _, why := range []*reason.Reason{wrong, k.absent(g, int64(len(members)), want)} {
		if no == nil {
			no = why
		}
	}
	if no == nil {
		no = k.readSets(job, members)
		job.PodPriorityClass = cmp.Or(g.PriorityClass, job.PodPriorityClass)
		g.shareDomain(job.PodSets)
	}
	if no == nil {
		no = k.foreignMember(job.Pods)
	}
	return job, true, no, nil
}

// awaitsObject says that pods of the group are Muster's to place, and that its
// object, which may name their queue, is still to come.
func (k podGroupKind) awaitsObject(g *PodGroup) bool {
	return g.Missing && slices.ContainsFunc(g.Pods, func(p *corev1.Pod) bool { return k.SchedulerNames.Has(p.Spec.SchedulerName) })
}

// mixedQueues is the reason if the pods name several queues.
func (k podGroupKind) mixedQueues(g *PodGroup) *reason.Reason {
	queues := map[string]bool{}
	for _, pod := range g.Pods {
		if q := pod.Labels[QueueLabel]; q != "" && pod.Status.Phase != corev1.PodFailed {
			queues[q] = true
		}
	}
	if len(queues) < 2 {
		return nil
	}
	return reason.New(reason.Misconfigured, "the pods of the group name different queues: %v", slices.Sorted(maps.Keys(queues)))
}

// size is how many pods the group must have at least.
func (k podGroupKind) size(g *PodGroup) (int64, *reason.Reason) {
	if k.atLeast() {
		return g.expected(), nil
	}
	pods := slices.DeleteFunc(slices.Clone(g.Pods), func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if len(pods) == 0 {
		pods = g.Pods
	}
	want := ""
	for _, pod := range pods {
		count := pod.Annotations[KueueGroupCountAnnotation]
		switch n, err := strconv.ParseUint(count, 10, 31); {
		case err != nil || n == 0:
			return 0, reason.New(reason.Misconfigured, "pod %s has the annotation %s=%q, which is not a positive number of pods",
				pod.Name, KueueGroupCountAnnotation, count)
		case want != "" && want != count:
			return 0, reason.New(reason.Misconfigured, "the pods of the group say different numbers in %s: %s and %s",
				KueueGroupCountAnnotation, want, count)
		default:
			want = count
		}
	}
	n, _ := strconv.ParseInt(want, 10, 32)
	return n, nil
}

// absent is the reason while pods of the group are still to come.
func (k podGroupKind) absent(g *PodGroup, have, want int64) *reason.Reason {
	switch {
	case k.atLeast() && !g.Found:
		return reason.New(reason.PodGroupNotFound, "PodGroup %s does not exist: the API has no PodGroups of %s", g.Name, k.gvk.Group)
	case have < want, have == 0:
		hint := ""
		if name := g.inTurn(); name != "" {
			hint = fmt.Sprintf("; %s makes a pod only when the one before is ready, and a gang starts whole: create it with podManagementPolicy: Parallel", name)
		}
		return reason.New(reason.WaitingForPods, "%d of %d pods of group %s exist%s", have, max(want, 1), g.Name, hint)
	}
	return nil
}

// chosen are the pods that make up the gang. The number of Kueue's annotation
// is exact, and so is a controller's. A minMember is only the least.
func (k podGroupKind) chosen(g *PodGroup, members []*corev1.Pod, want int64) []*corev1.Pod {
	if k.atLeast() {
		return g.asked(members)
	}
	return firstOf(members, want)
}

// firstOf are n of the pods: those on nodes, and of the others the oldest.
func firstOf(pods []*corev1.Pod, n int64) []*corev1.Pod {
	if int64(len(pods)) <= n {
		return pods
	}
	waits := func(p *corev1.Pod) int {
		if p.Spec.NodeName == "" {
			return 1
		}
		return 0
	}
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int { return waits(a) - waits(b) })
	return pods[:n]
}

// readSets makes a pod set of each role.
func (k podGroupKind) readSets(job *Job, members []*corev1.Pod) *reason.Reason {
	byRole := map[string][]*corev1.Pod{}
	for _, pod := range members {
		role := RoleOf(pod)
		byRole[role] = append(byRole[role], pod)
	}
	if len(byRole) > maxPodSets {
		return reason.New(reason.Misconfigured, "the group has pods of %d kinds, and a Workload holds at most %d pod sets", len(byRole), maxPodSets)
	}
	for _, role := range slices.Sorted(maps.Keys(byRole)) {
		pods := byRole[role]
		for _, pod := range pods[1:] {
			if !SameSize(pod, &corev1.PodTemplateSpec{Spec: pods[0].Spec}) {
				// Kueue notes roles; somebody else may have noted this one.
				return reason.New(reason.Misconfigured, "pods %s and %s have the same annotation %s and ask for different resources", pods[0].Name, pod.Name, roleAnnotation)
			}
		}
		set, no := podSetOf(kueue.PodSetReference(role), pods[0], int32(len(pods)))
		if no != nil {
			return no
		}
		set.FirstRank = FirstRank(pods, set.Count, nil)
		job.PodSets = append(job.PodSets, set)
	}
	job.PodPriorityClass = podPriorityClass(job.PodSets)
	return nil
}

func (k podGroupKind) foreignMember(pods []*corev1.Pod) *reason.Reason {
	for _, pod := range pods {
		if no := k.foreignPod(pod); no != nil {
			return no
		}
	}
	return nil
}

// Suspend implements Kind: the pods on nodes are evicted, all together.
func (podGroupKind) Suspend(ctx context.Context, c client.Client, obj client.Object) error {
	g, ok := obj.(*PodGroup)
	if !ok {
		return fmt.Errorf("a %T was given where a group of pods is evicted", obj)
	}
	return evictPods(ctx, c, g.Pods)
}

// Resume implements Kind.
func (podGroupKind) Resume(ctx context.Context, c client.Client, obj client.Object, infos []PodSetInfo) error {
	g, ok := obj.(*PodGroup)
	if !ok {
		return fmt.Errorf("a %T was given where a group of pods is resumed", obj)
	}
	return tolerateAll(ctx, c, g.Pods, infos, RoleOf)
}

// shareDomain has all pods be in one domain of the group's level, unless they ask
// for domains themselves.
func (g *PodGroup) shareDomain(sets []PodSet) {
	if g.Domain == "" {
		return
	}
	for i := range sets {
		t := sets[i].Topology
		if t == nil || t.Required != nil || t.Preferred != nil || t.Unconstrained != nil || t.PodSetSliceRequiredTopology != nil || len(t.PodsetSliceRequiredTopologyConstraints) > 0 {
			return
		}
	}
	for i := range sets {
		sets[i].Topology.Required = &g.Domain
		if len(sets) > 1 {
			sets[i].Topology.PodSetGroupName = &g.Name
		}
	}
}

package workload

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload/identity"
)

// podKind is a pod that nobody can suspend: a plain one, a notebook's, a
// pipeline step's. It exists before it is admitted, and waits at the gate.
type podKind struct{ Options }

var _ Kind = podKind{}

func (podKind) GroupVersionKind() schema.GroupVersionKind { return identity.PodGVK }

func (podKind) New() client.Object { return &corev1.Pod{} }

// Read implements Kind. r must know LocalQueues, and the metadata of keepers.
func (k podKind) Read(ctx context.Context, r client.Reader, obj client.Object) (*Job, bool, *reason.Reason, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, false, nil, fmt.Errorf("a %T was given where a Pod is read", obj)
	}
	if owner, own := PodJob(pod); !own || owner.GroupVersionKind != identity.PodGVK {
		return nil, false, nil, nil
	}
	job := newJob(identity.PodGVK, pod)
	keeper := KeeperOf(pod)
	if err := k.inherit(ctx, r, job, keeper, pod); err != nil {
		return nil, false, nil, err
	}
	queue, no := job.Queue, (*reason.Reason)(nil)
	if queue == "" {
		var err error
		queue, no, err = k.queueOfPods(ctx, r, pod.Namespace, pod)
		if err != nil || (queue == "" && no == nil) {
			return nil, false, nil, err
		}
	}
	job.Queue, job.Gated, job.Pods = queue, true, []*corev1.Pod{pod}
	job.PodOwnerUID, job.Keeper = pod.UID, keeper
	job.Suspended = pod.Spec.NodeName == ""
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		job.Finish = &Finish{Succeeded: true, Message: "The pod succeeded"}
	case corev1.PodFailed:
		job.Finish = &Finish{Message: "The pod failed: " + pod.Status.Message}
	}
	if job.over() {
		return job, true, nil, nil
	}
	set, wrong := podSetOf(kueue.DefaultPodSetName, pod, 1)
	job.PodSets = []PodSet{set}
	job.PodPriorityClass = podPriorityClass(job.PodSets)
	if no == nil {
		no = wrong
	}
	if no == nil {
		no = k.foreignPod(pod)
	}
	return job, true, no, nil
}

// Suspend implements Kind: a pod on its node is evicted, which ends it; one
// that waits is stopped by its gate alone.
func (podKind) Suspend(ctx context.Context, c client.Client, obj client.Object) error {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("a %T was given where a Pod is evicted", obj)
	}
	return evictPods(ctx, c, []*corev1.Pod{pod})
}

// Resume implements Kind: what a waiting pod can still be given are
// tolerations.
func (podKind) Resume(ctx context.Context, c client.Client, obj client.Object, infos []PodSetInfo) error {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("a %T was given where a Pod is resumed", obj)
	}
	for i := range infos {
		if err := tolerate(ctx, c, pod, infos[i].Tolerations); err != nil {
			return err
		}
	}
	return nil
}

// podSetOf is count pods like this one, as their author wrote them.
func podSetOf(name kueue.PodSetReference, pod *corev1.Pod, count int32) (PodSet, *reason.Reason) {
	set := PodSet{
		Name: string(name), Count: count, Completions: count, PodsPerReplica: count,
		Template: corev1.PodTemplateSpec{Spec: *pod.Spec.DeepCopy()},
		Deadline: pod.Spec.ActiveDeadlineSeconds,
	}
	set.Template.Labels, set.Template.Annotations = pod.Labels, pod.Annotations
	set.Template.Spec.NodeName = ""
	if _, err := restore(&set.Template); err != nil {
		return set, reason.New(reason.Misconfigured, "pod %s: %v", pod.Name, err)
	}
	var no *reason.Reason
	set.Topology, no = topologyOf("pod "+pod.Name, set.Template.Annotations, kueue.PodSetTopologyRequest{PodIndexLabel: new(kueue.PodGroupPodIndexLabel)})
	return set, no
}

// foreignPod is the reason why a pod cannot be placed by Muster.
func (o Options) foreignPod(pod *corev1.Pod) *reason.Reason {
	if o.SchedulerNames.Has(pod.Spec.SchedulerName) {
		return nil
	}
	if pod.Spec.SchedulerName == corev1.DefaultSchedulerName {
		// The API server writes that name where the user wrote none.
		return reason.New(reason.ForeignScheduler, "pod %s has the schedulerName %s, which is not Muster's: create it with one of Muster's (%s)",
			pod.Name, corev1.DefaultSchedulerName, profiles(o.SchedulerNames))
	}
	return reason.New(reason.ForeignScheduler, "pod %s names the scheduler %s, not one of Muster's (%s)",
		pod.Name, pod.Spec.SchedulerName, profiles(o.SchedulerNames))
}

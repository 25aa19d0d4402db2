package scheduling

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/workload"
)

// memberReader reads the API, and knows which pods belong to a group by something
// by which the API server selects none.
type memberReader struct {
	client.Reader
	// pods are the scheduler's own, which have not ended.
	pods corelisters.PodLister
	// known are the groups that may be read from memory; nil has the API asked always.
	known *groupPods
}

// List implements client.Reader. Pods that are asked for by MemberField and no label
// are those that the scheduler's informer has, and from the API those that have
// succeeded; pods that have failed are not among them.
func (r memberReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	keys := keysAsked(&o)
	pods, ok := list.(*corev1.PodList)
	if len(keys) == 0 || !ok {
		return r.Reader.List(ctx, list, opts...)
	}
	if all, whole := r.known.all(keys[0]); whole {
		pods.Items = slices.Grow(pods.Items, len(all))
		for _, pod := range all {
			pods.Items = append(pods.Items, *pod)
		}
		return nil
	}
	answer := r.known.ask(keys)
	if o.LabelSelector == nil || o.LabelSelector.Empty() {
		return r.listMembers(ctx, pods, o.Namespace, keys[0], answer)
	}
	// The API server knows the label.
	o.FieldSelector = nil
	if err := r.Reader.List(ctx, pods, &o); err != nil {
		return err
	}
	answer(slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	}))
	return nil
}

// listMembers lists the pods of a group that is named by no label.
func (r memberReader) listMembers(ctx context.Context, pods *corev1.PodList, namespace, group string, answer func(ended bool)) error {
	live, err := r.pods.Pods(namespace).List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	// It is asked second, so that one that ends meanwhile is not missed.
	over := &corev1.PodList{}
	if err := r.Reader.List(ctx, over, client.InNamespace(namespace), client.MatchingFields{"status.phase": string(corev1.PodSucceeded)}); err != nil {
		return fmt.Errorf("listing pods that have succeeded: %w", err)
	}
	ended := map[types.UID]bool{}
	for i := range over.Items {
		if pod := &over.Items[i]; isMember(pod, group) {
			ended[pod.UID] = true
			pods.Items = append(pods.Items, *pod)
		}
	}
	for _, pod := range live {
		if isMember(pod, group) && !ended[pod.UID] {
			pods.Items = append(pods.Items, *pod)
		}
	}
	answer(len(ended) > 0)
	return nil
}

// isMember says that a pod belongs to the group with that UID.
func isMember(pod *corev1.Pod, group string) bool {
	owner, ok := workload.PodJob(pod)
	return ok && string(owner.UID) == group
}

// part has the waiting pods of a group start one by one whose object says so. They
// are read as pods without a group when that is written on them. Those of other
// schedulers are left alone, unless they have a queue.
func (j *Jobs) part(ctx context.Context, g *workload.PodGroup) error {
	var left []*corev1.Pod
	for _, pod := range g.Pods {
		queued := pod.Labels[workload.QueueLabel] != "" || g.Labels[workload.QueueLabel] != ""
		if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || (!queued && !j.served.Has(pod.Spec.SchedulerName)) {
			left = append(left, pod)
		} else if err := g.Part(ctx, j.client, pod); err != nil {
			return err
		}
	}
	if len(left) > 0 {
		// What they take is charged to nobody.
		j.ledger.LetGo(g.UID, left)
	}
	return nil
}

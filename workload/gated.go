package workload

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

// Unqueued says what happens to GPU pods without a queue.
type Unqueued string

const (
	// UnqueuedDefault sends them to the LocalQueue named "default" of their
	// namespace; where there is none they run.
	UnqueuedDefault Unqueued = "default-queue"
	// UnqueuedRun lets them run on room that nobody holds, charged to nobody.
	UnqueuedRun Unqueued = "run"
	// UnqueuedHold keeps them waiting, with the reason.
	UnqueuedHold Unqueued = "hold"
)

// DefaultQueue is the LocalQueue for jobs that name none, as in Kueue, in a namespace
// that does not name another one in DefaultQueueAnnotation.
const DefaultQueue = "default"

// DefaultQueueAnnotation of a Namespace names the LocalQueue for its jobs that name
// none.
const DefaultQueueAnnotation = "muster.dev/default-queue"

// DefaultQueueOf is the LocalQueue for jobs of a namespace that name none, which need
// not exist.
func DefaultQueueOf(namespace metav1.Object) string {
	return cmp.Or(namespace.GetAnnotations()[DefaultQueueAnnotation], DefaultQueue)
}

// roleAnnotation is where Kueue notes the role of a pod that it manages.
const roleAnnotation = "kueue.x-k8s.io/role-hash"

// roleLength is the number of hexadecimal digits in the name of a role.
const roleLength = 8

// RoleOf names the role that a pod has in its group: pods of one role can take
// each other's place. It is a hash of what decides where the pod may run and
// how much it takes, without what Resume has added.
func RoleOf(pod *corev1.Pod) string {
	if role := pod.Annotations[roleAnnotation]; role != "" {
		// A pod changes when Kueue lets it go, so Kueue has noted its role before.
		return role
	}
	// What is taken out is taken out of copies.
	template := corev1.PodTemplateSpec{Spec: pod.Spec}
	template.Annotations = pod.Annotations
	// A spoiled annotation is reported where the job is read.
	_, _ = restore(&template)
	s := &template.Spec
	type container struct {
		Resources corev1.ResourceRequirements
		Ports     []corev1.ContainerPort
		Restart   *corev1.ContainerRestartPolicy
	}
	of := func(containers []corev1.Container) []container {
		out := make([]container, len(containers))
		for i, c := range containers {
			out[i] = container{c.Resources, c.Ports, c.RestartPolicy}
		}
		return out
	}
	body, err := json.Marshal([]any{
		of(s.InitContainers), of(s.Containers), s.Resources, s.Overhead, s.RuntimeClassName, s.NodeSelector, s.Affinity, s.Tolerations,
		s.TopologySpreadConstraints, s.ResourceClaims, s.SchedulerName, s.PriorityClassName,
	})
	if err != nil {
		// A pod was decoded from JSON. Should it not go back, it is like no other.
		body = []byte(pod.UID)
	}
	hash := sha256.Sum256(body)
	return hex.EncodeToString(hash[:])[:roleLength]
}

// SameSize says that a pod asks for the resources that pods of the template ask for.
func SameSize(pod *corev1.Pod, template *corev1.PodTemplateSpec) bool {
	return asksInSameWords(&pod.Spec, &template.Spec) || equality.Semantic.DeepEqual(Requests(&corev1.PodTemplateSpec{Spec: pod.Spec}), Requests(template))
}

// asksGPU says that the pod asks for a GPU in any way.
func (o Options) asksGPU(pod *corev1.Pod) bool {
	return AsksGPU(pod) || (len(pod.Spec.ResourceClaims) > 0 && o.ClaimsGPU != nil && o.ClaimsGPU(pod))
}

// queueOfPods is the queue of pods without an owner that Muster manages: the
// one that they name, else by the mode for those that name none. No queue and
// no reason means that they are not managed.
func (o Options) queueOfPods(ctx context.Context, r client.Reader, namespace string, pods ...*corev1.Pod) (string, *reason.Reason, error) {
	for _, pod := range pods {
		if queue := pod.Labels[QueueLabel]; queue != "" {
			return queue, nil, nil
		}
	}
	if !slices.ContainsFunc(pods, o.asksGPU) || !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return o.SchedulerNames.Has(p.Spec.SchedulerName) }) {
		return "", nil, nil
	}
	switch o.Unqueued {
	case UnqueuedRun:
		return "", nil, nil
	case UnqueuedHold:
		return "", reason.New(reason.NoQueue, "it asks for GPUs and names no queue; set the label %s", QueueLabel), nil
	}
	queue, err := defaultQueueOf(ctx, r, namespace)
	if err != nil {
		return "", nil, err
	}
	err = r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: queue}, &kueue.LocalQueue{})
	switch {
	case err == nil:
		return queue, nil, nil
	case apierrors.IsNotFound(err), apimeta.IsNoMatchError(err):
		return "", nil, nil
	}
	return "", nil, fmt.Errorf("reading LocalQueue %s/%s: %w", namespace, queue, err)
}

// defaultQueueOf is DefaultQueueOf the namespace of that name.
func defaultQueueOf(ctx context.Context, r client.Reader, name string) (string, error) {
	namespace := &corev1.Namespace{}
	if err := r.Get(ctx, client.ObjectKey{Name: name}, namespace); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading namespace %s: %w", name, err)
	}
	return DefaultQueueOf(namespace), nil
}

// evictPods asks the API to evict those of the pods that are on nodes, each of
// them, whatever becomes of the others. A disruption budget can refuse it for
// now, which is worth another try; the error names the pod and the budget.
func evictPods(ctx context.Context, c client.Client, pods []*corev1.Pod) error {
	var refused []error
	for _, pod := range pods {
		if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		eviction := &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
		}
		err := c.SubResource("eviction").Create(ctx, pod, eviction)
		if client.IgnoreNotFound(err) != nil {
			refused = append(refused, fmt.Errorf("evicting pod %s/%s: %w%s", pod.Namespace, pod.Name, err, budgetOf(err)))
		}
	}
	return errors.Join(refused...)
}

// budgetOf is what the API says of the disruption budget that refuses an
// eviction, as the end of a sentence: its message alone does not name it.
func budgetOf(err error) string {
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok {
		return ": " + cause.Message
	}
	return ""
}

// tolerateAll adds the tolerations that waiting pods of each pod set lack; setOf
// names a pod's.
func tolerateAll(ctx context.Context, c client.Client, pods []*corev1.Pod, infos []PodSetInfo, setOf func(*corev1.Pod) string) error {
	for _, pod := range pods {
		set := setOf(pod)
		at := slices.IndexFunc(infos, func(i PodSetInfo) bool { return i.Name == set })
		if at < 0 {
			continue
		}
		if err := tolerate(ctx, c, pod, infos[at].Tolerations); err != nil {
			return err
		}
	}
	return nil
}

// tolerate adds the tolerations that a waiting pod lacks, with a note of them.
func tolerate(ctx context.Context, c client.Client, pod *corev1.Pod, tolerations []corev1.Toleration) error {
	if pod.Spec.NodeName != "" || Tolerates(pod, tolerations) {
		return nil
	}
	template := corev1.PodTemplateSpec{Spec: *pod.Spec.DeepCopy()}
	template.Annotations = pod.Annotations
	if _, err := restore(&template); err != nil {
		return fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	in, err := injectionOf(&PodSetInfo{Tolerations: tolerations}, &template)
	if err == nil {
		err = in.inject(&template)
	}
	if err != nil {
		return fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	want := pod.DeepCopy()
	// The API server lets tolerations be added to a pod, and none be taken away.
	want.Spec.Tolerations = union(pod.Spec.Tolerations, tolerations)
	want.Annotations = template.Annotations
	if err := c.Patch(ctx, want, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("adding tolerations to pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// Tolerates says that the pod has all of the tolerations.
func Tolerates(pod *corev1.Pod, tolerations []corev1.Toleration) bool {
	return !slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool { return !hasToleration(pod.Spec.Tolerations, t) })
}

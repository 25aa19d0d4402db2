package rendering

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"

	"github.com/muster-gpu/muster/api/reason"
)

// Additions are what a namespace and its cluster add to a pod that is created.
type Additions struct {
	// LimitRanges are those of the namespace. Where several give a default for
	// the same resource, the first one has it.
	LimitRanges []corev1.LimitRange
	// RuntimeClass is the one that the template names, nil if it names none.
	RuntimeClass *nodev1.RuntimeClass
	// PriorityClass is the one that the template names, or else the cluster's
	// default; nil if there is neither.
	PriorityClass *schedulingv1.PriorityClass
}

// tolerationSeconds is how long a pod stays on a node that is not ready or
// cannot be reached: the API server's default.
const tolerationSeconds int64 = 300

// Local is the pod that the API server's own admission makes of a template, in
// the order in which it does: defaults, LimitRanges, priority, default
// tolerations, RuntimeClass. The error is a *reason.Reason where the API server
// would refuse the pod.
func Local(namespace string, t *corev1.PodTemplateSpec, add Additions) (*corev1.Pod, error) {
	pod := bare(namespace, t)
	corev1defaults.SetObjectDefaults_Pod(pod)
	if err := addRequests(pod, add.LimitRanges); err != nil {
		return nil, err
	}
	addPriority(pod, add.PriorityClass)
	addTolerations(pod)
	if err := addRuntimeClass(pod, add.RuntimeClass); err != nil {
		return nil, err
	}
	return essential(pod), nil
}

// bare is a pod as a controller would send it to the API server.
func bare(namespace string, t *corev1.PodTemplateSpec) *corev1.Pod {
	t = t.DeepCopy()
	pod := &corev1.Pod{Spec: t.Spec}
	pod.Namespace, pod.Labels, pod.Annotations = namespace, t.Labels, t.Annotations
	return pod
}

// addRequests gives containers the requests and limits that they lack.
func addRequests(pod *corev1.Pod, ranges []corev1.LimitRange) error {
	if len(ranges) == 0 {
		return nil
	}
	internal := &core.Pod{}
	if err := corev1defaults.Convert_v1_Pod_To_core_Pod(pod, internal, nil); err != nil {
		return fmt.Errorf("converting a pod of namespace %s: %w", pod.Namespace, err)
	}
	for i := range ranges {
		if err := limitranger.PodMutateLimitFunc(&ranges[i], internal); err != nil {
			return fmt.Errorf("applying LimitRange %s/%s: %w", ranges[i].Namespace, ranges[i].Name, err)
		}
	}
	if err := corev1defaults.Convert_core_Pod_To_v1_Pod(internal, pod, nil); err != nil {
		return fmt.Errorf("converting a pod of namespace %s: %w", pod.Namespace, err)
	}
	return nil
}

func addPriority(pod *corev1.Pod, class *schedulingv1.PriorityClass) {
	pod.Spec.Priority = new(int32)
	policy := corev1.PreemptLowerPriority
	if class != nil {
		pod.Spec.PriorityClassName, *pod.Spec.Priority = class.Name, class.Value
		if class.PreemptionPolicy != nil {
			policy = *class.PreemptionPolicy
		}
	}
	pod.Spec.PreemptionPolicy = &policy
}

func addTolerations(pod *corev1.Pod) {
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		has := slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		})
		if !has {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(tolerationSeconds),
			})
		}
	}
}

func addRuntimeClass(pod *corev1.Pod, class *nodev1.RuntimeClass) error {
	if class == nil {
		return nil
	}
	if class.Overhead != nil {
		pod.Spec.Overhead = maps.Clone(class.Overhead.PodFixed)
	}
	if class.Scheduling == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(class.Scheduling.NodeSelector)) {
		value := class.Scheduling.NodeSelector[key]
		if has, found := pod.Spec.NodeSelector[key]; found && has != value {
			return reason.New(reason.Misconfigured, "RuntimeClass %s selects nodes with %s=%s, but the pods select %s=%s", class.Name, key, value, key, has)
		}
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[key] = value
	}
	for _, t := range class.Scheduling.Tolerations {
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool { return equality.Semantic.DeepEqual(o, t) }) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
		}
	}
	return nil
}

package identity

import (
	"cmp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// The labels, annotations and fields by which pods form a group: those of Kueue, of
// the coscheduling plugin, of Kubernetes and of Volcano.
const (
	// KueueGroupLabel names the group.
	KueueGroupLabel = "kueue.x-k8s.io/pod-group-name"
	// PodGroupLabel names a PodGroup of scheduling.x-k8s.io.
	PodGroupLabel = "scheduling.x-k8s.io/pod-group"
	// VolcanoGroupAnnotation, or the older one, names a group of Volcano's; it is
	// one where VolcanoMinMemberAnnotation says how many pods of it start together.
	VolcanoGroupAnnotation     = "scheduling.volcano.sh/group-name"
	VolcanoOldGroupAnnotation  = "scheduling.k8s.io/group-name"
	VolcanoMinMemberAnnotation = "scheduling.volcano.sh/group-min-member"
	// AloneAnnotation marks a pod of a PodGroup of scheduling.k8s.io whose pods do
	// not start together; it is a job of its own.
	AloneAnnotation = "muster.dev/starts-alone"
)

// PodGroupGVK is the PodGroup of the coscheduling plugin.
var PodGroupGVK = schema.GroupVersionKind{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Kind: "PodGroup"}

// NativePodGroupGVK is Kubernetes' own PodGroup.
var NativePodGroupGVK = schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1beta1", Kind: "PodGroup"}

// VolcanoGroupGVK is Volcano's PodGroup, of which nothing is read but what pods say.
var VolcanoGroupGVK = schema.GroupVersionKind{Group: "scheduling.volcano.sh", Version: "v1beta1", Kind: "PodGroup"}

// KueueGroupGVK stands for a group that only its pods' labels make.
var KueueGroupGVK = kueue.SchemeGroupVersion.WithKind("PodGroup")

// GroupUID identifies a group by its kind and name.
func GroupUID(gvk schema.GroupVersionKind, key types.NamespacedName) types.UID {
	return types.UID(gvk.Group + "/" + key.Namespace + "/" + key.Name)
}

// SchedulingGroup is the PodGroup of scheduling.k8s.io that a pod names; empty if
// it names none.
func SchedulingGroup(pod *corev1.Pod) string {
	if group := pod.Spec.SchedulingGroup; group != nil {
		return ptr.Deref(group.PodGroupName, "")
	}
	return ""
}

// VolcanoGroup is the group that a pod names as Volcano has it, and how many pods
// of it start together, 0 where the pod does not say.
func VolcanoGroup(pod *corev1.Pod) (name string, least int64) {
	name = cmp.Or(pod.Annotations[VolcanoGroupAnnotation], pod.Annotations[VolcanoOldGroupAnnotation])
	n, err := strconv.ParseUint(pod.Annotations[VolcanoMinMemberAnnotation], 10, 31)
	if name == "" || err != nil {
		return name, 0
	}
	return name, int64(n)
}

// GroupOf is the group that a pod names, and its kind; empty if it names none. Of a
// group that only the labels of its pods make, or an annotation, there is no object.
func GroupOf(pod *corev1.Pod) (schema.GroupVersionKind, string) {
	if name := pod.Labels[KueueGroupLabel]; name != "" {
		return KueueGroupGVK, name
	}
	if group := SchedulingGroup(pod); group != "" {
		if pod.Annotations[AloneAnnotation] == "true" {
			return schema.GroupVersionKind{}, ""
		}
		return NativePodGroupGVK, group
	}
	if name := pod.Labels[PodGroupLabel]; name != "" {
		return PodGroupGVK, name
	}
	if name, least := VolcanoGroup(pod); least > 0 && pod.Labels[QueueLabel] != "" {
		return VolcanoGroupGVK, name
	}
	return schema.GroupVersionKind{}, ""
}

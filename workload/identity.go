package workload

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/workload/identity"
)

// What a pod says of itself is read by package identity, which programs link that need
// nothing else of jobs.
type (
	// Owner is that of package identity.
	Owner = identity.Owner
	// Slot is that of package identity.
	Slot = identity.Slot
)

// The names of package identity.
const (
	QueueLabel                 = identity.QueueLabel
	TrainingJobLabel           = identity.TrainingJobLabel
	KueueGroupLabel            = identity.KueueGroupLabel
	PodGroupLabel              = identity.PodGroupLabel
	VolcanoGroupAnnotation     = identity.VolcanoGroupAnnotation
	VolcanoOldGroupAnnotation  = identity.VolcanoOldGroupAnnotation
	VolcanoMinMemberAnnotation = identity.VolcanoMinMemberAnnotation
	AloneAnnotation            = identity.AloneAnnotation

	Unnumbered = identity.Unnumbered
	AnySlot    = identity.AnySlot

	MainPodSet   = identity.MainPodSet
	HeadPodSet   = identity.HeadPodSet
	LeaderPodSet = identity.LeaderPodSet
	WorkerPodSet = identity.WorkerPodSet
)

// The kinds of package identity.
var (
	ReplicaGVK        = identity.ReplicaGVK
	PodGroupGVK       = identity.PodGroupGVK
	NativePodGroupGVK = identity.NativePodGroupGVK
)

// PodJob is identity.PodJob.
func PodJob(pod *corev1.Pod) (owner Owner, ok bool) { return identity.PodJob(pod) }

// SlotOf is identity.SlotOf.
func SlotOf(pod *corev1.Pod) (podOwner types.UID, slot Slot, ok bool) { return identity.SlotOf(pod) }

// GroupOf is identity.GroupOf.
func GroupOf(pod *corev1.Pod) (schema.GroupVersionKind, string) { return identity.GroupOf(pod) }

// SchedulingGroup is identity.SchedulingGroup.
func SchedulingGroup(pod *corev1.Pod) string { return identity.SchedulingGroup(pod) }

// AsksGPU is identity.AsksGPU.
func AsksGPU(pod *corev1.Pod) bool { return identity.AsksGPU(pod) }

// WorkloadName is identity.WorkloadName.
func WorkloadName(o Owner) string { return identity.WorkloadName(o) }

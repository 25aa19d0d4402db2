package workload

import (
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload/identity"
)

// JobUIDLabel on a Workload holds its owner's UID, as Kueue writes it.
const JobUIDLabel = "kueue.x-k8s.io/job-uid"

// maxPodSets is what the Workload API allows.
const maxPodSets = 18

// groupAnnotation marks the Workload of a group of pods, as Kueue does;
// groupNameAnnotation says which kind of group and its name.
const (
	groupAnnotation     = "kueue.x-k8s.io/is-group-workload"
	groupNameAnnotation = "muster.dev/pod-group"
)

// The annotations by which the Workload of a replica of a LeaderWorkerSet says
// whose it is, as Kueue writes them.
const (
	ownerKindAnnotation  = "kueue.x-k8s.io/job-owner-gvk"
	ownerNameAnnotation  = "kueue.x-k8s.io/job-owner-name"
	ownerIndexAnnotation = "kueue.x-k8s.io/component-workload-index"
)

// WorkloadName is the name of the job's Workload.
func (j *Job) WorkloadName() string {
	o := j.Owner
	if o.GroupVersionKind == ReplicaGVK && j.WorkloadOwner != nil {
		o.UID = j.WorkloadOwner.UID
	}
	return WorkloadName(o)
}

// WorkloadNameOf is the name of the Workload of an object that owner names; one
// that cannot be read as a Job has none that is known otherwise.
func WorkloadNameOf(owner Owner, obj client.Object) string {
	if g, ok := obj.(*Replica); ok && g.Set != nil {
		owner.UID = g.Set.GetUID()
	}
	return WorkloadName(owner)
}

// NewWorkload is the Workload that stands for a job, not yet written anywhere:
// owned by the job's owner, active, without status. priority and class are
// those of Priority. The job must have at least one pod set, which a Job read
// without a reason has. A maximum execution time that cannot be read is left out.
func NewWorkload(job *Job, priority int32, class *kueue.PriorityClassRef) *kueue.Workload {
	limit, _ := MaxExecutionSeconds(job)
	return &kueue.Workload{
		TypeMeta:   metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "Workload"},
		ObjectMeta: workloadMeta(job),
		Spec: kueue.WorkloadSpec{
			Active:           new(true),
			QueueName:        kueue.LocalQueueName(job.Queue),
			Priority:         &priority,
			PriorityClassRef: class,
			PodSets:          workloadPodSets(job),

			MaximumExecutionTimeSeconds: limit,
		},
	}
}

func workloadMeta(job *Job) metav1.ObjectMeta {
	o := job.Owner
	meta := metav1.ObjectMeta{Namespace: o.Namespace, Name: job.WorkloadName()}
	if isGroup(o.GroupVersionKind) {
		meta.Annotations = map[string]string{groupAnnotation: "true", groupNameAnnotation: o.Group + "/" + o.Name}
		if job.WorkloadOwner != nil {
			meta.Labels = map[string]string{JobUIDLabel: string(job.WorkloadOwner.UID)}
			meta.Annotations[ownerKindAnnotation] = o.GroupVersionKind.String()
			meta.Annotations[ownerNameAnnotation] = job.WorkloadOwner.Name
			meta.Annotations[ownerIndexAnnotation] = strings.TrimPrefix(o.Name, job.WorkloadOwner.Name+"-")
			meta.OwnerReferences = []metav1.OwnerReference{*job.WorkloadOwner}
			return meta
		}
		for _, pod := range job.Pods {
			meta.OwnerReferences = append(meta.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID})
		}
		return meta
	}
	meta.Labels = map[string]string{JobUIDLabel: string(o.UID)}
	meta.OwnerReferences = []metav1.OwnerReference{{
		APIVersion:         o.GroupVersion().String(),
		Kind:               o.Kind,
		Name:               o.Name,
		UID:                o.UID,
		Controller:         new(true),
		BlockOwnerDeletion: new(true),
	}}
	return meta
}

// OwnerOf is the owner of a Workload: its controller, or the group of pods that
// it was made for. ok is false for a Workload of neither.
func OwnerOf(wl *kueue.Workload) (owner Owner, ok bool) {
	owner.Namespace = wl.Namespace
	if ref := metav1.GetControllerOfNoCopy(wl); ref != nil {
		owner.GroupVersionKind = schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
		owner.Name, owner.UID = ref.Name, ref.UID
		return owner, true
	}
	if wl.Annotations[groupAnnotation] != "true" {
		return Owner{}, false
	}
	owner.GroupVersionKind, owner.Name = identity.KueueGroupGVK, wl.Name
	if wl.Annotations[ownerKindAnnotation] == ReplicaGVK.String() {
		owner.GroupVersionKind = ReplicaGVK
		owner.Name = wl.Annotations[ownerNameAnnotation] + "-" + wl.Annotations[ownerIndexAnnotation]
	}
	if group, name, found := strings.Cut(wl.Annotations[groupNameAnnotation], "/"); found {
		owner.Name = name
		for _, gvk := range []schema.GroupVersionKind{PodGroupGVK, NativePodGroupGVK, identity.VolcanoGroupGVK, ReplicaGVK} {
			if gvk.Group == group {
				owner.GroupVersionKind = gvk
			}
		}
	}
	owner.UID = identity.GroupUID(owner.GroupVersionKind, owner.NamespacedName)
	return owner, true
}

// AddOwners adds the pods of a group that do not own its Workload yet, and
// reports whether there were any. A Workload goes with the last pod that owns it.
func AddOwners(wl *kueue.Workload, job *Job) bool {
	added := false
	if isGroup(job.Owner.GroupVersionKind) {
		for _, ref := range workloadMeta(job).OwnerReferences {
			if !slices.ContainsFunc(wl.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == ref.UID }) {
				wl.OwnerReferences, added = append(wl.OwnerReferences, ref), true
			}
		}
	}
	return added
}

func isGroup(gvk schema.GroupVersionKind) bool {
	switch gvk {
	case identity.KueueGroupGVK, PodGroupGVK, NativePodGroupGVK, identity.VolcanoGroupGVK, ReplicaGVK:
		return true
	}
	return false
}

func workloadPodSets(job *Job) []kueue.PodSet {
	sets := make([]kueue.PodSet, len(job.PodSets))
	for i := range job.PodSets {
		set := &job.PodSets[i]
		sets[i] = kueue.PodSet{
			Name:  kueue.NewPodSetReference(set.Name),
			Count: set.Asks(),
			// The API allows no other metadata in a Workload's template.
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels:      workloadLabels(set.Template.Labels),
					Annotations: set.Template.Annotations,
				},
				Spec: set.Template.Spec,
			},
			TopologyRequest: set.Topology,
		}
		if set.MinCount > 0 {
			sets[i].MinCount = &set.MinCount
		}
		sets[i] = *sets[i].DeepCopy()
	}
	return sets
}

// workloadLabels are the labels of a pod template as Kueue writes them into a
// Workload: without those by which the Job controller knows its own pods, the
// newer name of the Job excepted.
func workloadLabels(labels map[string]string) map[string]string {
	kept := maps.Clone(labels)
	maps.DeleteFunc(kept, func(key, _ string) bool { return key != batchv1.JobNameLabel && IsJobTracking(key) })
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// IsJobTracking says that a label is one of those that the API server gives to
// the pod template of every batch Job, so that the Job's pods are told from all
// others. They have other values in every Job.
func IsJobTracking(label string) bool {
	switch label {
	case batchv1.JobNameLabel, batchv1.ControllerUidLabel, legacyJobName, legacyControllerUID:
		return true
	}
	return false
}

// SamePodSets says that the Workload still describes the job's pods. Where it
// does not, the job was changed after the Workload was made, and a Workload's
// pod sets cannot be changed: it has to be made anew.
func SamePodSets(wl *kueue.Workload, job *Job) bool {
	if len(wl.Spec.PodSets) != len(job.PodSets) {
		return false
	}
	for i := range job.PodSets {
		have, want := &wl.Spec.PodSets[i], &job.PodSets[i]
		if have.Name != kueue.NewPodSetReference(want.Name) || have.Count != want.Asks() || ptr.Deref(have.MinCount, 0) != want.MinCount ||
			!equality.Semantic.DeepEqual(have.Template.Labels, workloadLabels(want.Template.Labels)) ||
			!equality.Semantic.DeepEqual(have.Template.Annotations, want.Template.Annotations) ||
			!equality.Semantic.DeepEqual(have.Template.Spec, want.Template.Spec) {
			return false
		}
	}
	return true
}

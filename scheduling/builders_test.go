package scheduling

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

func node(name string, gpus int64) *corev1.Node {
	room := corev1.ResourceList{
		gpuResource:         *resource.NewQuantity(gpus, resource.DecimalSI),
		corev1.ResourceCPU:  resource.MustParse("100"),
		corev1.ResourcePods: resource.MustParse("100"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Allocatable: room, Capacity: room},
	}
}

// set is count pods of gpus GPUs each that start in phase.
func set(name string, phase int, count int32, gpus int64) workload.PodSet {
	return workload.PodSet{
		Name: name, Phase: phase, Count: count, Completions: count, PodsPerReplica: count, Topology: &kueue.PodSetTopologyRequest{},
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			SchedulerName: corev1.DefaultSchedulerName,
			Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
				Limits:   corev1.ResourceList{gpuResource: *resource.NewQuantity(gpus, resource.DecimalSI)},
				Requests: corev1.ResourceList{gpuResource: *resource.NewQuantity(gpus, resource.DecimalSI)},
			}}},
		}},
	}
}

// exclusive makes a pod set one of replicas that each have a domain to
// themselves.
func exclusive(ps workload.PodSet, replicas int32) workload.PodSet {
	ps.PodsPerReplica = ps.Count / replicas
	ps.Exclusive.TopologyKey = "rack"
	return stamped(ps)
}

// stamped makes a pod set one of a JobSet whose controller is there.
func stamped(ps workload.PodSet) workload.PodSet {
	ps.Stamp = workload.Stamp{
		Namespace: namespace, JobPrefix: "train-" + ps.Name + "-", Indexed: true,
		Labels: map[string]string{jobset.JobSetNameKey: "train", jobset.ReplicatedJobNameKey: ps.Name},
	}
	return ps
}

// ofAttempt is the pod of a JobSet that has restarted.
func ofAttempt(n int32, p *corev1.Pod) *corev1.Pod {
	p.Labels[constants.RestartsKey] = fmt.Sprint(n)
	return p
}

// job is a suspended JobSet of queue main; its pods carry its UID.
func job(name string, sets ...workload.PodSet) *workload.Job {
	uid := types.UID(name + "-uid")
	return &workload.Job{
		Owner: workload.Owner{
			GroupVersionKind: jobset.SchemeGroupVersion.WithKind("JobSet"),
			NamespacedName:   types.NamespacedName{Namespace: namespace, Name: name},
			UID:              uid,
		},
		Queue: "main", PodOwnerUID: uid, Created: epoch0, Suspended: true, PodSets: sets,
	}
}

// again is another job of the same name.
func again(j *workload.Job, uid types.UID) *workload.Job {
	return with(j, func(j *workload.Job) { j.Owner.UID, j.PodOwnerUID = uid, uid })
}

// with is a copy of j, changed.
func with(j *workload.Job, change func(*workload.Job)) *workload.Job {
	c := *j
	c.PodSets = slices.Clone(j.PodSets)
	change(&c)
	return &c
}

func running(j *workload.Job) *workload.Job {
	return with(j, func(j *workload.Job) { j.Suspended = false })
}

func suspended(j *workload.Job) *workload.Job {
	return with(j, func(j *workload.Job) { j.Suspended = true })
}

func isTrue(kind string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test"})
	}
}

// pod is the pod of slot index of a job's pod set, as its Job makes it; index
// -1 is a pod that its Job does not number.
func pod(j *workload.Job, podSet string, index int32, uid string) *corev1.Pod {
	ps := j.PodSet(podSet)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: j.Owner.Namespace, Name: uid, UID: types.UID(uid)}, Spec: *ps.Template.Spec.DeepCopy()}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "job-1", Controller: new(true)}}
	at := workload.Slot{Completion: index}
	if index >= 0 && index < ps.Count {
		at = ps.Slot(index)
	}
	p.Labels = map[string]string{jobset.JobSetUIDKey: string(j.PodOwnerUID), jobset.ReplicatedJobNameKey: podSet, jobset.JobIndexKey: fmt.Sprint(at.Replica)}
	if index >= 0 {
		p.Labels["batch.kubernetes.io/job-completion-index"] = fmt.Sprint(at.Completion)
	}
	return p
}

func onNode(p *corev1.Pod, name string) *corev1.Pod {
	p = p.DeepCopy()
	p.Spec.NodeName = name
	return p
}

func terminating(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	p.DeletionTimestamp = &metav1.Time{Time: epoch0}
	return p
}

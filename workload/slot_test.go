package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

func podWith(labels map[string]string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Labels = labels
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "job-1", Controller: new(true)}}
	return pod
}

func jobSetPod(change func(map[string]string)) *corev1.Pod {
	labels := map[string]string{
		jobset.JobSetUIDKey: "js-1", jobset.ReplicatedJobNameKey: "node",
		jobset.JobIndexKey: "2", batchv1.JobCompletionIndexAnnotation: "3",
	}
	if change != nil {
		change(labels)
	}
	return podWith(labels)
}

// jobPod is a pod that a batch Job controls, with labels and annotations.
func jobPod(labels, annotations map[string]string) *corev1.Pod {
	pod := podWith(labels)
	pod.Annotations = annotations
	return pod
}

func ownedBy(pod *corev1.Pod, apiVersion, kind string) *corev1.Pod {
	pod.OwnerReferences[0].APIVersion, pod.OwnerReferences[0].Kind = apiVersion, kind
	return pod
}

func orphan(pod *corev1.Pod) *corev1.Pod {
	pod.OwnerReferences = nil
	return pod
}

func TestSlotOf(t *testing.T) {
	set := func(key, value string) func(map[string]string) {
		return func(labels map[string]string) { labels[key] = value }
	}
	without := func(key string) func(map[string]string) {
		return func(labels map[string]string) { delete(labels, key) }
	}
	annotated := jobSetPod(without(batchv1.JobCompletionIndexAnnotation))
	annotated.Annotations = map[string]string{batchv1.JobCompletionIndexAnnotation: "7"}
	type answer struct {
		Owner types.UID
		Slot  Slot
		OK    bool
	}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want answer
	}{
		"a pod of a JobSet":                    {jobSetPod(nil), answer{"js-1", Slot{PodSet: "node", Replica: 2, Completion: 3}, true}},
		"an index that is an annotation only":  {annotated, answer{"js-1", Slot{PodSet: "node", Replica: 2, Completion: 7}, true}},
		"a Job that numbers no pods":           {jobSetPod(without(batchv1.JobCompletionIndexAnnotation)), answer{"js-1", Slot{PodSet: "node", Replica: 2, Completion: Unnumbered}, true}},
		"a pod of a Job":                       {jobPod(nil, nil), answer{"job-1", Slot{PodSet: "main", Replica: 0, Completion: Unnumbered}, true}},
		"a pod of an Indexed Job":              {jobPod(map[string]string{batchv1.JobCompletionIndexAnnotation: "5"}, nil), answer{"job-1", Slot{PodSet: "main", Replica: 0, Completion: 5}, true}},
		"a Job's index as an annotation":       {jobPod(nil, map[string]string{batchv1.JobCompletionIndexAnnotation: "5"}), answer{"job-1", Slot{PodSet: "main", Replica: 0, Completion: 5}, true}},
		"an index of the author's own":         {jobPod(map[string]string{batchv1.JobCompletionIndexAnnotation: "five"}, nil), answer{"job-1", Slot{PodSet: "main", Replica: 0, Completion: Unnumbered}, true}},
		"a Job's pod that another API owns":    {ownedBy(jobPod(nil, nil), "example.com/v1", "Job"), answer{}},
		"a Job's pod by another version":       {ownedBy(jobPod(nil, nil), "batch/v2", "Job"), answer{"job-1", Slot{PodSet: "main", Replica: 0, Completion: Unnumbered}, true}},
		"a pod of a ReplicaSet":                {ownedBy(jobPod(nil, nil), "apps/v1", "ReplicaSet"), answer{}},
		"a pod of a Job that nobody controls":  {orphan(jobPod(nil, nil)), answer{}},
		"labels on a pod of nobody":            {orphan(jobSetPod(nil)), answer{}},
		"a JobSet that writes no UID":          {jobSetPod(without(jobset.JobSetUIDKey)), answer{"job-1", Slot{PodSet: "main", Replica: 0, Completion: 3}, true}},
		"no replicated job":                    {jobSetPod(without(jobset.ReplicatedJobNameKey)), answer{}},
		"no job index":                         {jobSetPod(without(jobset.JobIndexKey)), answer{}},
		"a job index that is a word":           {jobSetPod(set(jobset.JobIndexKey, "two")), answer{}},
		"a negative job index":                 {jobSetPod(set(jobset.JobIndexKey, "-1")), answer{}},
		"a job index that is too large":        {jobSetPod(set(jobset.JobIndexKey, "4294967296")), answer{}},
		"a completion index that is a word":    {jobSetPod(set(batchv1.JobCompletionIndexAnnotation, "")), answer{}},
		"a completion index that is too large": {jobSetPod(set(batchv1.JobCompletionIndexAnnotation, "2147483648")), answer{}},
	} {
		t.Run(name, func(t *testing.T) {
			owner, slot, ok := SlotOf(tc.pod)
			if diff := cmp.Diff(tc.want, answer{owner, slot, ok}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestIndex(t *testing.T) {
	set := &PodSet{Name: "node", Count: 12, PodsPerReplica: 4}
	for index := range set.Count {
		if got, ok := set.Index(set.Slot(index)); !ok || got != index {
			t.Errorf("Index(Slot(%d)) = %d, %v", index, got, ok)
		}
	}
	for name, tc := range map[string]struct {
		slot  Slot
		index int32
		ok    bool
	}{
		"replica by replica":                    {Slot{PodSet: "node", Replica: 2, Completion: 1}, 9, true},
		"a pod without a number":                {Slot{PodSet: "node", Replica: 2, Completion: Unnumbered}, AnySlot, true},
		"a completion beyond those that run":    {Slot{PodSet: "node", Replica: 0, Completion: 4}, AnySlot, true},
		"a replica that the set does not have":  {Slot{PodSet: "node", Replica: 3, Completion: 0}, 0, false},
		"a negative replica":                    {Slot{PodSet: "node", Replica: -1, Completion: 0}, 0, false},
		"another pod set of the same job":       {Slot{PodSet: "launcher", Replica: 0, Completion: 0}, 0, false},
		"the last place of the last replica":    {Slot{PodSet: "node", Replica: 2, Completion: 3}, 11, true},
		"the first place of the first replica":  {Slot{PodSet: "node", Replica: 0, Completion: 0}, 0, true},
		"a completion of the replica before it": {Slot{PodSet: "node", Replica: 1, Completion: 3}, 7, true},
	} {
		t.Run(name, func(t *testing.T) {
			if index, ok := set.Index(tc.slot); index != tc.index || ok != tc.ok {
				t.Errorf("got %d, %v, want %d, %v", index, ok, tc.index, tc.ok)
			}
		})
	}
	if _, ok := (&PodSet{Name: "node"}).Index(Slot{PodSet: "node"}); ok {
		t.Error("a set of no pods has a slot")
	}
}

func BenchmarkSlotOf(b *testing.B) {
	pod := jobSetPod(nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, ok := SlotOf(pod); !ok {
			b.Fatal("not a slot")
		}
	}
}

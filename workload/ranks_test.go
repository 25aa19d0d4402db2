package workload

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestPodsOfAGroupHaveTheRanksOfTheirNumbers(t *testing.T) {
	numbered := func(label string, numbers ...string) []*corev1.Pod {
		var out []*corev1.Pod
		for i, n := range numbers {
			out = append(out, member(fmt.Sprint("p", i), "1", len(numbers), labelled(label, n)))
		}
		return out
	}
	named := numbered("rank", "1", "0")
	for _, pod := range named {
		pod.Annotations[kueue.PodGroupPodIndexLabelAnnotation] = "rank"
	}
	const none = AnySlot
	for name, tc := range map[string]struct {
		pods []*corev1.Pod
		want []int32
	}{
		"by Kueue's label":                      {numbered(kueue.PodGroupPodIndexLabel, "2", "0", "1"), []int32{2, 0, 1}},
		"by the label that an annotation names": {named, []int32{1, 0}},
		"by that of a StatefulSet":              {numbered(appsv1.PodIndexLabel, "1", "0"), []int32{1, 0}},
		"which may begin anywhere":              {numbered(appsv1.PodIndexLabel, "7", "6", "8"), []int32{1, 0, 2}},
		"not where one is missing":              {numbered(kueue.PodGroupPodIndexLabel, "0", "2"), []int32{none, none}},
		"not where two are the same":            {numbered(kueue.PodGroupPodIndexLabel, "0", "0"), []int32{none, none}},
		"not where one has none":                {numbered(kueue.PodGroupPodIndexLabel, "0", "first"), []int32{none, none}},
	} {
		t.Run(name, func(t *testing.T) {
			job := &Job{}
			if no := (podGroupKind{}).readSets(job, tc.pods); no != nil || len(job.PodSets) != 1 {
				t.Fatal(no, job.PodSets)
			}
			for i, pod := range tc.pods {
				_, slot, ok := SlotOf(pod)
				if got := job.PodSets[0].Preferred(slot); !ok || got != tc.want[i] {
					t.Errorf("pod %d would take the place %d, want %d", i, got, tc.want[i])
				}
			}
		})
	}
	if got := (&PodSet{Count: 2}).Preferred(Slot{Rank: 1}); got != none {
		t.Errorf("in a set without ranks it would take the place %d", got)
	}
}

func TestTheFirstRankIsKnownWhereSomePodsAreMissing(t *testing.T) {
	for name, tc := range map[string]struct {
		// numbers are those of pods on the nodes n<number>, from which slots have theirs.
		numbers []int
		slots   []string
		count   int32
		want    int32
	}{
		"one in the middle":                        {[]int{0, 2}, nil, 3, 1},
		"the first, where numbers begin at 0":      {[]int{1, 2}, nil, 3, 1},
		"the first, and nodes say so":              {[]int{7, 8}, []string{"n6", "n7", "n8"}, 3, 7},
		"the last, and nodes say so":               {[]int{6, 7}, []string{"n6", "n7", "n8"}, 3, 7},
		"all":                                      {nil, nil, 3, 0},
		"numbers that are too far from each other": {[]int{0, 3}, nil, 3, 0},
		"two pods have the same":                   {[]int{1, 1}, nil, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var pods []*corev1.Pod
			for _, n := range tc.numbers {
				pod := member(fmt.Sprint("p", n), "1", int(tc.count), labelled(kueue.PodGroupPodIndexLabel, fmt.Sprint(n)))
				pod.Spec.NodeName = fmt.Sprint("n", n)
				pods = append(pods, pod)
			}
			if got := FirstRank(pods, tc.count, tc.slots); got != tc.want {
				t.Errorf("it is %d, want %d", got, tc.want)
			}
		})
	}
}

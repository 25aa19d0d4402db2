package scheduling

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-gpu/muster/workload"
)

func TestPodCountsOtherwiseInItsPodGroupWhenItMoves(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"another condition is none of it":  {func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}} }, false},
		"one that begins to run does":      {func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, true},
		"one that is on a node does":       {func(p *corev1.Pod) { p.Spec.NodeName = "node-0" }, true},
		"one that is being deleted does":   {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, true},
		"one that leaves its group does":   {func(p *corev1.Pod) { delete(p.Labels, workload.PodGroupLabel) }, true},
		"one that has another label stays": {func(p *corev1.Pod) { p.Labels["app"] = "x" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{workload.PodGroupLabel: "g"}}}
			pod := old.DeepCopy()
			tc.change(pod)
			if got := countsOtherwise(old, pod); got != tc.want {
				t.Errorf("it is %v, want %v", got, tc.want)
			}
		})
	}
}

// TestStatusOfAPodGroupIsWrittenOnceForWhatItsPodsDo: the controller of the API may say
// something else of the same pods, and is not written against for ever.
func TestStatusOfAPodGroupIsWrittenOnceForWhatItsPodsDo(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	pod := relabel(ofGroup("", "a"), "")
	pod.Labels = map[string]string{workload.PodGroupLabel: "g"}
	group := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": int64(2)}}}
	group.SetGroupVersionKind(workload.PodGroupGVK)
	group.SetNamespace(pod.Namespace)
	group.SetName("g")
	writes := 0
	j := s.jobsOn(t, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
			writes++
			return c.Patch(ctx, obj, patch)
		},
	}, pod, group)
	j.served = sets.New(corev1.DefaultSchedulerName)
	key := client.ObjectKeyFromObject(group)
	look := func(want string, wantWrites int) {
		t.Helper()
		if err := j.writeGroupStatus(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if err := j.client.Get(t.Context(), key, group); err != nil {
			t.Fatal(err)
		}
		if phase, _, _ := unstructured.NestedString(group.Object, "status", "phase"); phase != want || writes != wantWrites {
			t.Errorf("it is %s after %d writes, want %s after %d", phase, writes, want, wantWrites)
		}
	}
	look("Pending", 1)
	if err := unstructured.SetNestedField(group.Object, "Running", "status", "phase"); err != nil {
		t.Fatal(err)
	}
	if err := j.client.Update(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	look("Running", 1)
	pod.Spec.NodeName = "node-0"
	if err := j.client.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	look("Scheduling", 2)
	if err := j.client.Delete(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	if err := j.writeGroupStatus(t.Context(), key); err != nil || len(j.groupsSaid) != 0 {
		t.Errorf("%v is kept of a group that is gone (%v)", j.groupsSaid, err)
	}
}

package scheduling

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

package scheduling

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

// gpuNodeOf is a report of a node with these devices, made at that time.
func gpuNodeOf(name string, at time.Time, devices ...v1alpha1.GPUDevice) *v1alpha1.GPUNode {
	return &v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Status:     v1alpha1.GPUNodeStatus{LastHeartbeat: metav1.NewTime(at), Devices: devices},
	}
}

func TestGPUNodesTellOfNewsOnly(t *testing.T) {
	start := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
	healthy, broken := v1alpha1.GPUDevice{UUID: "GPU-0"}, v1alpha1.GPUDevice{UUID: "GPU-0", Unhealthy: []string{"lost"}}
	tests := map[string]struct {
		// next is done a minute after the node was first told of.
		next func(*gpuNodes, time.Time)
		want []string
	}{
		"a heartbeat is no news":              {next: func(g *gpuNodes, now time.Time) { g.set(gpuNodeOf("a", now, healthy)) }, want: []string{"a"}},
		"another state of a device is":        {next: func(g *gpuNodes, now time.Time) { g.set(gpuNodeOf("a", now, broken)) }, want: []string{"a", "a"}},
		"so is that nothing is said any more": {next: func(g *gpuNodes, _ time.Time) { g.forget("a") }, want: []string{"a", "a"}},
		"and the first heartbeat after a long silence": {next: func(g *gpuNodes, now time.Time) {
			later := now.Add(time.Hour)
			g.clock.(*clocktesting.FakePassiveClock).SetTime(later)
			g.set(gpuNodeOf("a", later, healthy))
		}, want: []string{"a", "a"}},
		"a report of another node is that node's": {next: func(g *gpuNodes, now time.Time) { g.set(gpuNodeOf("b", now, healthy)) }, want: []string{"a", "b"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGPUNodes(clocktesting.NewFakePassiveClock(start))
			var told []string
			g.changed = append(g.changed, func(node string) { told = append(told, node) })
			g.set(gpuNodeOf("a", start, healthy))
			test.next(g, start.Add(time.Minute))
			if diff := cmp.Diff(test.want, told); diff != "" {
				t.Errorf("told of (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReportsOfLongAgoAndOfTheFutureAreNotFresh(t *testing.T) {
	now := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
	for age, want := range map[time.Duration]bool{
		0: true, 3 * time.Minute: true, 3*time.Minute + time.Second: false,
		-3 * time.Minute: true, -4 * time.Minute: false,
	} {
		n := &gpuNode{said: now.Add(-age)}
		if got := n.fresh(now); got != want {
			t.Errorf("a report of %s ago: fresh %t, want %t", age, got, want)
		}
	}
}

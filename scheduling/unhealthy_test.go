package scheduling

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/workload"
)

func TestANodeIsShownWithoutItsUnhealthyGPUs(t *testing.T) {
	const slice corev1.ResourceName = "nvidia.com/mig-1g.10gb"
	lost := []string{"lost"}
	heldBy := func(uid, share string) []v1alpha1.GPUHolder { return []v1alpha1.GPUHolder{{PodUID: uid, Share: share}} }
	gpus := func(n int, change func([]v1alpha1.GPUDevice)) []v1alpha1.GPUDevice {
		out := make([]v1alpha1.GPUDevice, n)
		for i := range out {
			out[i].Minor = int32(i)
		}
		change(out)
		return out
	}
	type has map[corev1.ResourceName]int64
	tests := map[string]struct {
		capacity has
		// outNow is how many the kubelet has taken out already.
		outNow  int64
		age     time.Duration
		devices []v1alpha1.GPUDevice
		want    has
	}{
		"nothing is said": {capacity: has{gpuResource: 8}, age: time.Hour, want: has{gpuResource: 8}},
		"all are healthy": {capacity: has{gpuResource: 8}, devices: gpus(8, func([]v1alpha1.GPUDevice) {}), want: has{gpuResource: 8}},
		"two are not": {capacity: has{gpuResource: 8}, devices: gpus(8, func(d []v1alpha1.GPUDevice) {
			d[3].Unhealthy, d[5].Unhealthy = lost, lost
		}), want: has{gpuResource: 6}},
		"two were not, says the last report, of an hour ago": {capacity: has{gpuResource: 8}, age: time.Hour, devices: gpus(8, func(d []v1alpha1.GPUDevice) {
			d[3].Unhealthy, d[5].Unhealthy = lost, lost
		}), want: has{gpuResource: 6}},
		"two were not, says a report of long ago": {capacity: has{gpuResource: 8}, age: time.Hour + time.Second, devices: gpus(8, func(d []v1alpha1.GPUDevice) {
			d[3].Unhealthy, d[5].Unhealthy = lost, lost
		}), want: has{gpuResource: 8}},
		"one of two is out already": {capacity: has{gpuResource: 8}, outNow: 1, devices: gpus(8, func(d []v1alpha1.GPUDevice) {
			d[3].Unhealthy, d[5].Unhealthy = lost, lost
		}), want: has{gpuResource: 6}},
		"another one is out besides": {capacity: has{gpuResource: 8}, outNow: 3, devices: gpus(8, func(d []v1alpha1.GPUDevice) {
			d[3].Unhealthy, d[5].Unhealthy = lost, lost
		}), want: has{gpuResource: 5}},
		"a pod holds one of two": {capacity: has{gpuResource: 8}, devices: gpus(8, func(d []v1alpha1.GPUDevice) {
			d[3].Unhealthy, d[5].Unhealthy = lost, lost
			d[3].Holders = heldBy("there", "")
		}), want: has{gpuResource: 7}},
		"a pod that has gone held it": {capacity: has{gpuResource: 8}, devices: gpus(8, func(d []v1alpha1.GPUDevice) {
			d[3].Unhealthy = lost
			d[3].Holders = heldBy("gone", "")
		}), want: has{gpuResource: 7}},
		"nobody knows which pod holds it": {capacity: has{gpuResource: 8}, devices: gpus(8, func(d []v1alpha1.GPUDevice) {
			d[3].Unhealthy = lost
			d[3].Holders = heldBy("", "")
		}), want: has{gpuResource: 8}},
		"all are": {capacity: has{gpuResource: 2}, devices: gpus(2, func(d []v1alpha1.GPUDevice) {
			d[0].Unhealthy, d[1].Unhealthy = lost, lost
		}), want: has{gpuResource: 0}},
		"the node advertises other GPUs than its agent knows": {capacity: has{gpuResource: 8}, devices: gpus(7, func(d []v1alpha1.GPUDevice) {
			d[3].Unhealthy = lost
		}), want: has{gpuResource: 8}},
		"each is shared out in four, and of one that is not healthy a pod has one": {capacity: has{gpuResource: 8}, devices: gpus(2, func(d []v1alpha1.GPUDevice) {
			d[1].Unhealthy = lost
			d[1].Holders = heldBy("there", "1/4")
		}), want: has{gpuResource: 5}},
		"a slice is not, one of another GPU is not because that GPU is not": {
			capacity: has{gpuResource: 1, slice: 3},
			devices: []v1alpha1.GPUDevice{
				{Minor: 0}, {Minor: 0, Profile: "1g.10gb"}, {Minor: 0, Profile: "1g.10gb", Unhealthy: lost},
				{Minor: 1, Unhealthy: lost}, {Minor: 1, Profile: "1g.10gb"},
				{Minor: 2},
			},
			want: has{gpuResource: 1, slice: 1},
		},
		"slices are advertised as GPUs": {
			capacity: has{gpuResource: 2},
			devices:  []v1alpha1.GPUDevice{{Minor: 0}, {Minor: 0, Profile: "1g.10gb"}, {Minor: 0, Profile: "1g.10gb", Unhealthy: lost}},
			want:     has{gpuResource: 1},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{Status: corev1.NodeStatus{Capacity: corev1.ResourceList{}, Allocatable: corev1.ResourceList{}}}
			n.Name = "a"
			for name, v := range test.capacity {
				n.Status.Capacity[name] = *resource.NewQuantity(v, resource.DecimalSI)
				if name == gpuResource {
					v -= test.outNow
				}
				n.Status.Allocatable[name] = *resource.NewQuantity(v, resource.DecimalSI)
			}
			before := n.DeepCopy()
			g := newGPUNodes(clocktesting.NewFakePassiveClock(epoch0))
			g.set(gpuNodeOf("a", epoch0.Add(-test.age), test.devices...))
			shown := g.withoutUnhealthy(n, func(node string, uid types.UID) bool { return node == "a" && uid == "there" })
			got := has{}
			for name, v := range shown.Status.Allocatable {
				got[name] = v.Value()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("allocatable (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, n); diff != "" {
				t.Errorf("the node itself was changed (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAnUnhealthyGPUIsNotGivenOutAgain follows a GPU that becomes unhealthy under a pod:
// the pod keeps it, its slot finds no room on the node when it has gone, and jobs that
// wait find none until the agent says that it is healthy, or nothing any more.
func TestAnUnhealthyGPUIsNotGivenOutAgain(t *testing.T) {
	s := testScene(t, 64)
	s.watched.AddNode(s.logger, node("node-0", 2))
	j := s.admitted(job("a", set("node", 0, 2, 1)), []string{"node-0", "node-0"})
	bound := s.bindAll(pods(j, "node", "first")...)
	var grown []int64
	s.nodeResized = func(_, node *corev1.Node) {
		quantity := node.Status.Allocatable[gpuResource]
		grown = append(grown, quantity.Value())
	}
	says := func(unhealthy ...string) {
		s.gpuNodes.set(gpuNodeOf("node-0", s.clock.Now(),
			v1alpha1.GPUDevice{Minor: 0, Unhealthy: unhealthy, Holders: []v1alpha1.GPUHolder{{PodUID: string(bound[0].UID)}}},
			v1alpha1.GPUDevice{Minor: 1, Holders: []v1alpha1.GPUHolder{{PodUID: string(bound[1].UID)}}}))
	}
	allocatable := func() int64 { return s.plain.Dump().Nodes["node-0"].Allocatable.ScalarResources[gpuResource] }
	want := func(when string, n int64) {
		t.Helper()
		if got := allocatable(); got != n {
			t.Errorf("%s: %d GPUs can be had, want %d", when, got, n)
		}
	}
	says("Xid 79")
	want("while its pod is there", 2)
	s.gone(bound[0])
	want("when its pod has gone", 1)
	if awaits := s.awaitedNode(j); awaits != "node-0" {
		t.Errorf("its next pod waits for node %q", awaits)
	}
	s.clock.Step(time.Minute)
	s.giveUpNodes(time.Minute)
	if sl := s.slot(j, "node", 0); sl.node != "" || s.slot(j, "node", 1).node != "node-0" {
		t.Errorf("a minute later the slot is on node %q, that of the other pod on %q", sl.node, s.slot(j, "node", 1).node)
	}
	// The node itself changes.
	other := node("node-0", 2)
	other.Labels["a"] = "b"
	s.watched.UpdateNode(s.logger, node("node-0", 2), other)
	want("when its node has another label", 1)
	says()
	want("when it is healthy again", 2)
	says("Xid 79")
	want("when it is not", 1)
	s.clock.Step(time.Hour)
	s.reshowOld(s.clock.Now())
	want("an hour later", 1)
	s.clock.Step(time.Second)
	s.reshowOld(s.clock.Now())
	want("when its agent has been silent for long", 2)
	says("Xid 79")
	s.gpuNodes.forget("node-0")
	want("when there is no agent any more", 2)
	if diff := cmp.Diff([]int64{1, 2, 1, 2, 1, 2}, grown); diff != "" {
		t.Errorf("pods were told of sizes (-want +got):\n%s", diff)
	}
}

// TestAnUnhealthyGPUIsItsPodsOnceThatHasCome: the agent may say of a pod sooner than the
// API server.
func TestAnUnhealthyGPUIsItsPodsOnceThatHasCome(t *testing.T) {
	s := testScene(t, 64)
	s.watched.AddNode(s.logger, node("node-0", 2))
	late := plainPod("late", "node-0", 1)
	s.gpuNodes.set(gpuNodeOf("node-0", s.clock.Now(),
		v1alpha1.GPUDevice{Minor: 0, Unhealthy: []string{"Xid 79"}, Holders: []v1alpha1.GPUHolder{{PodUID: string(late.UID)}}},
		v1alpha1.GPUDevice{Minor: 1}))
	allocatable := func() int64 { return s.plain.Dump().Nodes["node-0"].Allocatable.ScalarResources[gpuResource] }
	if got := allocatable(); got != 1 {
		t.Errorf("%d GPUs can be had before its pod has come, want 1", got)
	}
	s.confirm(late)
	if got := allocatable(); got != 2 {
		t.Errorf("%d GPUs can be had when its pod has come, want 2", got)
	}
}

// awaitedNode is the node that the first pods of a job wait for.
func (s *scene) awaitedNode(j *workload.Job) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.awaited(s.jobs[j.Owner.UID], startGroup{})
}

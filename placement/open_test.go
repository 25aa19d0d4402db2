package placement

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/storage/volume"
)

func TestOpenClaims(t *testing.T) {
	bound, selected := makeVolumeClaim("bound", "nfs", v1.ReadWriteMany), makeVolumeClaim("selected", "nfs", v1.ReadWriteMany)
	bound.Spec.VolumeName = "v0"
	metav1.SetMetaDataAnnotation(&selected.ObjectMeta, volume.AnnSelectedNode, "node-0")
	allocated, pending := makeDeviceClaim("allocated", 1), makeDeviceClaim("pending", 1)
	allocated.Status.Allocation = &resourceapi.AllocationResult{}
	c := newClaimCluster(t, []runtime.Object{
		bound, selected, makeVolumeClaim("open", "nfs", v1.ReadWriteMany),
		allocated, pending, makeDeviceClaim("free", 1), makeDeviceTemplate("template", 1),
	}, makeNodes(1, 8))
	inFlight := pending.DeepCopy()
	inFlight.Status.Allocation = &resourceapi.AllocationResult{}
	if err := c.fw.SharedDRAManager().ResourceClaims().SignalClaimPendingAllocation(inFlight.UID, inFlight); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name           string
		option         podOption
		open, awaiting bool
	}{
		{"no claims", func(*v1.Pod) {}, false, false},
		{"a volume claim of its own", scratch("nfs"), false, false},
		{"a volume claim that does not exist", mounting("none"), false, false},
		{"a volume claim that is bound", mounting("bound"), false, false},
		{"a volume claim that is open", mounting("open"), true, false},
		{"a volume claim whose volume is being made", mounting("selected"), true, true},
		{"a resource claim of its own", claiming("template"), false, false},
		{"a resource claim that has devices", sharing("allocated"), false, false},
		{"a resource claim that is open", sharing("free"), true, false},
		{"a resource claim that is getting devices", sharing("pending"), true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := makePod("worker", 0, test.option)
			if open, awaiting := SharesOpenClaim(c.fw, pod), AwaitsClaim(c.fw, pod); open != test.open || awaiting != test.awaiting {
				t.Errorf("open %v, awaiting %v, want %v, %v", open, awaiting, test.open, test.awaiting)
			}
		})
	}
}

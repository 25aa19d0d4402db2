package simulator

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/muster-gpu/muster/api/gpu"
)

func TestGPUsArePublishedInSlicesOfANode(t *testing.T) {
	tests := []struct {
		name          string
		product       string
		gpus          int
		slices, roots int
	}{
		{"modules have a PCIe root each", "NVIDIA-H100-80GB-HBM3", 8, 1, 8},
		{"each two cards share one", "NVIDIA-L40S", 8, 1, 4},
		{"more than one slice can have", "NVIDIA-L40S", 200, 2, 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := fake.NewClientset()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := newSimulator(client, clock.RealClock{}, Options{Nodes: 1, GPUsPerNode: tt.gpus, GPUProduct: tt.product, Devices: true})
			if err := s.registerNodes(ctx); err != nil {
				t.Fatal(err)
			}
			node, err := client.CoreV1().Nodes().Get(ctx, "node-0", metav1.GetOptions{})
			if _, advertised := node.Status.Capacity[GPUResource]; err != nil || advertised {
				t.Errorf("the node advertises its GPUs too (%v)", err)
			}
			list, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
			if err != nil || len(list.Items) != tt.slices {
				t.Fatalf("%d slices, want %d (%v)", len(list.Items), tt.slices, err)
			}
			names, uuids, roots := map[string]bool{}, map[string]bool{}, map[string]bool{}
			for _, slice := range list.Items {
				if got := int(slice.Spec.Pool.ResourceSliceCount); got != tt.slices {
					t.Errorf("the pool says %d slices, want %d", got, tt.slices)
				}
				for _, d := range slice.Spec.Devices {
					names[d.Name] = true
					uuids[*d.Attributes["uuid"].StringValue] = true
					roots[*d.Attributes["resource.kubernetes.io/pcieRoot"].StringValue] = true
				}
			}
			if diff := cmp.Diff([]int{tt.gpus, tt.gpus, tt.roots}, []int{len(names), len(uuids), len(roots)}); diff != "" {
				t.Errorf("names, UUIDs and roots (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPodHoldsTheGPUsOfItsClaims(t *testing.T) {
	claim := func(name string, allocated bool, reserved string, devices ...string) *resourceapi.ResourceClaim {
		c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if allocated {
			c.Status.Allocation = &resourceapi.AllocationResult{}
			for _, d := range devices {
				c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{Driver: gpu.Driver, Pool: "node-0", Device: d})
			}
		}
		c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: reserved, UID: "p"}}
		return c
	}
	// other has a device of another driver that is called like a GPU, too.
	other := func(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{Driver: "nic.example.com", Pool: "node-0", Device: "gpu-5"})
		return c
	}
	const shared, own, behind = "shared", "own", "behind"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"}, Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{
		{Name: "a", ResourceClaimName: new(shared)}, {Name: "b", ResourceClaimTemplateName: new("template")},
	}}, Status: corev1.PodStatus{
		ResourceClaimStatuses:       []corev1.PodResourceClaimStatus{{Name: "b", ResourceClaimName: new(own)}},
		ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: behind},
	}}
	tests := []struct {
		name   string
		claims []*resourceapi.ResourceClaim
		want   []int
		fails  bool
	}{
		{"all but what others may have too", []*resourceapi.ResourceClaim{claim(shared, true, "p", "gpu-0"), other(claim(own, true, "p", "gpu-3", "gpu-2-mig-1")), claim(behind, true, "p", "gpu-1")}, []int{1, 3}, false},
		{"not before all are allocated", []*resourceapi.ResourceClaim{claim(shared, true, "p"), claim(own, false, "p"), claim(behind, true, "p", "gpu-1")}, nil, true},
		{"not what is reserved for nobody", []*resourceapi.ResourceClaim{claim(shared, true, "p"), claim(own, true, "p"), {ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: behind}, Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{}}}}, nil, true},
		{"not what does not exist", nil, nil, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := fake.NewClientset()
			for _, c := range tt.claims {
				if _, err := client.ResourceV1().ResourceClaims("default").Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			got, err := newSimulator(client, clock.RealClock{}, Options{}).claimed(t.Context(), pod)
			if diff := cmp.Diff(tt.want, got); diff != "" || (err != nil) != tt.fails {
				t.Errorf("GPUs (-want +got):\n%s, error %v", diff, err)
			}
		})
	}
}

package holders

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/muster-gpu/muster/agent/device"
)

// pod has containers.
func pod(name string, containers ...*podresources.ContainerResources) *podresources.PodResources {
	return &podresources.PodResources{Namespace: "ml", Name: name, Containers: containers}
}

// container has devices of a plugin, one entry for each, as the kubelet lists them.
func container(name, resource string, ids ...string) *podresources.ContainerResources {
	c := &podresources.ContainerResources{Name: name}
	for _, id := range ids {
		c.Devices = append(c.Devices, &podresources.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}})
	}
	return c
}

// claims has devices of one resource claim.
func claims(name, driver string, devices ...string) *podresources.ContainerResources {
	claim := &podresources.DynamicResource{ClaimName: "gpus", ClaimNamespace: "ml"}
	for _, d := range devices {
		claim.ClaimResources = append(claim.ClaimResources, &podresources.ClaimResource{DriverName: driver, PoolName: "node-1", DeviceName: d})
	}
	return &podresources.ContainerResources{Name: name, DynamicResources: []*podresources.DynamicResource{claim}}
}

func draID(name string) ID {
	return ID{Minor: -1, GPUInstance: -1, Driver: "gpu.nvidia.com", Pool: "node-1", Device: name}
}

func TestAllocations(t *testing.T) {
	const nvidia = "nvidia.com/gpu"
	allocation := func(id ID, name string, share device.Share, replicated bool, containers ...string) Allocation {
		return Allocation{ID: id, Pod: Pod{"ml", name}, Share: share, Replicated: replicated, Containers: containers}
	}
	tests := map[string]struct {
		list     []*podresources.PodResources
		replicas map[ID]int
		want     []Allocation
		says     string
	}{
		"two containers of a pod with a GPU each": {
			list: []*podresources.PodResources{pod("a", container("x", nvidia, "GPU-1"), container("y", nvidia, "GPU-2"))},
			want: []Allocation{allocation(byUUID("GPU-1"), "a", device.Whole, false, "x"), allocation(byUUID("GPU-2"), "a", device.Whole, false, "y")},
		},
		"a device of two NUMA nodes is listed twice, and held once": {
			list: []*podresources.PodResources{pod("a", container("x", nvidia, "GPU-1", "GPU-1"))},
			want: []Allocation{allocation(byUUID("GPU-1"), "a", device.Whole, false, "x")},
		},
		"a slice": {
			list: []*podresources.PodResources{pod("a", container("x", "nvidia.com/mig-1g.10gb", "MIG-1"))},
			want: []Allocation{allocation(byUUID("MIG-1"), "a", device.Whole, false, "x")},
		},
		"shares of a GPU that is divided by four, two of them in one pod": {
			list:     []*podresources.PodResources{pod("b", container("x", "nvidia.com/gpu.shared", "GPU-1::3")), pod("a", container("x", "nvidia.com/gpu.shared", "GPU-1::0", "GPU-1::1"))},
			replicas: map[ID]int{byUUID("GPU-1"): 4},
			want:     []Allocation{allocation(byUUID("GPU-1"), "a", device.Share{Parts: 2, Of: 4}, true, "x"), allocation(byUUID("GPU-1"), "b", device.Share{Parts: 1, Of: 4}, true, "x")},
		},
		"shares of a GPU of which it is not known by how many it is divided": {
			list: []*podresources.PodResources{pod("b", container("x", nvidia, "GPU-1::3")), pod("a", container("x", nvidia, "GPU-1::0"))},
			want: []Allocation{allocation(byUUID("GPU-1"), "a", device.Share{Parts: 1, Of: 2}, true, "x"), allocation(byUUID("GPU-1"), "b", device.Share{Parts: 1, Of: 2}, true, "x")},
		},
		"GKE's plugin": {
			list: []*podresources.PodResources{pod("a", container("x", nvidia, "nvidia1", "nvidia0/gi3"))},
			want: []Allocation{allocation(ID{Minor: 0, GPUInstance: 3}, "a", device.Whole, false, "x"), allocation(ID{Minor: 1, GPUInstance: -1}, "a", device.Whole, false, "x")},
		},
		"a claim that two containers of a pod share is held once": {
			list: []*podresources.PodResources{pod("a", claims("y", "gpu.nvidia.com", "gpu-0", "gpu-1"), claims("x", "gpu.nvidia.com", "gpu-0", "gpu-1"))},
			want: []Allocation{allocation(draID("gpu-0"), "a", device.Whole, true, "x", "y"), allocation(draID("gpu-1"), "a", device.Whole, true, "x", "y")},
		},
		"a claim that two pods share is divided": {
			list: []*podresources.PodResources{pod("b", claims("x", "gpu.nvidia.com", "gpu-0")), pod("a", claims("x", "gpu.nvidia.com", "gpu-0"))},
			want: []Allocation{allocation(draID("gpu-0"), "a", device.Share{Parts: 1, Of: 2}, true, "x"), allocation(draID("gpu-0"), "b", device.Share{Parts: 1, Of: 2}, true, "x")},
		},
		"devices that are no GPUs": {
			list: []*podresources.PodResources{pod("a", container("x", "rdma/hca", "mlx5_0"), container("y", "amd.com/gpu", "0000:c1:00.0"), claims("z", "compute-domain.nvidia.com", "channel-0"))},
			want: []Allocation{},
		},
		"an id that cannot be read, of 1 MiB, and one that can": {
			list: []*podresources.PodResources{pod("a", container("x", nvidia, strings.Repeat("x", 1<<20), "?", "GPU-1"))},
			want: []Allocation{allocation(byUUID("GPU-1"), "a", device.Whole, false, "x")},
			says: "2 devices of the kubelet's list are left out",
		},
		"entries that are nil": {
			list: []*podresources.PodResources{nil, pod("a", nil, &podresources.ContainerResources{Devices: []*podresources.ContainerDevices{nil}, DynamicResources: []*podresources.DynamicResource{nil}})},
			want: []Allocation{},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Allocations(test.list, test.replicas)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("allocations (-want +got):\n%s", diff)
			}
			if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("error %v, want %q", err, test.says)
			}
			if err != nil && len(err.Error()) > 400 {
				t.Errorf("the error has %d characters", len(err.Error()))
			}
		})
	}
}

func TestAFloodOfIDsIsBounded(t *testing.T) {
	var ids []string
	for i := range 50_000 {
		ids = append(ids, fmt.Sprint("GPU-", i))
	}
	got, err := Allocations([]*podresources.PodResources{pod("a", container("x", "nvidia.com/gpu", ids...))}, nil)
	if len(got) != MaxAllocations {
		t.Errorf("%d allocations", len(got))
	}
	if err == nil || !strings.Contains(err.Error(), "45904 devices") {
		t.Errorf("error %v", err)
	}
}

func TestReplicas(t *testing.T) {
	var devices []*podresources.ContainerDevices
	for _, id := range []string{"GPU-1::0", "GPU-1::1", "GPU-1::1", "GPU-1::2", "GPU-2", "?"} {
		devices = append(devices, &podresources.ContainerDevices{ResourceName: "nvidia.com/gpu", DeviceIds: []string{id}})
	}
	devices = append(devices, &podresources.ContainerDevices{ResourceName: "rdma/hca", DeviceIds: []string{"GPU-3::0"}}, nil)
	if diff := cmp.Diff(map[ID]int{byUUID("GPU-1"): 3}, Replicas(devices)); diff != "" {
		t.Errorf("replicas (-want +got):\n%s", diff)
	}
}

func TestResolve(t *testing.T) {
	devices := []device.Device{
		{UUID: "GPU-a", Minor: 2, GPUInstance: -1}, {UUID: "GPU-b", Minor: 0, GPUInstance: -1},
		{UUID: "MIG-c", Parent: "GPU-b", Minor: 0, GPUInstance: 3},
	}
	uuids := map[ID]string{draID("gpu-0-mig-1g.10gb-19-4"): "MIG-c"}
	tests := map[string]struct {
		id   ID
		want string
	}{
		"by UUID":                               {byUUID("GPU-b"), "GPU-b"},
		"GKE's number is the minor one":         {ID{Minor: 2, GPUInstance: -1}, "GPU-a"},
		"GKE's slice":                           {ID{Minor: 0, GPUInstance: 3}, "MIG-c"},
		"a claimed GPU by its name":             {draID("gpu-2"), "GPU-a"},
		"a claimed slice by its ResourceSlice":  {draID("gpu-0-mig-1g.10gb-19-4"), "MIG-c"},
		"a claimed slice that no slice lists":   {draID("gpu-0-mig-2g.20gb-14-0"), ""},
		"a UUID that is not there":              {byUUID("GPU-z"), ""},
		"a number that is not there":            {ID{Minor: 7, GPUInstance: -1}, ""},
		"a device that is bound to vfio for VM": {draID("gpu-vfio-0"), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, found := Resolve(test.id, devices, uuids)
			if got.UUID != test.want || found != (test.want != "") {
				t.Errorf("got %q, %t, want %q", got.UUID, found, test.want)
			}
		})
	}
}

package inventory

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/placement/islands"
)

// makeNode has the labels that GPU feature discovery writes.
func makeNode(product string, labelled, capacity int) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{productLabel: product, countLabel: fmt.Sprint(labelled)}},
		Status:     v1.NodeStatus{Capacity: v1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(int64(capacity), resource.DecimalSI)}},
	}
}

// withSlices has the node advertise slices of GPUs beside.
func withSlices(node *v1.Node, n int64) *v1.Node {
	node.Status.Capacity["nvidia.com/mig-1g.10gb"] = *resource.NewQuantity(n, resource.DecimalSI)
	return node
}

func TestProducts(t *testing.T) {
	type result struct {
		GPUs    int
		Pair    islands.Link
		Doubted bool
	}
	configured := map[string]islands.Arrangement{"NVIDIA-A100-80GB-PCIe": islands.Bridges}
	tests := []struct {
		name string
		node *v1.Node
		want *result
	}{
		{"an HGX node", makeNode("NVIDIA-H100-80GB-HBM3", 8, 8), &result{8, islands.NVLinks, false}},
		{"cards without bridges", makeNode("NVIDIA-L40S", 8, 8), &result{8, islands.PCIe, false}},
		{"cards that are configured to have bridges", makeNode("NVIDIA-A100-80GB-PCIe", 4, 4), &result{4, islands.NVLinks, false}},
		{"a broken GPU, and some that are cut up, are there", makeNode("NVIDIA-L40S", 8, 5), &result{8, islands.PCIe, false}},
		{"more are advertised than there are, because they are shared", makeNode("NVIDIA-L40S", 2, 8), nil},
		{"nobody has counted them", &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{productLabel: "NVIDIA-L40S"}}, Status: makeNode("", 0, 4).Status}, &result{4, islands.PCIe, false}},
		{"an unknown product", makeNode("Other", 8, 8), nil},
		{"no GPUs", makeNode("NVIDIA-L40S", 0, 0), nil},
		{"too many to be told apart", makeNode("NVIDIA-L40S", 32, 32), nil},
		{"some are cut up, and which is not said", withSlices(makeNode("NVIDIA-H100-80GB-HBM3", 8, 6), 14), &result{8, islands.NVLinks, true}},
		{"all are cut up", withSlices(makeNode("NVIDIA-H100-80GB-HBM3", 8, 0), 56), &result{8, islands.NVLinks, false}},
		{"six of what there are four or eight of", makeNode("Tesla-V100-SXM2-16GB", 6, 6), &result{6, islands.Machine, true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got *result
			if n, ok := NewProducts(configured).Node(tt.node); ok {
				got = &result{n.Shape.Devices(), n.Shape.Apart(islands.SetOf(0, 1)), n.Doubt != ""}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("what is known of the node (-want +got):\n%s", diff)
			}
		})
	}
}

// aGPU is a device as the driver publishes it.
func aGPU(name, uuid, product, bus, root string, numa int64) resourceapi.Device {
	a := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	d := resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"type": a("gpu"), "gpu.nvidia.com/uuid": a(uuid), "productName": a(product), pciBusAttribute: a(bus),
	}}
	if root != "" {
		d.Attributes[pcieRootAttribute] = a(root)
	}
	if numa >= 0 {
		d.Attributes[numaAttribute] = resourceapi.DeviceAttribute{IntValue: &numa}
	}
	return d
}

func mig(name, parent string) resourceapi.Device {
	d := aGPU(name, "MIG-"+name, "", "", "", -1)
	d.Attributes["type"] = resourceapi.DeviceAttribute{StringValue: ptr.To("mig")}
	d.Attributes["parentUUID"] = resourceapi.DeviceAttribute{StringValue: &parent}
	return d
}

func sliceOf(name string, generation int64, devices ...resourceapi.Device) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{
		Driver: gpu.Driver, NodeName: ptr.To("n"), Pool: resourceapi.ResourcePool{Name: "n", Generation: generation, ResourceSliceCount: 1}, Devices: devices,
	}}
}

// links has how each two GPUs are joined.
func links(n *Node) (all string) {
	for i := range n.Shape.Devices() {
		for k := range i {
			all += fmt.Sprintf("%d-%d %v; ", k, i, n.Shape.Apart(islands.SetOf(i, k)))
		}
	}
	return all
}

func TestSlices(t *testing.T) {
	const l40s = "NVIDIA L40S"
	tests := []struct {
		name   string
		slices []*resourceapi.ResourceSlice
		uuids  []string
		links  string
		doubt  string
	}{
		{
			"PCIe roots and NUMA nodes, in the order of bus addresses",
			[]*resourceapi.ResourceSlice{sliceOf("s", 1,
				aGPU("gpu-0", "c", l40s, "0000:81:00.0", "pci0000:80", 1), aGPU("gpu-1", "a", l40s, "0000:01:00.0", "pci0000:00", 0), aGPU("gpu-2", "b", l40s, "0000:41:00.0", "pci0000:40", 0))},
			[]string{"a", "b", "c"}, "0-1 NUMA node; 0-2 node; 1-2 node; ", "",
		},
		{
			"what slices do not tell, the product does",
			[]*resourceapi.ResourceSlice{sliceOf("s", 1, aGPU("gpu-0", "a", "NVIDIA H100 80GB HBM3", "1", "r0", -1), aGPU("gpu-1", "b", "NVIDIA H100 80GB HBM3", "2", "r1", -1))},
			[]string{"a", "b"}, "0-1 NVLink; ", "",
		},
		{
			"PCIe roots that slices tell count, not those that the product mostly has",
			[]*resourceapi.ResourceSlice{sliceOf("s", 1, aGPU("gpu-0", "a", l40s, "1", "r0", -1), aGPU("gpu-1", "b", l40s, "2", "r1", -1))},
			[]string{"a", "b"}, "0-1 node; ", "",
		},
		{
			"where slices tell of no PCIe root or NUMA node, the product says which there mostly are",
			[]*resourceapi.ResourceSlice{sliceOf("s", 1, aGPU("gpu-0", "a", l40s, "1", "", -1), aGPU("gpu-1", "b", l40s, "2", "", -1), aGPU("gpu-2", "c", l40s, "3", "", -1))},
			[]string{"a", "b", "c"}, "0-1 PCIe root; 0-2 node; 1-2 node; ", "",
		},
		{
			"several slices of one pool, and one of an older generation",
			[]*resourceapi.ResourceSlice{sliceOf("s1", 2, aGPU("gpu-0", "a", l40s, "1", "r", -1)), sliceOf("s2", 2, aGPU("gpu-1", "b", l40s, "2", "r", -1)), sliceOf("s0", 1, aGPU("gpu-9", "z", l40s, "0", "r", -1))},
			[]string{"a", "b"}, "0-1 PCIe root; ", "",
		},
		{
			"GPUs of two products",
			[]*resourceapi.ResourceSlice{sliceOf("s", 1, aGPU("gpu-0", "a", l40s, "1", "r", -1), aGPU("gpu-1", "b", "NVIDIA L4", "2", "r", -1))},
			[]string{"a", "b"}, "0-1 PCIe root; ", "GPUs of several products, NVIDIA L40S and NVIDIA L4",
		},
		{
			"two GPUs with one UUID have none",
			[]*resourceapi.ResourceSlice{sliceOf("s", 1, aGPU("gpu-0", "a", l40s, "1", "r", -1), aGPU("gpu-1", "a", l40s, "2", "r", -1))},
			nil, "0-1 PCIe root; ", "",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := NewSlices(NewProducts(nil))
			for _, slice := range tt.slices {
				s.Replace(nil, slice)
			}
			n, ok := s.Node(makeNode("", 0, 0))
			if !ok {
				t.Fatal("nothing is known")
			}
			if diff := cmp.Diff(tt.uuids, n.UUIDs); diff != "" {
				t.Errorf("UUIDs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.links, links(n)); diff != "" {
				t.Errorf("links (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.doubt, n.Doubt); diff != "" {
				t.Errorf("doubt (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPartsOfAGPUAreThatGPU(t *testing.T) {
	s := NewSlices(NewProducts(nil))
	s.Replace(nil, sliceOf("s", 1, aGPU("gpu-0", "a", "NVIDIA L40S", "1", "", -1), aGPU("gpu-1", "b", "NVIDIA L40S", "2", "", -1), mig("gpu-1-mig-0", "b"), mig("gpu-7-mig-0", "z")))
	n, ok := s.Node(makeNode("", 0, 0))
	if !ok || n.Shape.Devices() != 2 {
		t.Fatalf("two whole GPUs: %v", ok)
	}
	for name, want := range map[string]int{"gpu-0": 0, "gpu-1": 1, "gpu-1-mig-0": 1, "gpu-7-mig-0": -1} {
		i, ok := n.Index(structured.MakeDeviceID(gpu.Driver, "n", name))
		if !ok {
			i = -1
		}
		if i != want {
			t.Errorf("%s is GPU %d, want %d", name, i, want)
		}
	}
}

func TestSlicesChange(t *testing.T) {
	s := NewSlices(NewProducts(nil))
	node := makeNode("", 0, 0)
	before := sliceOf("s", 1, aGPU("gpu-0", "a", "", "1", "r", -1), aGPU("gpu-1", "b", "", "2", "r", -1))
	s.Replace(nil, before)
	first, _ := s.Node(node)
	if again, _ := s.Node(node); again != first {
		t.Error("the same slices are read twice")
	}
	after := sliceOf("s", 2, aGPU("gpu-0", "a", "", "1", "r", -1))
	s.Replace(before, after)
	if n, _ := s.Node(node); n.Shape.Devices() != 1 {
		t.Errorf("%d GPUs after one has gone", n.Shape.Devices())
	}
	s.Replace(after, nil)
	if _, ok := s.Node(node); ok {
		t.Error("the node is known without slices")
	}
	s.Replace(nil, sliceOf("t", 1, aGPU("gpu-5", "x", "", "1", "r", -1), aGPU("gpu-6", "y", "", "2", "r", -1)))
	if n, _ := s.Node(node); n.Shape != first.Shape {
		t.Error("GPUs that are joined alike have two shapes")
	}
}

func TestSlicesThatDoNotMatchTheCapacity(t *testing.T) {
	s := NewSlices(NewProducts(nil))
	s.Replace(nil, sliceOf("s", 1, aGPU("gpu-0", "a", "", "1", "r", -1), aGPU("gpu-1", "b", "", "2", "r", -1)))
	doubt := func(capacity int) string {
		n, ok := s.Node(makeNode("", 0, capacity))
		if again, _ := s.Node(makeNode("", 0, capacity)); !ok || again != n || n.Shape.Devices() != 2 {
			t.Errorf("with %d advertised: %v %+v, then another %v", capacity, ok, n, again != n)
		}
		return n.Doubt
	}
	got := []string{doubt(0), doubt(2), doubt(6), doubt(1), doubt(2)}
	want := []string{"", "", "its ResourceSlices have 2 GPUs, and it advertises 6", "its ResourceSlices have 2 GPUs, and it advertises 1", ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("doubts as the capacity changes (-want +got):\n%s", diff)
	}
}

func TestSourcesAreAskedInOrder(t *testing.T) {
	p := NewProducts(nil)
	s := NewSlices(p)
	sources := Sources{s, p}
	node := makeNode("NVIDIA-L40S", 8, 8)
	if n, ok := sources.Node(node); !ok || n.UUIDs != nil {
		t.Errorf("without slices the product counts: %v", ok)
	}
	s.Replace(nil, sliceOf("s", 1, aGPU("gpu-0", "a", "", "1", "r", -1)))
	if n, ok := sources.Node(node); !ok || n.UUIDs == nil {
		t.Errorf("slices go before the product: %v", ok)
	}
}

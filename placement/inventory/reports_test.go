package inventory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/placement/islands"
)

// reported is a GPU of which an agent tells.
func reported(minor int32, product, root, island string, peers ...int32) v1alpha1.GPUDevice {
	return v1alpha1.GPUDevice{UUID: fmt.Sprint("GPU-", minor), Minor: minor, Product: product, PCIRoot: root, Island: island, NVLinkPeers: peers}
}

// cut is a slice of a GPU.
func cut(minor int32) v1alpha1.GPUDevice {
	return v1alpha1.GPUDevice{UUID: fmt.Sprint("MIG-", minor), Minor: minor, Profile: "1g.10gb"}
}

func in(numa int32, d v1alpha1.GPUDevice) v1alpha1.GPUDevice {
	d.NUMANode = &numa
	return d
}

func TestReports(t *testing.T) {
	const l40s, hgx = "NVIDIA L40S", "NVIDIA H100 80GB HBM3"
	tests := []struct {
		name     string
		devices  []v1alpha1.GPUDevice
		capacity int
		// want is "" where nothing is known.
		want, doubt string
	}{
		{"PCIe roots and NUMA nodes, in the order of minor numbers", []v1alpha1.GPUDevice{in(1, reported(2, l40s, "b", "")), in(0, reported(0, l40s, "a", "")), in(0, reported(1, l40s, "c", ""))}, 3,
			"0-1 NUMA node; 0-2 node; 1-2 node; ", ""},
		{"NVLink bridges of which no product tells", []v1alpha1.GPUDevice{reported(0, l40s, "a", "", 2), reported(1, l40s, "a", ""), reported(2, l40s, "b", "", 0)}, 3,
			"0-1 PCIe root; 0-2 NVLink; 1-2 node; ", ""},
		{"an island without a word of peers", []v1alpha1.GPUDevice{reported(0, hgx, "a", "x"), reported(1, hgx, "b", "x"), reported(2, hgx, "c", "y")}, 3,
			"0-1 NVLink; 0-2 node; 1-2 node; ", ""},
		{"an island whose GPUs do not all reach each other", []v1alpha1.GPUDevice{reported(0, l40s, "a", "x", 1), reported(1, l40s, "b", "x", 0, 2), reported(2, l40s, "c", "x", 1)}, 3,
			"0-1 NVLink; 0-2 node; 1-2 NVLink; ", ""},
		{"where nothing is said of NVLinks the product says it", []v1alpha1.GPUDevice{reported(0, hgx, "a", ""), reported(1, hgx, "b", "")}, 2, "0-1 NVLink; ", ""},
		{"a link that one end does not know", []v1alpha1.GPUDevice{reported(0, hgx, "a", "", 1), reported(1, hgx, "b", "")}, 2,
			"0-1 node; ", "GPU 0 has an NVLink to GPU 1, which has none to it"},
		{"a link to a GPU that is not there", []v1alpha1.GPUDevice{reported(0, l40s, "a", "", 7), reported(1, l40s, "a", "")}, 2, "0-1 PCIe root; ", ""},
		{"GPUs of two products", []v1alpha1.GPUDevice{reported(0, l40s, "a", ""), reported(1, "NVIDIA L4", "a", "")}, 2,
			"0-1 PCIe root; ", "GPUs of several products, NVIDIA L40S and NVIDIA L4"},
		{"another number than the node advertises", []v1alpha1.GPUDevice{reported(0, l40s, "a", ""), reported(1, l40s, "a", "")}, 8,
			"0-1 PCIe root; ", "its GPUNode has 2 GPUs, and it advertises 8"},
		{"GPUs that are cut up are there and not advertised", []v1alpha1.GPUDevice{reported(0, l40s, "a", ""), cut(0), cut(0), reported(1, l40s, "a", "")}, 1, "0-1 PCIe root; ", ""},
		{"two GPUs with one number", []v1alpha1.GPUDevice{reported(0, l40s, "a", ""), reported(0, l40s, "a", "")}, 2, "", ""},
		{"a GPU without a number", []v1alpha1.GPUDevice{reported(-1, l40s, "a", "")}, 1, "", ""},
		{"no GPUs", nil, 2, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReports(NewProducts(nil))
			r.Set("n", tt.devices)
			got, doubt := "", ""
			if n, ok := r.Node(makeNode("", 0, tt.capacity)); ok {
				got, doubt = links(n), n.Doubt
				if uuids := strings.Join(n.UUIDs, " "); uuids != strings.Join([]string{"GPU-0", "GPU-1", "GPU-2"}[:len(n.UUIDs)], " ") {
					t.Errorf("UUIDs %s", uuids)
				}
			}
			if diff := cmp.Diff([]string{tt.want, tt.doubt}, []string{got, doubt}); diff != "" {
				t.Errorf("links and doubt (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReportsTellDoubleLinksByTheProduct: GPUNodes say with whom a V100 is linked, and
// not how often.
func TestReportsTellDoubleLinksByTheProduct(t *testing.T) {
	want, err := islands.CubeMesh.Shape(8)
	if err != nil {
		t.Fatal(err)
	}
	var devices []v1alpha1.GPUDevice
	for i := range 8 {
		d := in(int32(i/4), reported(int32(i), "Tesla V100-SXM2-16GB", "", "mesh"))
		for k := range 8 {
			if k != i && want.Apart(islands.SetOf(i, k)) <= islands.NVLink {
				d.NVLinkPeers = append(d.NVLinkPeers, int32(k))
			}
		}
		devices = append(devices, d)
	}
	r := NewReports(NewProducts(nil))
	r.Set("n", devices)
	n, ok := r.Node(makeNode("", 0, 8))
	if !ok || !n.Shape.Same(want) {
		t.Errorf("they are joined by %s", links(n))
	}
}

func TestReportsChange(t *testing.T) {
	r := NewReports(NewProducts(nil))
	node := makeNode("", 0, 2)
	of := func() *Node { n, _ := r.Node(node); return n }
	devices := []v1alpha1.GPUDevice{reported(0, "NVIDIA L40S", "a", ""), reported(1, "NVIDIA L40S", "a", "")}
	r.Set("n", devices)
	first := of()
	held := []v1alpha1.GPUDevice{devices[0], devices[1]}
	held[0].Holders = []v1alpha1.GPUHolder{{Namespace: "a", Pod: "b"}}
	r.Set("n", held)
	if of() != first {
		t.Error("who holds a GPU makes it another node")
	}
	apart := []v1alpha1.GPUDevice{devices[0], reported(1, "NVIDIA L40S", "b", "")}
	r.Set("n", apart)
	if diff := cmp.Diff("0-1 node; ", links(of())); diff != "" {
		t.Errorf("after a change (-want +got):\n%s", diff)
	}
	r.Set("n", nil)
	if of() != nil {
		t.Error("it is known without a GPUNode")
	}
}

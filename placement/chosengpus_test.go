package placement

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/placement/inventory"
)

func reportedCards(minors ...int32) (out []v1alpha1.GPUDevice) {
	for _, minor := range minors {
		out = append(out, v1alpha1.GPUDevice{UUID: "GPU-" + string('a'+rune(minor)), Minor: minor, Product: "NVIDIA L40S"})
	}
	return out
}

// The agent says so between the choice and the binding.
func TestAPodGetsTheGPUsThatWereChosenThoughTheNodeHasOthersSince(t *testing.T) {
	reports := inventory.NewReports(inventory.NewProducts(nil))
	reports.Set("n", reportedCards(0, 1, 2, 3))
	near := NewIslands(reports, EnforceAnnotation, nil)
	had := makePod("had", 2, on("n"), has("0,1"), started)
	c := newCluster(t, []*v1.Node{makeNode("n", 4)}, had)
	node, err := c.snap.Get("n")
	if err != nil {
		t.Fatal(err)
	}
	pod := makePod("p", 2)
	if !near.Choose(pod, node) {
		t.Fatal("none are chosen")
	}
	reports.Set("n", reportedCards(1, 2, 3))
	want := map[string]string{GPUsAnnotation: "2,3", UUIDsAnnotation: "GPU-c,GPU-d"}
	if diff := cmp.Diff(want, near.Annotations(pod)); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
}

// Indices are given anew when a GPU goes, and UUIDs are not.
func TestGPUsAreFreeByTheirUUIDs(t *testing.T) {
	uuids := func(uuids string) podOption {
		return func(p *v1.Pod) { p.Annotations[UUIDsAnnotation] = uuids }
	}
	for name, test := range map[string]struct {
		written podOption
		want    string
	}{
		"those that the pod has have these indices": {uuids("GPU-c"), "0,2"},
		"another GPU has the index now":             {uuids("GPU-b"), "?"},
		"the pod has no word of UUIDs":              {func(*v1.Pod) {}, "0,2"},
		"it has more UUIDs than GPUs":               {uuids("GPU-c,GPU-d"), "?"},
	} {
		t.Run(name, func(t *testing.T) {
			reports := inventory.NewReports(inventory.NewProducts(nil))
			reports.Set("n", reportedCards(1, 2, 3))
			c := newCluster(t, []*v1.Node{makeNode("n", 3)}, makePod("a", 1, on("n"), has("1"), test.written, started))
			node, err := c.snap.Get("n")
			if err != nil {
				t.Fatal(err)
			}
			near := NewIslands(reports, EnforceAnnotation, nil)
			gpus, _ := near.known(node.Node())
			got := "?"
			if set, exact := near.free(node, gpus); exact {
				got = set.String()
			}
			if got != test.want {
				t.Errorf("free are %s, want %s", got, test.want)
			}
		})
	}
}

package islands

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func shapeOf(tb testing.TB, a Arrangement, n int) *Shape {
	tb.Helper()
	s, err := a.Shape(n)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestChoose(t *testing.T) {
	all := First(8)
	tests := []struct {
		name  string
		shape Arrangement
		free  Set
		n     int
		want  Choice
	}{
		{"behind an NVSwitch all are equal, the lowest are taken", Switch, SetOf(1, 3, 4, 6, 7), 2, Choice{SetOf(1, 3), NVLinks, 6 << 24}},
		{"a pod of two gets a bridged pair", Bridges, SetOf(0, 2, 4, 5), 2, Choice{SetOf(4, 5), NVLinks, 0}},
		{"a pod of one leaves pairs whole", Bridges, SetOf(0, 1, 3, 4, 5), 1, Choice{SetOf(3), NVLinks, 2}},
		{"a pod of one leaves quads whole", PCIePairs, SetOf(0, 1, 4, 5, 6, 7), 1, Choice{SetOf(0), NVLinks, 1 << 8}},
		{"a pod of two goes beside one rather than into a whole quad", PCIePairs, SetOf(2, 3, 4, 5, 6, 7), 2, Choice{SetOf(2, 3), PCIe, 0}},
		{"a pod of four gets a NUMA node", PCIePairs, SetOf(0, 1, 2, 4, 5, 6, 7), 4, Choice{SetOf(4, 5, 6, 7), NUMA, 0}},
		{"a pod of six leaves a pair rather than two halves of pairs", PCIePairs, all, 6, Choice{SetOf(0, 1, 2, 3, 4, 5), Machine, 4}},
		{"a pod of three leaves one beside a whole quad", PCIePairs, all, 3, Choice{SetOf(0, 1, 2), NUMA, 1<<8 | 2}},
		{"without a pair two GPUs of one NUMA node are taken", PCIePairs, SetOf(0, 2, 5), 2, Choice{SetOf(0, 2), NUMA, 0}},
		{"of V100s two with a double link, of which the quads stay as whole as can be", CubeMesh, SetOf(0, 3, 4, 5, 6, 7), 2, Choice{SetOf(0, 3), NVLinks, 1<<24 | 1<<16}},
		{"four V100s that are linked each to each", CubeMesh, SetOf(0, 1, 4, 5, 6, 7), 4, Choice{SetOf(4, 5, 6, 7), NVLink, 2 << 24}},
		{"four V100s in a ring, where no four are linked each to each", CubeMesh, SetOf(0, 1, 2, 4, 5, 7), 4, Choice{SetOf(0, 1, 4, 5), Machine, 2<<24 | 2<<16}},
		{"where no four are together, as many of them as can be", PCIePairs, SetOf(0, 2, 4, 5, 6), 4, Choice{SetOf(0, 4, 5, 6), Machine, 1}},
		{"all that are there", CubeMesh, all, 8, Choice{all, Machine, 0}},
		{"none", Bridges, SetOf(1), 0, Choice{}},
		{"GPUs that the node does not have are not free", Bridges, SetOf(7, 8, 9), 1, Choice{SetOf(7), NVLinks, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := shapeOf(t, tt.shape, 8).Choose(tt.free, tt.n)
			if !ok {
				t.Fatalf("no choice")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("chosen (-want +got):\n%s got %v", diff, got.Devices)
			}
		})
	}
	if c, ok := shapeOf(t, Bridges, 8).Choose(SetOf(1, 2), 3); ok {
		t.Errorf("three of two are %v", c)
	}
}

package islands

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFit(t *testing.T) {
	all := First(8)
	for _, tt := range []struct {
		name    string
		shape   Arrangement
		free    Set
		n, pods int
		want    Fit
	}{
		{"a lonely GPU is taken", Bridges, SetOf(0, 2, 3), 1, 1, Fit{Breaks: 2, Lonely: -1}},
		{"half of a pair leaves the other half lonely", PCIePairs, SetOf(0, 1, 4, 5), 1, 1, Fit{Breaks: 1 << 8, Lonely: 1}},
		{"a whole pair does not, and nor do its halves one after the other", PCIePairs, SetOf(0, 1, 4, 5), 1, 2, Fit{}},
		{"two pods of three leave two halves", PCIePairs, all, 3, 2, Fit{Possible: NUMA, Sure: NUMA, Breaks: 2<<8 | 4, Lonely: 2}},
		{"GPUs that the node does not have are not there", PCIePairs, SetOf(0, 8, 9), 1, 1, Fit{Lonely: -1}},
		{"behind an NVSwitch none is lonelier than others", Switch, SetOf(0, 1), 1, 1, Fit{Breaks: 1 << 24}},
		{"nothing is taken", PCIePairs, SetOf(0, 2), 1, 0, Fit{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := shapeOf(t, tt.shape, 8).Fit(tt.free, tt.n, tt.pods)
			if !ok {
				t.Fatal("there are too few")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("it is (-want +got):\n%s", diff)
			}
		})
	}
}

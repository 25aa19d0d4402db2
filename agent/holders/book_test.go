package holders

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-gpu/muster/agent/device"
)

func TestBook(t *testing.T) {
	a := Allocation{ID: byUUID("GPU-1"), Pod: Pod{"ml", "a"}, Share: device.Whole}
	b := Allocation{ID: byUUID("GPU-2"), Pod: Pod{"ml", "b"}, Share: device.Whole}
	// next has GPU-1 after a.
	next := Allocation{ID: byUUID("GPU-1"), Pod: Pod{"ml", "next"}, Share: device.Whole}
	sharesA := Allocation{ID: byUUID("GPU-3"), Pod: Pod{"ml", "a"}, Share: device.Share{Parts: 1, Of: 2}, Replicated: true}
	sharesB := Allocation{ID: byUUID("GPU-3"), Pod: Pod{"ml", "b"}, Share: device.Share{Parts: 1, Of: 2}, Replicated: true}
	tests := map[string]struct {
		lists [][]Allocation
		// runs are pods that are known to run.
		runs []string
		want []Allocation
	}{
		"an empty list frees nothing":                                       {lists: [][]Allocation{{a, b}, {}}, want: []Allocation{a, b}},
		"two empty lists free nothing":                                      {lists: [][]Allocation{{a, b}, {}, {}}, want: []Allocation{a, b}},
		"after three lists a pod is gone":                                   {lists: [][]Allocation{{a, b}, {b}, {b}, {b}}, want: []Allocation{b}},
		"a pod that comes back in between is not":                           {lists: [][]Allocation{{a}, {}, {}, {a}, {}, {}}, want: []Allocation{a}},
		"a pod that is known to run keeps its device":                       {lists: [][]Allocation{{a, b}, {}, {}, {}, {}, {}}, runs: []string{"a"}, want: []Allocation{a}},
		"a device that another pod has is free of the first at once":        {lists: [][]Allocation{{a}, {next}}, runs: []string{"a"}, want: []Allocation{next}},
		"a device that is shared may be held by both":                       {lists: [][]Allocation{{sharesA}, {sharesB}}, want: []Allocation{sharesA, sharesB}},
		"what a pod has of a device may change":                             {lists: [][]Allocation{{sharesA}, {{ID: sharesA.ID, Pod: sharesA.Pod, Share: device.Share{Parts: 1, Of: 4}, Replicated: true}}}, want: []Allocation{{ID: sharesA.ID, Pod: sharesA.Pod, Share: device.Share{Parts: 1, Of: 4}, Replicated: true}}},
		"two pods that hold one device that cannot be shared are both said": {lists: [][]Allocation{{a, next}}, want: []Allocation{a, next}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			book := NewBook()
			for _, list := range test.lists {
				book.Take(list, func(p Pod) bool { return slices.Contains(test.runs, p.Name) })
			}
			if diff := cmp.Diff(test.want, book.Allocations()); diff != "" {
				t.Errorf("allocations (-want +got):\n%s", diff)
			}
		})
	}
}

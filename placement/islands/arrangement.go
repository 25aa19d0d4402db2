package islands

import (
	"fmt"
	"strings"
)

// Arrangement is a way in which makers join the GPUs of a node, by their indices.
type Arrangement string

const (
	// Switch: an NVSwitch, or NVLinks between each two, join all of them.
	Switch Arrangement = "nvswitch"
	// CubeMesh: eight V100s with six NVLinks each, as in a DGX-1, an HGX-1 and AWS's
	// p3.16xlarge, or the first four of them.
	CubeMesh Arrangement = "cube-mesh"
	// Bridges: an NVLink bridge joins each two that follow each other, beside what
	// joins PCIePairs.
	Bridges Arrangement = "nvlink-pairs"
	// PCIePairs: each two that follow each other share a PCIe root, and each half
	// of them a NUMA node where it is made of whole pairs.
	PCIePairs Arrangement = "pcie-pairs"
	// Alike: nothing is known, or nothing makes a difference.
	Alike Arrangement = "alike"
)

// Arrangements are all of them.
func Arrangements() []Arrangement {
	return []Arrangement{Switch, CubeMesh, Bridges, PCIePairs, Alike}
}

// cubeMesh has the NVLinks of the V100s, as nvidia-smi's topology matrix shows them:
// those that are double, and the others.
var cubeMesh = [2][][2]int{
	{{0, 3}, {0, 4}, {1, 2}, {1, 5}, {2, 3}, {4, 7}, {5, 6}, {6, 7}},
	{{0, 1}, {0, 2}, {1, 3}, {2, 6}, {3, 7}, {4, 5}, {4, 6}, {5, 7}},
}

// Shape is that of a node with n GPUs in the arrangement. There are numbers of GPUs
// that an arrangement does not have, and unknown arrangements, which are errors.
func (a Arrangement) Shape(n int) (*Shape, error) {
	joins, err := a.Joins(n)
	if err != nil {
		return nil, err
	}
	return New(n, joins...)
}

// Joins are those of the Shape.
func (a Arrangement) Joins(n int) (joins []Join, err error) {
	if n < 0 || n > MaxDevices {
		return nil, fmt.Errorf("%d GPUs, of which at most %d can be told apart", n, MaxDevices)
	}
	pairs := func(link Link) {
		for i := 0; i+1 < n; i += 2 {
			joins = append(joins, Join{link, SetOf(i, i+1)})
		}
	}
	halves := func() {
		if n%4 == 0 {
			joins = append(joins, Join{NUMA, First(n / 2)}, Join{NUMA, First(n) &^ First(n/2)})
		}
	}
	switch a {
	case Alike:
	case Switch:
		joins = append(joins, Join{NVLinks, First(n)})
	case Bridges:
		pairs(NVLinks)
		halves()
	case PCIePairs:
		pairs(PCIe)
		halves()
	case CubeMesh:
		if n != 4 && n != 8 {
			return nil, fmt.Errorf("%d GPUs in a %s, which has 4 or 8", n, a)
		}
		for kind, links := range cubeMesh {
			for _, l := range links {
				if l[1] < n {
					joins = append(joins, Join{NVLinks + Link(kind), SetOf(l[0], l[1])})
				}
			}
		}
		halves()
	default:
		return nil, fmt.Errorf("unknown arrangement of GPUs %q", a)
	}
	return joins, nil
}

// products are parts of the names of GPUs, the first that is found counts.
var products = []struct {
	part        string
	arrangement Arrangement
}{
	{"-MIG-", Alike},
	{"-SHARED", Alike},
	{"V100-SXM3", Switch},
	{"V100-SXM2", CubeMesh},
	{"-NVL", Bridges},
	{"PCIE", PCIePairs},
	{"SXM", Switch},
	{"GB200", Switch}, {"GB300", Switch}, {"B200", Switch}, {"B300", Switch},
	{"H100", Switch}, {"H200", Switch}, {"H800", Switch}, {"H20", Switch},
	{"L40", PCIePairs}, {"L20", PCIePairs}, {"L4", PCIePairs}, {"L2", PCIePairs},
	{"A40", PCIePairs}, {"A30", PCIePairs}, {"A16", PCIePairs}, {"A10", PCIePairs}, {"A2", PCIePairs},
	{"T4", PCIePairs}, {"RTX", PCIePairs}, {"P40", PCIePairs}, {"P4", PCIePairs},
}

// OfProduct is how GPUs of that name are mostly arranged, false if it is not known.
// Names are those of the label nvidia.com/gpu.product, or of NVML. Whether there are
// NVLink bridges between PCIe cards no name says: they count as none, except where
// they come with the cards.
func OfProduct(name string) (Arrangement, bool) {
	name = strings.ToUpper(strings.ReplaceAll(name, " ", "-"))
	for _, p := range products {
		if strings.Contains(name, p.part) {
			return p.arrangement, true
		}
	}
	return Alike, false
}

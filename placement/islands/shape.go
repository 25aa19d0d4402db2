package islands

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Link is how two GPUs of a node are joined. A smaller one is better.
type Link uint8

const (
	// NVLinks is an NVSwitch, an NVLink bridge, or several NVLinks.
	NVLinks Link = iota
	// NVLink is a single NVLink, where others have several.
	NVLink
	// PCIe is a PCIe root or switch that both are on.
	PCIe
	// NUMA is a NUMA node that both are in.
	NUMA
	// Machine is nothing but the node.
	Machine
)

// String is what the link is called in sentences.
func (l Link) String() string {
	switch l {
	case NVLinks, NVLink:
		return "NVLink"
	case PCIe:
		return "PCIe root"
	case NUMA:
		return "NUMA node"
	}
	return "node"
}

// Join is a set of GPUs of which each two are joined by the same link.
type Join struct {
	Link    Link
	Devices Set
}

// Shape is how the GPUs of a node are joined. It does not change, and is safe for
// concurrent use. Build one for nodes that are alike: it remembers what it has found.
type Shape struct {
	n     int
	links [MaxDevices][MaxDevices]Link
	// beside are, for each GPU, those to which it is joined by more than a NUMA node.
	beside [MaxDevices]Set
	// uniform: all are joined alike.
	uniform bool

	once sync.Once
	// tabulating and tabulated say that the tables below are being made, and that they
	// are there.
	tabulating, tabulated atomic.Bool
	// apart is, for each set, the worst link of two of its GPUs.
	apart []Link
	// rings is, for each set, the worst link of its best ring.
	rings []Link
	// uses is how many sets of other pods each set has.
	uses []usefulness
	// sure is, for each size of a pod and each number of free GPUs, the worst link of the
	// pod's best GPUs, over all sets of so many.
	sure [MaxDevices + 1][MaxDevices + 1]Link

	mu     sync.Mutex
	chosen map[question]Choice
	likely map[guess]Fit
}

type question struct {
	free Set
	n    int
}

// New is the shape of a node with n GPUs. Each two are joined by the best link of
// the joins that have both, or else by the node alone. More than MaxDevices GPUs,
// and joins with others than there are, are errors.
func New(n int, joins ...Join) (*Shape, error) {
	if n < 0 || n > MaxDevices {
		return nil, fmt.Errorf("%d GPUs, of which at most %d can be told apart", n, MaxDevices)
	}
	s := &Shape{n: n, chosen: map[question]Choice{}, likely: map[guess]Fit{}}
	for i := range s.links {
		for k := range s.links[i] {
			s.links[i][k] = Machine
		}
	}
	for _, j := range joins {
		if j.Devices&^First(n) != 0 {
			return nil, fmt.Errorf("GPUs %v are joined by %v, of a node with %d", j.Devices, j.Link, n)
		}
		for i := range j.Devices.Indices() {
			for k := range j.Devices.Indices() {
				s.links[i][k] = min(s.links[i][k], j.Link)
			}
		}
	}
	s.uniform = true
	for i := range n {
		for k := range i {
			s.uniform = s.uniform && s.links[i][k] == s.links[1][0]
			if s.links[i][k] < NUMA {
				s.beside[i] |= SetOf(k)
				s.beside[k] |= SetOf(i)
			}
		}
	}
	return s, nil
}

// Devices is the number of GPUs.
func (s *Shape) Devices() int { return s.n }

// Uniform tells whether all GPUs are joined alike, so that it does not matter
// which of them a pod gets.
func (s *Shape) Uniform() bool { return s.uniform }

// Same tells whether the GPUs of the other are joined in the same way.
func (s *Shape) Same(other *Shape) bool { return s.n == other.n && s.links == other.links }

// Apart is the worst link of two GPUs of the set, NVLinks for fewer than two.
func (s *Shape) Apart(set Set) Link {
	if s.uniform {
		if set.Len() < 2 {
			return NVLinks
		}
		return s.links[1][0]
	}
	s.once.Do(s.tabulate)
	return s.apart[set]
}

// quick is for how many GPUs all sets are looked at in a millisecond or two.
const quick = 10

// Ready says that the next question is answered at once. Where it would take long, as
// the first one about a Shape of many GPUs does, it has the answers made in the
// background, and is false until they are there.
func (s *Shape) Ready() bool {
	if s.uniform || s.n <= quick || s.tabulated.Load() {
		return true
	}
	if s.tabulating.CompareAndSwap(false, true) {
		go s.once.Do(s.tabulate)
	}
	return false
}

// tabulate looks at all sets, once.
func (s *Shape) tabulate() {
	s.apart = make([]Link, 1<<s.n)
	for set := range s.apart {
		if set == 0 {
			continue
		}
		// The set without its last GPU is known.
		last := bits.Len(uint(set)) - 1
		rest := Set(set) &^ SetOf(last)
		s.apart[set] = s.apart[rest]
		for i := range rest.Indices() {
			s.apart[set] = max(s.apart[set], s.links[i][last])
		}
	}
	s.rings = s.ringsOf()
	s.uses = usefulnessOf(s.apart)
	for n := range s.n + 1 {
		s.sure[n] = s.surely(n)
	}
	s.tabulated.Store(true)
}

// ringsOf is, for each set, the worst link of its best ring, in which each GPU talks
// to two others: it is better than what joins the worst two where some reach each
// other only through others. In a tree it is the same.
func (s *Shape) ringsOf() []Link {
	rings := make([]Link, 1<<s.n)
	// paths has the worst link of the best path from the lowest GPU of a set through
	// all of it to another one.
	paths := make([][MaxDevices]Link, len(rings))
	for set := range paths {
		if set == 0 {
			continue
		}
		first := bits.TrailingZeros(uint(set))
		others := Set(set) &^ SetOf(first)
		if others != 0 {
			rings[set] = Machine
		}
		for last := range others.Indices() {
			before := others &^ SetOf(last)
			path := s.links[first][last]
			if before != 0 {
				path = Machine
				for i := range before.Indices() {
					path = min(path, max(paths[Set(set)&^SetOf(last)][i], s.links[i][last]))
				}
			}
			paths[set][last] = path
			rings[set] = min(rings[set], max(path, s.links[last][first]))
		}
	}
	return rings
}

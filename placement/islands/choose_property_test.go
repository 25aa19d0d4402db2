package islands

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// shapes are those of all makers, and any other.
func shapes() *rapid.Generator[*Shape] {
	type made struct {
		a Arrangement
		n int
	}
	all := []made{{Switch, 8}, {Switch, 4}, {CubeMesh, 8}, {CubeMesh, 4}, {Bridges, 8}, {Bridges, 4}, {PCIePairs, 8}, {PCIePairs, 4}, {PCIePairs, 10}, {Alike, 8}, {Alike, 0}}
	return rapid.Custom(func(t *rapid.T) *Shape {
		if rapid.Bool().Draw(t, "known") {
			m := rapid.SampledFrom(all).Draw(t, "arrangement")
			s, err := m.a.Shape(m.n)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		n := rapid.IntRange(0, 7).Draw(t, "GPUs")
		var joins []Join
		for range rapid.IntRange(0, 6).Draw(t, "joins") {
			joins = append(joins, Join{Link(rapid.IntRange(0, int(Machine)).Draw(t, "link")), Set(rapid.Uint16().Draw(t, "joined")) & First(n)})
		}
		s, err := New(n, joins...)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

// worst is the worst link of two GPUs, by the definition.
func worst(s *Shape, set Set) (link Link) {
	for i := range set.Indices() {
		for k := range set.Indices() {
			if i != k {
				link = max(link, s.links[i][k])
			}
		}
	}
	return link
}

// ring is the worst link of the best ring: all orders are tried.
func ring(s *Shape, set Set) Link {
	indices := slices.Collect(set.Indices())
	if len(indices) < 2 {
		return NVLinks
	}
	best := Machine
	var try func(k int, link Link)
	try = func(k int, link Link) {
		if k == len(indices) {
			best = min(best, max(link, s.links[indices[k-1]][indices[0]]))
			return
		}
		for i := k; i < len(indices); i++ {
			indices[k], indices[i] = indices[i], indices[k]
			try(k+1, max(link, s.links[indices[k-1]][indices[k]]))
			indices[k], indices[i] = indices[i], indices[k]
		}
	}
	try(1, NVLinks)
	return best
}

// better tells whether a rest is of more use: it has more sets of eight, four or two
// GPUs that are joined, larger ones first, better joined ones first.
func better(s *Shape, a, b Set) bool {
	count := func(rest Set, size int, link Link) (n int) {
		for set := range 1 << s.n {
			if Set(set)&^rest == 0 && Set(set).Len() == size && worst(s, Set(set)) <= link {
				n++
			}
		}
		return n
	}
	for _, size := range []int{8, 4, 2} {
		for link := NVLinks; link < Machine; link++ {
			if x, y := count(a, size, link), count(b, size, link); x != y {
				return x > y
			}
		}
	}
	return false
}

// Of all sets of free GPUs none is better than the one that is chosen.
func TestChooseIsBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shapes().Draw(t, "shape")
		free := Set(rapid.Uint16().Draw(t, "free")) & First(s.Devices())
		n := rapid.IntRange(0, s.Devices()+1).Draw(t, "asked")
		c, ok := s.Choose(free, n)
		if ok != (n <= free.Len()) {
			t.Fatalf("%d of %v: %v", n, free, ok)
		}
		if !ok {
			return
		}
		if c.Devices&^free != 0 || c.Devices.Len() != n || c.Link != worst(s, c.Devices) {
			t.Fatalf("%d of %v are %v over %v", n, free, c.Devices, c.Link)
		}
		for i := range 1 << s.Devices() {
			set := Set(i)
			if set&^free != 0 || set.Len() != n {
				continue
			}
			switch link := worst(s, set); {
			case link < c.Link:
				t.Fatalf("%v of %v over %v, not %v over %v", c.Devices, free, c.Link, set, link)
			case link > c.Link:
			case ring(s, set) < ring(s, c.Devices):
				t.Fatalf("%v of %v, but %v has a better ring", c.Devices, free, set)
			case ring(s, set) == ring(s, c.Devices) && better(s, free&^set, free&^c.Devices):
				t.Fatalf("%v of %v, but %v leaves more", c.Devices, free, set)
			}
		}
	})
}

// Pods of a power of two that only come are each in a whole island, or a part of
// one: what is free is never in more pieces than it must be.
func TestIslandsStayWhole(t *testing.T) {
	for _, a := range []Arrangement{CubeMesh, Bridges, PCIePairs, Switch} {
		s := shapeOf(t, a, 8)
		rapid.Check(t, func(t *rapid.T) {
			free := First(8)
			for free != 0 {
				n := rapid.SampledFrom([]int{1, 2, 4, 8}).Filter(func(n int) bool { return n <= free.Len() }).Draw(t, "pod")
				c, _ := s.Choose(free, n)
				if all, _ := s.Choose(First(8), n); c.Link > all.Link {
					t.Fatalf("%d of %v are joined by %v, and by %v on an empty node", n, free, c.Link, all.Link)
				}
				free &^= c.Devices
			}
		})
	}
}

// What is sure is so whichever GPUs are free, and no more is promised than must be;
// what is possible is so for some.
func TestLikelyIsTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shapes().Draw(t, "shape")
		free := rapid.IntRange(0, s.Devices()+1).Draw(t, "free")
		n := rapid.IntRange(0, s.Devices()).Draw(t, "asked")
		f, ok := s.Likely(free, n, 1)
		if ok != (free <= s.Devices() && n <= free) {
			t.Fatalf("%d of %d: %v", n, free, ok)
		}
		if !ok {
			return
		}
		best, least := Machine, NVLinks
		for i := range 1 << s.Devices() {
			if Set(i).Len() != free {
				continue
			}
			c, _ := s.Choose(Set(i), n)
			best, least = min(best, c.Link), max(least, c.Link)
		}
		if f.Possible != best || f.Sure != least {
			t.Fatalf("%d of %d over %v, surely over %v; it is %v and %v", n, free, f.Possible, f.Sure, best, least)
		}
	})
}

// Several pods that are sure of a link have it, when they come one after the other.
func TestSureOfSeveral(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shapes().Draw(t, "shape")
		n, pods := rapid.IntRange(1, 4).Draw(t, "asked"), rapid.IntRange(0, 4).Draw(t, "pods")
		for free := range First(s.Devices()) {
			known, ok := s.Fit(free, n, pods)
			likely, alsoOK := s.Likely(free.Len(), n, pods)
			if ok != alsoOK {
				t.Fatalf("%d pods of %d in %v: %v, and %v where only the number is known", pods, n, free, ok, alsoOK)
			}
			if ok && known.Possible > likely.Sure {
				t.Fatalf("%d pods of %d in %v are joined by %v, surely by %v", pods, n, free, known.Possible, likely.Sure)
			}
		}
	})
}

func BenchmarkChoose(b *testing.B) {
	for _, bench := range []struct {
		a Arrangement
		n int
	}{{PCIePairs, 8}, {CubeMesh, 8}, {PCIePairs, 16}} {
		b.Run(fmt.Sprintf("%s of %d, anew", bench.a, bench.n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				shapeOf(b, bench.a, bench.n).Choose(First(bench.n), bench.n/2)
			}
		})
		b.Run(fmt.Sprintf("%s of %d", bench.a, bench.n), func(b *testing.B) {
			s := shapeOf(b, bench.a, bench.n)
			b.ReportAllocs()
			for b.Loop() {
				s.Fit(First(bench.n), 2, 4)
			}
		})
	}
}

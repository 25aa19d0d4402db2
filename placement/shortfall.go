package placement

import (
	"cmp"
	"slices"
)

// shortfall finds the fewest GPUs that would have to become free for more pods, node
// by node, if nothing but GPUs counts. perPod is 0 where that is not to be found:
// for pods without GPUs, and for those that ask for several kinds.
type shortfall struct {
	perPod int64
	nodes  []deficit
}

// shortfallOf is that of a class, without nodes yet.
func shortfallOf(d *demand) shortfall {
	kinds := 0
	for i := range d.scalars {
		if d.scalars[i].gpu {
			kinds++
		}
	}
	if kinds != 1 {
		return shortfall{}
	}
	return shortfall{perPod: d.gpus}
}

// deficit is what one node lacks for one more pod, and how many more it would hold if
// all were free.
type deficit struct {
	gpus int64
	more int
}

// add counts a node of which so many GPUs are free, and size are free or may become
// so. Less than none is free where what others have not left is promised already, or
// pods have more than the node says that there are.
func (s *shortfall) add(free, size int64) {
	if s.perPod == 0 {
		return
	}
	free = max(0, free)
	fits := free / s.perPod
	if more := size/s.perPod - fits; more > 0 {
		s.nodes = append(s.nodes, deficit{gpus: s.perPod*(fits+1) - free, more: int(more)})
	}
}

// of is how many GPUs are missing for so many more pods, and on how many nodes; 0 and
// 0 if none are, or the nodes are too small for them.
func (s *shortfall) of(pods int) (gpus int64, nodes int) {
	if pods <= 0 {
		return 0, 0
	}
	slices.SortFunc(s.nodes, func(a, b deficit) int { return cmp.Or(cmp.Compare(a.gpus, b.gpus), cmp.Compare(b.more, a.more)) })
	// The first pod of a node may need fewer than all its GPUs, each further one
	// needs all of them.
	n := 0
	for n < len(s.nodes) && n < pods && s.nodes[n].gpus < s.perPod {
		gpus += s.nodes[n].gpus
		n++
	}
	left := pods - n
	gpus += int64(left) * s.perPod
	for i := 0; i < n && left > 0; i++ {
		left -= min(left, s.nodes[i].more-1)
	}
	for ; n < len(s.nodes) && left > 0; n++ {
		left -= min(left, s.nodes[n].more)
	}
	if left > 0 {
		return 0, 0
	}
	return gpus, n
}

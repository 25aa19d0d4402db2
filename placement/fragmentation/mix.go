package fragmentation

import (
	"cmp"
	"math"
)

// lasting is how much those GPUs count that pods of one kind could use, but for
// which CPU or memory would not last if only such pods came from now on. A seventh
// to a half are equally good in the replay of a trace (see BenchmarkOpenb).
// Without it CPU runs out beside free GPUs; with much more of it whole nodes are
// broken up too early.
const lasting = 0.25

// lonely is how much of a free GPU counts as of no use to pods with several GPUs where it
// is the only free one of its island: less than a GPU that they cannot have at all, and
// more than what a little CPU or memory makes of a difference.
const lonely = 0.25

// Mix is the kinds of pods that are asked for. It does not change.
type Mix struct {
	// kinds are those with GPUs: to pods without, free GPUs are no use, so no node
	// is better than another for it.
	kinds []kind
}

// kind is a request with its part of all GPUs that are asked for.
type kind struct {
	Request
	weight float64
	// perCPU and perMemory are how much of the GPUs, in thousandths, it uses with
	// each thousandth of a CPU and each byte, 0 where it asks for none.
	perCPU, perMemory float64
}

func newKind(r Request, weight float64) kind {
	k := kind{Request: r, weight: weight}
	if r.MilliCPU > 0 {
		k.perCPU = float64(r.GPUs()) / float64(r.MilliCPU)
	}
	if r.Memory > 0 {
		k.perMemory = float64(r.GPUs()) / float64(r.Memory)
	}
	return k
}

// Fragment is what of the node's free GPUs the pods of the mix are expected not
// to be able to use, in thousandths of a GPU.
func (m *Mix) Fragment(f Free) float64 {
	free := f.GPUs()
	if free == 0 {
		return 0
	}
	total, whole := float64(free), float64(f.Devices)*Whole
	sum := 0.0
	for i := range m.kinds {
		k := &m.kinds[i]
		if f.Pools>>k.Pool&1 == 0 || !f.Holds(&k.Request) {
			sum += k.weight * total
			continue
		}
		// Of whole devices as many as pods can share out, of shares those that are
		// large enough.
		usable := whole
		if k.Devices > 1 {
			usable = float64(f.Devices/k.Devices*k.Devices) * Whole
		}
		for _, part := range f.Parts {
			if k.Share == 0 || part < k.Share {
				break
			}
			usable += float64(part)
		}
		// As much of the GPUs as CPU and memory last for.
		lasts := usable
		if k.perCPU > 0 {
			lasts = min(lasts, float64(f.MilliCPU)*k.perCPU)
		}
		if k.perMemory > 0 {
			lasts = min(lasts, float64(f.Memory)*k.perMemory)
		}
		sum += k.weight * (total - usable + lasting*(usable-lasts))
	}
	return sum
}

// Lonely is how much of a node's GPUs is lost when n more of the free ones, n less where
// it is negative, are joined to no other free one, in millionths of a GPU as of
// Score.Growth. The node is in the pools. Fragment does not know of that: to it
// all free GPUs of a node are alike.
func (m *Mix) Lonely(n int, pools uint64) int64 {
	if n == 0 {
		return 0
	}
	several := 0.0
	for i := range m.kinds {
		if k := &m.kinds[i]; k.Devices > 1 && pools>>k.Pool&1 == 1 {
			several += k.weight
		}
	}
	return int64(math.Round(lonely * several * float64(n) * Whole * 1000))
}

// Score says how well a pod goes onto a node.
type Score struct {
	// Exact: the pod takes all GPUs of the node that are free.
	Exact bool
	// Growth is by how much the node's fragment grows, in millionths of a GPU. It
	// is negative where the pod takes what few others could use.
	Growth int64
}

// Compare orders the better first, as of slices.SortFunc: an exact fit, then the
// least growth.
func (s Score) Compare(other Score) int {
	switch {
	case s.Exact && !other.Exact:
		return -1
	case other.Exact && !s.Exact:
		return 1
	}
	return cmp.Compare(s.Growth, other.Growth)
}

// Place is the score of a pod that fits, and the device from which its share is
// best taken: a place in Parts, or Unused.
func (m *Mix) Place(f *Free, r *Request) (Score, int) { return place(f, r, m.Fragment) }

func place(f *Free, r *Request, fragment func(Free) float64) (score Score, device int) {
	least := math.Inf(1)
	try := func(at int) {
		if x := fragment(f.Less(r, at)); x < least {
			least, device = x, at
		}
	}
	if r.Share > 0 {
		for at, part := range f.Parts {
			if part < r.Share {
				break
			}
			if at == 0 || part != f.Parts[at-1] {
				try(at)
			}
		}
	}
	if r.Share == 0 || f.Devices > 0 {
		try(Unused)
	}
	score.Growth = int64(math.Round((least - fragment(*f)) * 1000))
	score.Exact = r.GPUs() > 0 && r.GPUs() == f.GPUs()
	return score, device
}

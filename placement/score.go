package placement

import (
	"cmp"

	"github.com/muster-gpu/muster/placement/fragmentation"
	"github.com/muster-gpu/muster/placement/islands"
)

// Score says how well pods go onto a node. The zero value is that of any node, where
// nothing makes a difference.
type Score struct {
	// Link is the worst between two GPUs of one pod, if all goes well.
	Link islands.Link
	// Score is that of the GPUs that are left; free ones that nothing is beside any more
	// count for less to pods with several.
	fragmentation.Score
	// Sure is the Link in any case, and Breaks what is taken away from other free
	// GPUs, as of islands.Fit.
	Sure   islands.Link
	Breaks uint32
}

// Compare orders the better first, as of slices.SortFunc: the closest GPUs, as far as
// it is known that there are any; then the most useful rest; and of equal ones
// again the closest, as far as that is known, and the least broken islands.
func (s Score) Compare(other Score) int {
	return cmp.Or(
		cmp.Compare(s.Link, other.Link),
		s.Score.Compare(other.Score),
		cmp.Compare(s.Sure, other.Sure),
		cmp.Compare(s.Breaks, other.Breaks))
}

// scoreOf is that of a node whose rest has the score and whose islands the fit, in the
// pools of the mix.
func scoreOf(rest fragmentation.Score, f islands.Fit, mix *fragmentation.Mix, pools uint64) Score {
	rest.Growth += mix.Lonely(f.Lonely, pools)
	return Score{Link: f.Possible, Score: rest, Sure: f.Sure, Breaks: f.Breaks}
}

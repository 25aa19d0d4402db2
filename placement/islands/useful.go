package islands

import "slices"

// sizes of pods for which a rest is kept useful, the largest first: those of whole
// islands. Pods of other sizes go into what is left of these.
var sizes = [...]int{8, 4, 2}

// usefulness is, for each size of pods and each link better than the node, how many
// sets of that size are joined by the link or a better one. Larger sets count first,
// and of one size the better links. Many sets of one size are in one whole island
// rather than in two halves, so islands stay whole.
type usefulness [len(sizes) * int(Machine)]uint16

func (u *usefulness) compare(other *usefulness) int { return slices.Compare(u[:], other[:]) }

// usefulnessOf is that of each set, by the worst link of each set.
func usefulnessOf(apart []Link) []usefulness {
	uses := make([]usefulness, len(apart))
	for set := range apart {
		for i, size := range sizes {
			if Set(set).Len() == size {
				for link := apart[set]; link < Machine; link++ {
					uses[set][i*int(Machine)+int(link)] = 1
				}
			}
		}
	}
	// Sum over subsets, one GPU after the other.
	for bit := 1; bit < len(uses); bit <<= 1 {
		for set := range uses {
			if set&bit == 0 {
				continue
			}
			for i, n := range uses[set^bit] {
				uses[set][i] += n
			}
		}
	}
	return uses
}

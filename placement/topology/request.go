package topology

import "slices"

// None is the level of a request for no domain in particular.
const None = -1

// Request is what a gang asks of a Tree.
type Request struct {
	// Count is the number of pods, all of one size.
	Count int
	// Leader: one more pod, of another size, is beside the first of them.
	Leader bool
	// Level is that of the domain that all pods should share: 0 is the outermost,
	// the number of levels that of single nodes. None: any.
	Level int
	// Required: without such a domain there is no place.
	Required bool
	// Slices are pods, one after the other, that must share a domain of their own,
	// from the outermost to those within others. There is no leader with slices.
	Slices []Slice
	// Kept has the node of each pod of the gang that stays where it is.
	Kept []int
	// Better, if set, orders two nodes for so many pods on each, the better first, as of
	// slices.SortFunc. It decides between nodes of one domain that both have room for all
	// that is left, and, where no node has, between those with room for as many.
	Better func(a, b, pods int) int
	// Rank, if set, leaves the choice between domains that fit to chance.
	Rank func() uint32
}

// Slice is Size pods, one after the other, in one domain of Level. Of the outermost
// slices Level is that of the Request or further in, and the last one may have fewer
// pods; there is no place for fewer if there are others within. Of slices within others Level is further in than
// theirs, and Size goes into theirs without a rest.
type Slice struct{ Size, Level int }

// outermost are the outermost slices, of which a domain at their level and those
// further out have so many: single pods on nodes where there are none. rest is how
// many pods are in the last if those are fewer, else 0.
func (r *Request) outermost(nodes int) (s Slice, rest int) {
	if len(r.Slices) == 0 {
		return Slice{1, nodes}, 0
	}
	return r.Slices[0], r.Count % r.Slices[0].Size
}

// unit is how many pods are counted as one in domains of a level.
func (r *Request) unit(level int) int {
	for _, s := range r.Slices {
		if level <= s.Level {
			return s.Size
		}
	}
	return 1
}

// sliced says that slices must each share a domain of the level.
func (r *Request) sliced(level int) bool {
	return slices.ContainsFunc(r.Slices, func(s Slice) bool { return s.Level == level && s.Size > 1 })
}

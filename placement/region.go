package placement

import "strings"

// region is a packing of nodes that topology spread treats alike. While its
// domains are ahead of others it is blocked as a whole: trying its nodes one
// by one would cost a Filter call each, to the same end.
type region struct {
	*packing
	blocked bool
}

// regions splits the candidates by the values of the labels over which the
// class must be spread; a class without such constraints has one region.
func (s *classSearch) regions() []*region {
	candidates, score := s.candidates(), s.scoring()
	if len(s.spreadKeys) == 0 {
		return []*region{{packing: newPacking(candidates, score)}}
	}
	byValues := make(map[string][]candidate)
	var order []string
	for _, c := range candidates {
		k := s.labelValues(c.node, s.spreadKeys)
		if byValues[k] == nil {
			order = append(order, k)
		}
		byValues[k] = append(byValues[k], c)
	}
	regions := make([]*region, 0, len(order))
	for _, k := range order {
		regions = append(regions, &region{packing: newPacking(byValues[k], score)})
	}
	return regions
}

// labelValues joins the values that the node has for the labels.
func (t *trial) labelValues(node int, keys []string) string {
	labels := t.nodes[node].Node().Labels
	values := make([]string, len(keys))
	for i, key := range keys {
		values[i] = labels[key]
	}
	return strings.Join(values, "\x00")
}

// nextRegion returns the region with the candidate to try next and the
// candidate's index; nil if no region that is not blocked has any.
func nextRegion(regions []*region, left int) (*region, int) {
	var best *region
	at := 0
	for _, r := range regions {
		if r.blocked {
			continue
		}
		i, ok := r.peek(left)
		if ok && (best == nil || comparePacking(&r.all[i], &best.all[at], left, r.score) < 0) {
			best, at = r, i
		}
	}
	return best, at
}

// unblock lets all regions be tried again and tells whether any was blocked.
func unblock(regions []*region) bool {
	blocked := false
	for _, r := range regions {
		blocked = blocked || r.blocked
		r.blocked = false
	}
	return blocked
}

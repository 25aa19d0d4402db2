package quota

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// search looks for the flavors of one request.
type search struct {
	tree    *Tree
	queue   *clusterQueue
	request *Request
	// empty has it look as if no other job were in the whole cohort.
	empty bool
	// wordless: nobody will read what is missing; mute is what stands for it then,
	// and bar what has to change before the answer can.
	wordless bool
	mute     misfit
	bar      Bar
}

// fit gives every pod set, in order, a flavor for each group, beside what is
// used and what the pod sets before it took. Which flavor is first is the
// admin's choice, so nothing is traded between pod sets. Both are returned where
// others have to leave for the assignment.
func (s *search) fit(sets []demand) (*Assignment, *misfit) {
	groups := s.queue.spec.groups
	picked := make([]string, len(sets)*len(groups))
	// before is what the pod sets took that have been looked at.
	var before Usage
	var first *misfit
	mode, borrows := Fit, 0
	for i := range sets {
		d := &sets[i]
		for g, asked := range d.groups {
			if asked == nil {
				continue
			}
			flavor, o, miss := s.choose(&d.podSet, g, asked, before)
			if miss != nil && !s.wordless {
				miss.lookAround(g, sets, i)
			}
			if !o.possible() {
				if i > 0 && len(groups[g].flavors) > 1 {
					// What it needs is beside what was chosen for others.
					s.bar = Bar{}
				}
				return nil, miss
			}
			if first == nil {
				first = miss
			}
			if o.chance != fits {
				mode = Preempt
			}
			borrows = max(borrows, o.level)
			picked[i*len(groups)+g] = flavor
			if i+1 < len(sets) {
				before = before.with(flavor, asked)
			}
		}
	}
	if s.empty {
		return nil, first
	}
	a := &Assignment{ClusterQueue: s.queue.name, Mode: mode, Borrows: borrows}
	if s.wordless && first != nil {
		s.bar = Bar{}
		if s.queue.asksNobody() {
			s.bar = s.barWhole(sets)
			return a, first
		}
	}
	a.Flavors, a.PodSetUsage = make([]map[corev1.ResourceName]string, len(sets)), make([]Requests, len(sets))
	for i := range sets {
		a.Flavors[i], a.PodSetUsage[i] = map[corev1.ResourceName]string{}, Requests{}
		for g, asked := range sets[i].groups {
			flavor := picked[i*len(groups)+g]
			for _, of := range asked {
				a.Flavors[i][of.resource] = flavor
				a.PodSetUsage[i][of.resource] = of.value
			}
			a.Usage = a.Usage.with(flavor, asked)
		}
	}
	if a.Usage == nil {
		a.Usage = Usage{}
	}
	return a, first
}

// with adds what is asked of a flavor.
func (u Usage) with(flavor string, asked []portion) Usage {
	for _, of := range asked {
		if of.value > 0 {
			if u == nil {
				u = Usage{}
			}
			cell := FlavorResource{flavor, of.resource}
			u[cell] = saturatingAdd(u[cell], of.value)
		}
	}
	return u
}

// choose picks the flavor of group g for a pod set, as the ClusterQueue's
// flavorFungibility has it. The misfit says why it does not fit now; its
// outlook is the zero one where no flavor is possible.
func (s *search) choose(ps *PodSet, g int, asked []portion, before Usage) (flavor string, o outlook, miss *misfit) {
	var best outlook
	flavors := s.queue.spec.groups[g].flavors
	borrows := 0
	miss = s.misfit(ps, len(flavors))
	if s.wordless {
		s.bar = Bar{known: true}
	}
	for _, name := range flavors {
		if !ps.mayHave(name, asked) {
			if !s.wordless {
				miss.refused = append(miss.refused, fmt.Sprintf("flavor %s is ruled out for it", name))
			}
			continue
		}
		f := s.tree.flavors[name]
		if !eligible(ps.Template, f) {
			if !s.wordless {
				miss.refused = append(miss.refused, ineligible(ps.Template, f))
			}
			continue
		}
		if level, lacks := s.tree.lacksLevel(ps, name); lacks {
			if !s.wordless {
				miss.refused = append(miss.refused, s.tree.noLevel(level, name))
			}
			continue
		}
		o, level := s.look(name, asked, before, len(flavors) > 1, miss)
		stop := s.queue.spec.fungibility.stops(o)
		if o.possible() && (flavor == "" || stop || s.queue.spec.fungibility.better(o, best)) {
			flavor, best, borrows = name, o, level
		}
		if stop {
			break
		}
	}
	if best.chance == fits {
		miss = nil
	}
	return flavor, outlook{best.chance, borrows}, miss
}

// misfit is where choose notes why a pod set does not fit.
func (s *search) misfit(ps *PodSet, flavors int) *misfit {
	if s.wordless {
		s.mute = misfit{}
		return &s.mute
	}
	return &misfit{clusterQueue: s.queue.name, podSet: ps.Name, flavors: flavors}
}

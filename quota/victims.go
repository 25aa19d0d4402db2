package quota

import "slices"

// Victims is the set that Kueue would have leave, which knows quota alone: in
// Kueue's order until the request fits, less those that it fits without, looked
// at the other way around. It is nil where no set is enough. It begins with
// nobody removed, and leaves it so.
func (p *Preemption) Victims() []Candidate {
	for _, v := range p.removed() {
		p.restore(v)
	}
	for _, borrowing := range p.attempts {
		chosen := p.choose(borrowing)
		for _, v := range chosen {
			p.restore(v)
		}
		if len(chosen) > 0 {
			out := make([]Candidate, len(chosen))
			for i, v := range chosen {
				out[i] = v.Candidate
			}
			return out
		}
	}
	return nil
}

// choose removes a set with which the request fits and returns it, or removes
// nobody.
func (p *Preemption) choose(borrowing bool) []*victim {
	enough := func() bool { return p.fits(borrowing) }
	var chosen []*victim
	var done bool
	if p.fair == nil {
		chosen, done = p.chooseInOrder(borrowing, enough)
	} else {
		chosen, done = p.chooseFairly(enough)
	}
	if done {
		return p.spare(chosen, borrowing)
	}
	for _, v := range chosen {
		p.restore(v)
	}
	return nil
}

// chooseInOrder removes victims until enough says so. It returns them, and
// whether that came.
func (p *Preemption) chooseInOrder(borrowing bool, enough func() bool) (chosen []*victim, done bool) {
	for _, v := range p.victims {
		if (borrowing && v.homebound) || !p.legal(v) {
			continue
		}
		p.remove(v)
		chosen = append(chosen, v)
		if enough() {
			return chosen, true
		}
	}
	return chosen, false
}

// spare puts those back without which it fits too, the last one excepted.
func (p *Preemption) spare(chosen []*victim, borrowing bool) []*victim {
	for i := len(chosen) - 2; i >= 0; i-- {
		p.restore(chosen[i])
		if p.fits(borrowing) {
			chosen = slices.Delete(chosen, i, i+1)
		} else {
			p.remove(chosen[i])
		}
	}
	return chosen
}

// withVictims is the outlook of a cell for which others would have to be
// preempted. Who they are is looked at only where there are other flavors to
// choose from: Preemption finds it out for the one that is chosen.
func (s *search) withVictims(fr FlavorResource, need int64, level int, choice bool) outlook {
	p := s.queue.spec.preemption
	switch {
	case off(p.within) && (off(p.reclaim) || s.queue.parent == nil):
		return outlook{noVictims, level}
	case !choice:
		return outlook{preempts, level}
	}
	if s.tree.SharesFairly() && s.queue.parent != nil {
		return s.withFairVictims(fr, need, level)
	}
	f := &finder{request: s.request, queue: s.queue, usage: Usage{fr: need}, short: map[FlavorResource]bool{fr: true}}
	o := &oracle{finder: f, fr: fr, need: amountOf(need), workshop: &s.tree.workshop}
	chance, after := o.ask()
	if chance == noVictims {
		return outlook{noVictims, level}
	}
	return outlook{chance, after}
}

// withFairVictims is withVictims with fair sharing, where all shares change with
// every job that goes.
func (s *search) withFairVictims(fr FlavorResource, need int64, level int) outlook {
	search := s.tree.preemption(s.request, s.queue, Usage{fr: need}, true)
	victims := search.Victims()
	if len(victims) == 0 {
		return outlook{noVictims, level}
	}
	chance := reclaims
	for _, v := range victims {
		search.remove(search.byID[v.ID])
		if v.ClusterQueue == s.queue.name {
			chance = preempts
		}
	}
	level, _ = s.queue.borrowLevel(search.wanted[0].cell, amountOf(need))
	return outlook{chance, level}
}

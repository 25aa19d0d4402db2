package scheduling

import (
	"cmp"
	"maps"
	"slices"

	"github.com/muster-gpu/muster/quota"
)

// contestant is a job that waits, and what would become of it if it were tried
// now.
type contestant struct {
	e    *entry
	name string
	// starts says that it has quota and nodes; assignment is nil where it has no
	// quota and nobody could be stopped for it.
	starts     bool
	assignment *quota.Assignment
	// levels is from how many it would borrow.
	levels int
}

// turn orders the jobs of several ClusterQueues: who would borrow from fewer levels
// first, then in queue order.
func (c contestant) turn(o contestant) int {
	return cmp.Or(cmp.Compare(c.levels, o.levels), c.e.before(o.e))
}

// contestants are the jobs that may be tried, by ClusterQueue, each in queue order: of a
// StrictFIFO queue the first of those that do not step out.
func (s *stage) contestants() map[string][]contestant {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := map[string][]contestant{}
	for _, e := range s.jobs {
		if e.state == Pending && e.startable() && !e.requeueAt.after(s.clock.Now()) {
			c := contestant{e: e, name: e.job.Owner.Name}
			_, no := s.assign(e)
			cq, _ := s.quota.ClusterQueueOf(e.queue())
			if s.quota.Strict(cq) && no != nil && stepsOut(no.Class) {
				continue
			}
			lines[cq] = append(lines[cq], c)
		}
	}
	for cq, line := range lines {
		slices.SortFunc(line, func(a, b contestant) int { return a.e.before(b.e) })
		if s.quota.Strict(cq) {
			line = line[:1]
		}
		for i := range line {
			a, levels, _, plan := s.tryOut(line[i].e)
			line[i].assignment, line[i].levels, line[i].starts = a, levels, plan != nil
		}
		lines[cq] = line
	}
	return lines
}

// passInTurn is pass where each pass tries one job. It fails if somebody is
// admitted whose turn it is not, or could start and is not admitted, or if not all
// is withheld that may be.
func (s *stage) passInTurn() []string {
	s.wishes.order = nil
	for range 10000 {
		lines, had := s.contestants(), len(s.wishes.order)
		more := s.cycle.Pass(s.ctx)
		switch len(s.wishes.order) {
		case had:
		case had + 1:
			s.checkTurn(lines, s.admitted()[had])
		default:
			s.t.Fatalf("one pass admits %v", s.admitted()[had:])
		}
		if !more {
			s.checkEnd()
			return s.admitted()
		}
	}
	s.t.Fatalf("the passes never end")
	return nil
}

// checkTurn fails if it was another's turn than that of who was admitted.
func (s *stage) checkTurn(lines map[string][]contestant, admitted string) {
	var own string
	var winner contestant
	for cq, line := range lines {
		for _, c := range line {
			if c.name == admitted {
				own, winner = cq, c
			}
		}
	}
	if !winner.starts {
		s.t.Fatalf("%s is admitted and could not start", admitted)
	}
	for _, cq := range slices.Sorted(maps.Keys(lines)) {
		for _, c := range lines[cq] {
			if c.name == admitted || (cq != own && winner.turn(c) < 0) {
				break
			}
			if c.starts {
				s.t.Fatalf("%s of %s is admitted from %d levels, before %s of %s from %d", admitted, own, winner.levels, c.name, cq, c.levels)
			}
		}
	}
}

// checkEnd fails if somebody waits who could start, or a StrictFIFO queue keeps less
// than its head may keep, or keeps it for another one. It may keep more: what others
// have come to use, or keep, since the head was refused is noticed when that is tried
// again.
func (s *stage) checkEnd() {
	for cq, line := range s.contestants() {
		for _, c := range line {
			if c.starts {
				s.t.Fatalf("%s of %s could start and waits", c.name, cq)
			}
		}
		s.checkKept(cq, line[0])
	}
}

func (s *stage) checkKept(cq string, first contestant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.waits.heads[cq]
	if h.withheld != "" && (!s.quota.Strict(cq) || h.withheld != first.e.job.Owner.UID) {
		s.t.Fatalf("%s keeps %v for %s, its first job is %s", cq, h.kept, s.names[h.withheld], first.name)
	}
	if !s.quota.Strict(cq) || first.assignment == nil {
		return
	}
	want := s.quota.Withheld(first.e.request(nil), first.assignment)
	for cell, v := range want {
		if h.kept[cell] < v {
			s.t.Fatalf("%s keeps %v for %s, want %v", cq, h.kept, first.name, want)
		}
	}
}

package placement

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
)

// Progress is what was tried in vain by plans of a gang of which each ended because it
// had cost enough. The next one goes on from there, so that in the end all has been
// tried that one plan without a limit would try; what was tried on nodes that have changed
// since is tried again. The zero value is that of a gang that was not planned yet. It is
// for the same classes each time, and not safe for concurrent use.
type Progress struct {
	unfinished bool
	// learnt: the plan has added something of nodes of which nothing was known, however
	// they were before. doublings is how often plans may cost twice as much, because one
	// had cost enough before it had learnt anything.
	learnt    bool
	doublings int
	// domains are those that were tried one by one, by the name of their class, with their
	// generation.
	domains map[string]map[string]int64
	// refused is how much room Filter leaves a group on nodes that it was asked about.
	refused map[groupNode]refusedRoom
}

// groupNode is a node that a group has asked about. What one group may not have another
// may.
type groupNode struct{ group, node string }

// refusedRoom is the room on a node, and beside a leader, as of topology.Tree.Limit, as
// long as the node is of the generation.
type refusedRoom struct {
	generation   int64
	room, beside int
}

// Unfinished says that the last plan has ended before all was tried, so that another
// one may find nodes even if nothing has changed.
func (p *Progress) Unfinished() bool { return p.unfinished }

// ends notes that a plan has cost enough before all was tried.
func (p *Progress) ends() {
	p.unfinished = true
	if !p.learnt {
		p.doublings++
	}
}

// refuses notes how much room Filter leaves a group on a node.
func (p *Progress) refuses(of groupNode, r refusedRoom) {
	if p.refused == nil {
		p.refused = map[groupNode]refusedRoom{}
	}
	had, known := p.refused[of]
	if known && had.generation == r.generation {
		r.room, r.beside = min(r.room, had.room), min(r.beside, had.beside)
		known = r == had
	}
	p.refused[of], p.learnt = r, p.learnt || !known
}

// domain is a domain that is tried with others, one by one.
type domain struct {
	name string
	// nodes are indices, of what the caller says, and generation is that of the one that
	// has changed last.
	nodes      []int
	generation int64
	// outer: it is of a level further out than the one that is asked for.
	outer bool
}

// turn tries domains one by one, but for those that plans before have tried and that have
// not changed.
type turn struct {
	*trial
	// of is whose domains they are, and level which ones.
	of, level string
	// within: the domains are within one of another turn, which remembers.
	within bool
}

func (t *turn) run(domains []domain, try func(nodes []int) (done bool, err error)) (done bool, err error) {
	progress := t.progress
	if t.within {
		progress = &Progress{}
	}
	tried := progress.domains[t.of]
	before, all := 0, 0
	for _, d := range domains {
		if !d.outer {
			all++
		}
	}
	for _, d := range domains {
		if at, found := tried[d.name]; found && d.generation <= at {
			before++
			continue
		}
		done, err := try(d.nodes)
		if errors.Is(err, errSpent) && !t.within {
			t.untried = triedOf(before, all, t.level)
		}
		if done || err != nil {
			return done, err
		}
		before++
		progress.tries(t.of, d)
	}
	return false, nil
}

func (p *Progress) tries(of string, d domain) {
	if p.domains == nil {
		p.domains = map[string]map[string]int64{}
	}
	if p.domains[of] == nil {
		p.domains[of] = map[string]int64{}
	}
	_, again := p.domains[of][d.name]
	p.domains[of][d.name], p.learnt = d.generation, p.learnt || !again
}

// triedOf words how many of the domains of a level have been tried: so roughly that a
// gang of which each plan tries some more does not say something else each time.
func triedOf(tried, all int, level string) string {
	if level == "" || tried >= all {
		return "not all choices of nodes were tried yet"
	}
	roughly := strconv.Itoa(tried)
	if tried > 1 {
		roughly = fmt.Sprintf("at least %d", 1<<(bits.Len(uint(tried))-1))
	}
	return fmt.Sprintf("%s of the %d domains of %s that are large enough were tried, the others are tried next", roughly, all, level)
}

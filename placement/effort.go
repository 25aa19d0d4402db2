package placement

import (
	"context"
	"errors"
	"fmt"

	"github.com/muster-gpu/muster/api/reason"
)

// What plans cost is counted in calls of the Filter plugins for one node, some
// microseconds each.
const (
	// maxRetries bounds how often a gang is tried in other orders, retryEffort what
	// that costs beside the first try.
	maxRetries  = 40
	retryEffort = 6000
	// seatEffort is what it costs to put a pod on a node and to take it back.
	seatEffort = 3
)

// errSpent is the error of a try that has cost as much as a plan may.
var errSpent = errors.New("a plan may not cost more")

// effort is what a plan has cost, and the most that it may.
type effort struct{ spent, most int }

// mayCost is the most that a plan of a gang costs, whatever Filter says: each node can be
// asked about twice, each pod be placed twice, and then there are retries.
func (t *trial) mayCost(searches []*classSearch) int {
	cost := retryEffort + 2*len(t.nodes)
	for _, s := range searches {
		if s.class.Count > 0 {
			cost += 2 * (s.class.Count*(1+seatEffort) + t.preFilterEffort())
			if s.hasClaims {
				cost += 2 * s.class.Count * t.claimEffort()
			}
		}
	}
	return cost
}

// preFilterEffort is what a call of the PreFilter plugins costs.
func (t *trial) preFilterEffort() int { return 8 + len(t.nodes)/8 }

// claimEffort is what it costs to look at the claims of one pod: all devices are.
func (t *trial) claimEffort() int { return t.preFilterEffort() }

// plantEffort is what it costs to build the tree of a group, chooseEffort what it
// costs to choose nodes in one.
func (t *trial) plantEffort() int  { return 8 + len(t.nodes)/8 }
func (t *trial) chooseEffort() int { return 8 + len(t.nodes)/32 }

// spend is the error of a try that must end before it does what costs so much.
func (t *trial) spend(ctx context.Context, cost int) error {
	if t.spent += cost; t.spent > t.most {
		return errSpent
	}
	return t.goesOn(ctx)
}

// begins readies the first try of a plan, and returns what it goes on from.
func (t *trial) begins(gang Gang, searches []*classSearch) *Progress {
	t.progress = gang.Progress
	if t.progress == nil {
		t.progress = &Progress{}
	}
	t.progress.learnt = false
	t.most = t.mayCost(searches) << t.progress.doublings
	return t.progress
}

// unfinished says that the class has found no nodes, and that not all was tried.
func (s *classSearch) unfinished(gang []*classSearch) *reason.Reason {
	untried := s.untried
	if untried == "" {
		untried = triedOf(0, 0, "")
	}
	if s.group != nil && len(s.group.members) > 0 {
		return reason.New(reason.NoPlacement, "%s; %s", s.group.wording(s.group.asks()), untried)
	}
	needs := "needs " + s.demand.podsOf(s.class.Count)
	if len(gang) > 1 {
		needs = fmt.Sprintf("pod set %q %s", s.class.Name, needs)
	}
	return reason.New(reason.NoPlacement, "%s; %s", needs, untried)
}

package placement

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-gpu/muster/api/reason"
)

// variation is how a try departs from packing; nil for not at all.
type variation struct {
	rand *rand.Rand
	// loose: a node gets one pod at a time, and then waits for its turn again.
	loose bool
}

// rank is a place in the order of nodes that goes before packing.
func (v *variation) rank() uint32 {
	if v == nil {
		return 0
	}
	return v.rand.Uint32()
}

// plan finds a node for every pod of the gang. What packing alone misses,
// because classes compete or because the place of one pod binds others, is
// looked for in other orders of classes and of nodes, a bounded number of
// them. They are the same each time, so that equal questions have equal
// answers.
func (t *trial) plan(ctx context.Context, gang Gang) (Assignment, *reason.Reason, error) {
	searches := make([]*classSearch, len(gang.Classes))
	for i := range gang.Classes {
		s, err := t.newClassSearch(&gang, i)
		if err != nil {
			return nil, nil, err
		}
		searches[i] = s
		t.minding = t.minding || s.minds()
	}
	groups := t.groups(searches)
	after := needs(searches)
	progress := t.begins(gang, searches)
	plan, failed, err := t.try(ctx, searches, planOrder(searches, after))
	if errors.Is(err, errSpent) {
		progress.ends()
		return nil, searches[failed].unfinished(searches), nil
	}
	if err == nil {
		*progress = Progress{}
	}
	if err != nil || failed < 0 {
		return t.placed(gang, groups, plan, err)
	}
	var why *reason.Reason
	if g := searches[failed].group; g != nil {
		why = g.whyNot()
	}
	if why == nil {
		if why, err = searches[failed].whyNot(ctx, searches); err != nil {
			return nil, nil, fmt.Errorf("diagnosing pod set %s: %w", searches[failed].class.Name, err)
		}
	}
	behind, err := searches[failed].leftBehind()
	if err != nil {
		return nil, nil, err
	}
	why = why.And(searches[failed].broken()).And(behind)
	if why.Class == reason.ExceedsCluster || !t.mayBeMissed(searches, failed) {
		return nil, why, nil
	}
	first, most := failed, t.spent+retryEffort
	for n := 0; n < maxRetries && t.spent <= most; n++ {
		if err := t.forget(0); err != nil {
			return nil, nil, err
		}
		t.progress = &Progress{}
		plan, failed, err = t.try(ctx, searches, t.vary(searches, after, n, first))
		if errors.Is(err, errSpent) {
			break
		}
		if err != nil || failed < 0 {
			return t.placed(gang, groups, plan, err)
		}
	}
	return nil, why, nil
}

// placed is the result of a try that has ended, in an error or with nodes for all
// pods: then it is reported how close to each other they are.
func (t *trial) placed(gang Gang, groups []*group, plan Assignment, err error) (Assignment, *reason.Reason, error) {
	if err != nil || gang.Placed == nil {
		return plan, nil, err
	}
	for _, g := range groups {
		if g.topology.Unasked {
			// The room is counted that there was before.
			if err := t.forget(0); err != nil {
				return nil, nil, err
			}
			g.plant(false)
		}
		if g.tree != nil {
			gang.Placed(g.topology, g.judge())
		}
	}
	return plan, nil, nil
}

// try places the classes in turn, each on what the earlier ones left. failed is
// the index of a class that found too few nodes, or -1.
func (t *trial) try(ctx context.Context, searches []*classSearch, order []int) (plan Assignment, failed int, err error) {
	plan = make(Assignment, len(searches))
	for _, s := range searches {
		s.within = nil
		s.restart()
		if s.group != nil {
			s.group.placed = false
		}
	}
	for _, i := range order {
		s := searches[i]
		switch {
		case s.group == nil:
			err = s.run(ctx)
		case !s.group.placed:
			err = s.group.run(ctx)
		}
		if err != nil {
			return nil, i, fmt.Errorf("placing pod set %s: %w", s.class.Name, err)
		}
		if len(s.chosen) < s.class.Count {
			return nil, i, nil
		}
		if plan[i] = s.chosen; s.group == nil {
			plan[i] = groupEqual(s.chosen)
		}
	}
	return plan, -1, nil
}

// vary sets the variation of the n-th retry and returns its order of classes:
// first only the class that failed goes first, then chance rules.
func (t *trial) vary(searches []*classSearch, after [][]int, n, failed int) []int {
	wish := wishOf(searches)
	if n == 0 && len(searches) > 1 {
		t.variation = nil
		at := slices.Index(wish, failed)
		wish = slices.Insert(slices.Delete(wish, at, at+1), 0, failed)
		return inOrder(wish, after)
	}
	r := rand.New(rand.NewPCG(1, uint64(n)))
	t.variation = &variation{rand: r, loose: n%2 == 1}
	r.Shuffle(len(wish), func(i, j int) { wish[i], wish[j] = wish[j], wish[i] })
	return inOrder(wish, after)
}

// mayBeMissed tells whether there can be a plan that packing alone has not
// found. Each node has room for so many pods of a class that competes with no
// other and whose pods do not mind each other, or only keep apart: there
// packing misses nothing.
func (t *trial) mayBeMissed(searches []*classSearch, failed int) bool {
	if searches[failed].refused != nil && len(t.assumed) == 0 {
		return false
	}
	classes := 0
	for _, s := range searches {
		if s.class.Count > 0 {
			classes++
		}
	}
	s := searches[failed]
	return classes > 1 || s.hasClaims || s.preFilterEach ||
		len(fwk.GetPodAffinityTerms(s.prototype.Pod.Spec.Affinity)) > 0
}

// restart readies the class for another try, when its pods have been forgotten.
func (s *classSearch) restart() {
	s.chosen, s.refused, s.next = nil, nil, nil
	s.state = nil
}

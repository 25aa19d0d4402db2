package scheduling

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
)

// shareFairly has the heads of one cohort tree take turns, as Kueue's do with fair
// sharing, by the share that each side of the tree would have with its head:
// whoever would have the smallest one is tried first. Nothing is due before the
// Ledger knows.
func (l *Ledger) shareFairly(strategies []quota.FairStrategy) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quota.SetFairSharing(true, strategies...)
}

// first is who goes first of the heads in the tree of one. A head of which it is
// plain that it gets nothing is tried at once: that changes nothing for others.
func (l *Ledger) first(h *head) *head {
	if !l.quota.SharesFairly() {
		return h
	}
	// Mostly it is plain of the first one; then the others need not be looked at.
	if h.contender == nil && l.getsNothing(h) {
		return h
	}
	var all, unknown []*head
	for _, o := range l.waits.turn.items {
		if o.root == h.root {
			all = append(all, o)
			if o.contender == nil {
				unknown = append(unknown, o)
			}
		}
	}
	for len(unknown) > 0 {
		o := slices.MinFunc(unknown, byTurn)
		if l.getsNothing(o) {
			return o
		}
		unknown = slices.DeleteFunc(unknown, func(o *head) bool { return o.contender != nil })
	}
	if len(all) == 1 {
		return h
	}
	contenders := make([]*quota.Head, len(all))
	for i, o := range all {
		contenders[i] = o.contender
	}
	if i := slices.Index(contenders, l.quota.FairFirst(contenders)); i >= 0 {
		return all[i]
	}
	return h
}

// getsNothing looks at the first job of a head, and reports whether that gets
// nothing, and may ask nobody to leave.
func (l *Ledger) getsNothing(h *head) bool {
	e := h.due.items[0].jobs.items[0]
	a, _, _ := l.look(e)
	if a == nil || a.Usage == nil {
		return true
	}
	h.contender = l.contender(e, a)
	return false
}

func (l *Ledger) contender(e *entry, a *quota.Assignment) *quota.Head {
	return &quota.Head{Request: e.request(l.namespaces[e.job.Owner.Namespace]), Assignment: a}
}

// givesWay notes what a job that is tried in its turn would get, and reports whether
// others come first: because of that, or because they have come to its ClusterQueue
// while it was planned.
func (l *Ledger) givesWay(t *attempt, a *quota.Assignment) bool {
	b, h := t.b, t.b.head
	switch {
	case b.cure.wait != nothing:
		return false
	case h.due.items[0] != b || b.jobs.items[0] != t.e:
		return true
	case !l.quota.SharesFairly():
		return l.waits.borrows(h, a.Borrows)
	case a.Usage == nil || h.contender != nil && maps.Equal(h.contender.Assignment.Usage, a.Usage):
		return false
	}
	h.contender = l.contender(t.e, a)
	return l.first(h) != h
}

// shareOf is a share as the status tells it, nil without fair sharing.
func (l *Ledger) shareOf(share func(string) int64, name string) *kueue.FairSharingStatus {
	if !l.quota.SharesFairly() {
		return nil
	}
	return &kueue.FairSharingStatus{WeightedShare: share(name)}
}

// writeCohort writes the share of a Cohort, if it has changed.
func (r *reporter) writeCohort(ctx context.Context, name string, share *kueue.FairSharingStatus) error {
	had := &kueue.Cohort{}
	if err := r.reader.Get(ctx, client.ObjectKey{Name: name}, had); err != nil {
		return client.IgnoreNotFound(err)
	}
	if equality.Semantic.DeepEqual(had.Status.FairSharing, share) {
		return nil
	}
	want := had.DeepCopy()
	want.Status.FairSharing = share
	if err := r.client.Status().Patch(ctx, want, client.MergeFrom(had)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of Cohort %s: %w", name, err)
	}
	return nil
}

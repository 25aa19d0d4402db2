package scheduling

import (
	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/quota"
)

// assignIn asks for the quota of a job in the flavors of an assignment and in no
// others: nodes were found there, or its pods are made for them.
func (l *Ledger) assignIn(e *entry, want *quota.Assignment) (*quota.Assignment, *reason.Reason) {
	request := e.request(l.namespaces[e.job.Owner.Namespace])
	if len(want.Flavors) == len(request.PodSets) {
		for i := range request.PodSets {
			request.PodSets[i].Flavors = want.Flavors[i]
		}
	}
	a, no := l.ask(e, request)
	if a != nil && !sameFlavors(a, want) {
		return nil, reason.New(reason.NoMatchingFlavor, "its queue is another one now, or covers other resources, than when it got its flavors")
	}
	return a, no
}

func sameFlavors(a, b *quota.Assignment) bool {
	if a.ClusterQueue != b.ClusterQueue || len(a.Flavors) != len(b.Flavors) {
		return false
	}
	for i := range a.Flavors {
		if len(a.Flavors[i]) != len(b.Flavors[i]) {
			return false
		}
		for r, f := range a.Flavors[i] {
			if b.Flavors[i][r] != f {
				return false
			}
		}
	}
	return true
}

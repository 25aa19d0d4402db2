package scheduling

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// Kueue's topology-aware scheduling fixes how many pods of a set go to which
// domain, and gives each pod its domain as a node selector when it lets it go.
// The slots of such a set have their domain from the beginning; which pod gets
// which is seen when the pods have been let go.

// setTopologies records that Kueue chooses the domains of a flavor's pods.
func (l *Ledger) setTopology(flavor string, chosen bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.topologies, flavor)
	if chosen {
		l.topologies[flavor] = struct{}{}
	}
}

// fixDomains takes over from an admission the domains that Kueue has chosen. An
// assignment that cannot be read fixes nothing: then the pods say where they go.
func (l *Ledger) fixDomains(e *entry, a *kueue.Admission) {
	for i := range a.PodSetAssignments {
		psa := &a.PodSetAssignments[i]
		set := e.set(string(psa.Name))
		if set == nil || psa.TopologyAssignment == nil || !l.hasTopology(psa) {
			continue
		}
		domains, err := workload.DecodeDomains(psa.TopologyAssignment)
		if err == nil && len(domains) == len(set.slots) {
			set.domains = domains
		}
	}
}

func (l *Ledger) hasTopology(psa *kueue.PodSetAssignment) bool {
	for _, flavor := range psa.Flavors {
		if _, ok := l.topologies[string(flavor)]; ok {
			return true
		}
	}
	return false
}

// hasDomains says that Kueue has chosen domains for some of the job's pods.
func (e *entry) hasDomains() bool {
	return slices.ContainsFunc(e.sets, func(s *setSlots) bool { return s.domains != nil })
}

// byDomain divides the classes of a job by the domains of their slots.
func (e *entry) byDomain(classes []class) []class {
	if len(e.sets) == 0 {
		return classes
	}
	var out []class
	for _, c := range classes {
		domains := e.sets[c.set].domains
		if domains == nil {
			out = append(out, c)
			continue
		}
		for from := c.from; from < c.to; {
			to := from + 1
			for to < c.to && maps.Equal(domains[from], domains[to]) {
				to++
			}
			out = append(out, c.in(domains[from], from, to))
			from = to
		}
	}
	return out
}

// in is the part [from, to) of a class, whose pods go to a domain.
func (c class) in(domain map[string]string, from, to int) class {
	part := c
	part.from, part.to = from, to
	part.name = fmt.Sprintf("%s[%d..%d]", c.name, from, to-1)
	pod := *c.pod
	pod.Spec.NodeSelector = maps.Clone(c.pod.Spec.NodeSelector)
	if pod.Spec.NodeSelector == nil {
		pod.Spec.NodeSelector = map[string]string{}
	}
	maps.Copy(pod.Spec.NodeSelector, domain)
	part.pod = &pod
	return part
}

// domainAsked is the domain that a pod of a set with domains has been given;
// nil before.
func (s *setSlots) domainAsked(pod *corev1.Pod) map[string]string {
	if s.domains == nil || pod == nil {
		return nil
	}
	out := map[string]string{}
	for level := range s.domains[0] {
		value, found := pod.Spec.NodeSelector[level]
		if !found {
			return nil
		}
		out[level] = value
	}
	return out
}

// trade gives a slot whose pod was given another domain than the slot has that
// domain, and the place in it, in exchange with a slot of the same set whose pod
// does not need it.
func (l *Ledger) trade(e *entry, s *slot) {
	set := s.set
	want := set.domainAsked(s.pod)
	if want == nil || s.occupied() || maps.Equal(want, set.domains[s.index]) {
		return
	}
	for _, o := range set.slots {
		if o == s || o.occupied() || o.done || !maps.Equal(set.domains[o.index], want) || maps.Equal(set.domainAsked(o.pod), want) {
			continue
		}
		l.dropHold(s)
		l.dropHold(o)
		set.domains[s.index], set.domains[o.index] = set.domains[o.index], set.domains[s.index]
		s.node, o.node = o.node, s.node
		s.stale, o.stale = o.stale, s.stale
		s.unwritten, o.unwritten = o.unwritten, s.unwritten
		l.holdAgain(e, s)
		l.holdAgain(e, o)
		return
	}
}

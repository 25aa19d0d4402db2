package quota

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// model is the rules of quota once more, worked out from scratch each time.
type model struct {
	queues, cohorts map[string]modelNode
	charges         map[types.UID]modelTaking
	claims, held    map[types.UID]modelTaking
}

type modelNode struct {
	parent string
	cells  map[FlavorResource]limits
	// prefers is of ClusterQueues.
	prefers fungibility
}

type modelTaking struct {
	cq      string
	usage   Usage
	leaving bool
	// fromBorrowers is of what is held.
	fromBorrowers bool
}

func newModel() *model {
	return &model{
		queues: map[string]modelNode{}, cohorts: map[string]modelNode{},
		charges: map[types.UID]modelTaking{}, claims: map[types.UID]modelTaking{}, held: map[types.UID]modelTaking{},
	}
}

// place is a ClusterQueue or a Cohort.
type place struct {
	cohort bool
	name   string
}

func (m *model) node(p place) modelNode {
	if p.cohort {
		return m.cohorts[p.name]
	}
	return m.queues[p.name]
}

// looped says whether the named parents of a Cohort lead back to it.
func (m *model) looped(cohort string) bool {
	at := m.cohorts[cohort].parent
	for range len(m.cohorts) + 1 {
		if at == cohort {
			return true
		}
		at = m.cohorts[at].parent
	}
	return false
}

// parent is "" at a root; a Cohort on a cycle is one.
func (m *model) parent(p place) string {
	if p.cohort && m.looped(p.name) {
		return ""
	}
	return m.node(p).parent
}

func (m *model) root(p place) place {
	for parent := m.parent(p); parent != ""; parent = m.parent(p) {
		p = place{true, parent}
	}
	return p
}

func (m *model) children(p place) []place {
	var out []place
	if !p.cohort {
		return nil
	}
	for name, q := range m.queues {
		if q.parent == p.name {
			out = append(out, place{false, name})
		}
	}
	for name := range m.cohorts {
		if c := (place{true, name}); m.parent(c) == p.name {
			out = append(out, c)
		}
	}
	return out
}

func (m *model) height(p place) int {
	h := 0
	for _, c := range m.children(p) {
		h = max(h, m.height(c)+1)
	}
	return h
}

func (m *model) limits(p place, fr FlavorResource) limits {
	if l, ok := m.node(p).cells[fr]; ok {
		return l
	}
	return limits{borrowing: noLimit, lending: noLimit}
}

func (m *model) quota(p place, fr FlavorResource) int64 {
	sum := m.limits(p, fr).nominal
	for _, c := range m.children(p) {
		sum += m.quota(c, fr) - m.kept(c, fr)
	}
	return sum
}

func (m *model) kept(p place, fr FlavorResource) int64 {
	l := m.limits(p, fr)
	if l.lending == noLimit {
		return 0
	}
	return max(0, m.quota(p, fr)-l.lending)
}

func (m *model) used(p place, fr FlavorResource, v view) int64 {
	var sum int64
	if !p.cohort {
		add := func(all map[types.UID]modelTaking, yes func(modelTaking) bool) {
			for _, k := range all {
				if k.cq == p.name && yes(k) {
					sum += k.usage[fr]
				}
			}
		}
		later := v == promised || v == afterwards || v == afterwardsToBorrow
		add(m.charges, func(k modelTaking) bool { return !later || !k.leaving })
		add(m.claims, func(modelTaking) bool { return later })
		add(m.held, func(k modelTaking) bool {
			return v != charged && v != promised && (v == nowToBorrow || v == afterwardsToBorrow || !k.fromBorrowers)
		})
	}
	for _, c := range m.children(p) {
		sum += max(0, m.used(c, fr, v)-m.kept(c, fr))
	}
	return sum
}

func (m *model) available(p place, fr FlavorResource, v view) int64 {
	quota, used := m.quota(p, fr), m.used(p, fr, v)
	parent := m.parent(p)
	if parent == "" {
		return quota - used
	}
	kept := m.kept(p, fr)
	more := m.available(place{true, parent}, fr, v)
	if l := m.limits(p, fr); l.borrowing != noLimit {
		more = min(more, quota-kept-max(0, used-kept)+l.borrowing)
	}
	return max(0, kept-used) + more
}

func (m *model) potential(p place, fr FlavorResource) int64 {
	empty := &model{queues: m.queues, cohorts: m.cohorts}
	return empty.available(p, fr, now)
}

// has says whether job id could have so much of a cell, in both views: of what
// others have left for it, if it has claimed so much.
func (m *model) has(id types.UID, cq string, fr FlavorResource, v int64) bool {
	without := *m
	without.claims, without.held = others(m.claims, id), others(m.held, id)
	p, sees := place{false, cq}, within
	switch {
	case m.claims[id].cq == cq && v <= m.claims[id].usage[fr]:
		sees = leftFor
	case v+without.used(p, fr, afterwards) > m.quota(p, fr):
		sees = toBorrow
	}
	_, listed := m.queues[cq].cells[fr]
	return v == 0 || (listed && v <= min(without.available(p, fr, sees.now), without.available(p, fr, sees.afterwards)))
}

// borrows says whether job id would have to borrow so much of a cell.
func (m *model) borrows(id types.UID, cq string, fr FlavorResource, v int64) bool {
	without := *m
	without.claims, without.held = others(m.claims, id), others(m.held, id)
	p := place{false, cq}
	return v+max(without.used(p, fr, now), without.used(p, fr, afterwards)) > m.quota(p, fr)
}

func others(all map[types.UID]modelTaking, id types.UID) map[types.UID]modelTaking {
	out := map[types.UID]modelTaking{}
	for k, v := range all {
		if k != id {
			out[k] = v
		}
	}
	return out
}

var (
	modelQueues  = []string{"q0", "q1", "q2", "q3"}
	modelCohorts = []string{"c0", "c1", "c2", "c3"}
	modelIDs     = []types.UID{"j0", "j1", "j2", "j3", "j4", "j5", "j6", "j7"}
	modelCells   = []FlavorResource{{"h100", nvidiaGPU}, {"h100", "example.com/nic"}, {"a100", nvidiaGPU}, {"a100", "example.com/nic"}}
)

// drawQuotas draws the quotas of both flavors.
func drawQuotas(t *rapid.T) []kueue.FlavorQuotas {
	out := []kueue.FlavorQuotas{{Name: "h100"}, {Name: "a100"}}
	for _, fr := range modelCells {
		q := gpus(rapid.Int64Range(0, 8).Draw(t, "nominal")).Resources[0]
		q.Name = fr.Resource
		if rapid.Bool().Draw(t, "borrowing limited") {
			borrow(rapid.Int64Range(0, 6).Draw(t, "borrowing limit"))(&q)
		}
		if rapid.Bool().Draw(t, "lending limited") {
			lend(rapid.Int64Range(0, 9).Draw(t, "lending limit"))(&q)
		}
		for i := range out {
			if string(out[i].Name) == fr.Flavor {
				out[i].Resources = append(out[i].Resources, q)
			}
		}
	}
	return out
}

func drawQueue(t *rapid.T, name string) *kueue.ClusterQueue {
	cq := queueIn(rapid.SampledFrom(append([]string{""}, modelCohorts...)).Draw(t, "cohort"), name, drawQuotas(t)...)
	within := []kueue.PreemptionPolicy{nobody, lower, newer}
	reclaim := []kueue.PreemptionPolicy{nobody, lower, anyOf}
	preempting(cq, rapid.SampledFrom(within).Draw(t, "within"), rapid.SampledFrom(reclaim).Draw(t, "reclaim"))
	if rapid.Bool().Draw(t, "may borrow") {
		borrowing(cq, ptr(rapid.Int32Range(-1, 1).Draw(t, "threshold")))
	}
	policies := []kueue.FlavorFungibilityPolicy{kueue.MayStopSearch, kueue.TryNextFlavor}
	cq.Spec.FlavorFungibility = &kueue.FlavorFungibility{
		WhenCanBorrow:  rapid.SampledFrom(policies).Draw(t, "whenCanBorrow"),
		WhenCanPreempt: rapid.SampledFrom(policies).Draw(t, "whenCanPreempt"),
	}
	return cq
}

func drawCohort(t *rapid.T, name string) *kueue.Cohort {
	c := cohortIn(rapid.SampledFrom(append([]string{""}, modelCohorts...)).Draw(t, "parent"), name)
	if rapid.Bool().Draw(t, "has quota") {
		c.Spec.ResourceGroups = []kueue.ResourceGroup{group(drawQuotas(t)...)}
	}
	return c
}

func drawRequest(t *rapid.T) Request {
	r := Request{
		ID:       rapid.SampledFrom(modelIDs).Draw(t, "id"),
		Queue:    types.NamespacedName{Namespace: "nlp", Name: rapid.SampledFrom(modelQueues).Draw(t, "queue")},
		Priority: rapid.Int32Range(-2, 2).Draw(t, "priority"),
		Created:  at(rapid.Int64Range(0, 3).Draw(t, "created")),
	}
	for i := range rapid.IntRange(1, 2).Draw(t, "pod sets") {
		r.PodSets = append(r.PodSets, PodSet{Name: fmt.Sprint(i), Count: 1, PerPod: Requests{
			nvidiaGPU:         rapid.Int64Range(0, 6).Draw(t, "GPUs"),
			"example.com/nic": rapid.Int64Range(0, 6).Draw(t, "NICs"),
		}})
	}
	return r
}

func (m *model) setQueue(cq *kueue.ClusterQueue) {
	m.queues[cq.Name] = modelNode{string(cq.Spec.CohortName), limitsOf(cq.Spec.ResourceGroups), fungibilityOf(cq.Spec.FlavorFungibility)}
}

func (m *model) setCohort(c *kueue.Cohort) {
	m.cohorts[c.Name] = modelNode{parent: string(c.Spec.ParentName), cells: limitsOf(c.Spec.ResourceGroups)}
}

func newModelTree() *Tree {
	t := New()
	t.SetFlavor(flavorOf("h100", nil))
	t.SetFlavor(flavorOf("a100", nil))
	for _, q := range modelQueues {
		t.SetLocalQueue(localQ(types.NamespacedName{Namespace: "nlp", Name: q}, q))
	}
	return t
}

// places are all ClusterQueues and Cohorts that the model knows.
func (m *model) places() []place {
	var out []place
	for _, q := range modelQueues {
		if _, ok := m.queues[q]; ok {
			out = append(out, place{false, q})
		}
	}
	for _, c := range modelCohorts {
		out = append(out, place{true, c})
	}
	return out
}

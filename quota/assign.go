package quota

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

// Request is what one job asks of its queue.
type Request struct {
	// ID is the job's; what it has claimed and withholds itself is free to it.
	ID types.UID
	// Priority and Created, the place among those of its priority in the queue,
	// decide whom it may preempt.
	Priority int32
	Created  time.Time
	// Queue is the LocalQueue.
	Queue types.NamespacedName
	// NamespaceLabels are those of the job's namespace, for the ClusterQueue's
	// namespaceSelector.
	NamespaceLabels map[string]string
	PodSets         []PodSet
}

// PodSet is Count identical pods of a job.
type PodSet struct {
	Name  string
	Count int32
	// PerPod is what one pod requests, defaults and overhead included.
	PerPod Requests
	// Template decides which flavors the pods may use, by its tolerations,
	// node selector and required node affinity; nil is a pod without any.
	Template *corev1.PodSpec
}

// Mode is what an Assignment needs to come true.
type Mode int

const (
	// Fit: the quota is free.
	Fit Mode = iota
	// Preempt: the job is within its rights, but others have to leave first:
	// some that are leaving already, or some that policies let it preempt. Tree.Preemption
	// says whether there are any.
	Preempt
)

// Assignment is the flavors that a job would get, and what they would charge.
type Assignment struct {
	ClusterQueue string
	// Flavors names, for each pod set in the request's order, the flavor of
	// each resource.
	Flavors []map[corev1.ResourceName]string
	// PodSetUsage is what each pod set, all its pods together, takes of the
	// resources in Flavors, "pods" included where it is covered.
	PodSetUsage []Requests
	// Usage is the charge: the sum over the pod sets, by cell.
	Usage Usage
	Mode  Mode
	// Borrows is 0 where the ClusterQueue's own quota is enough, else the height
	// of the smallest tree of Cohorts that has enough, as Kueue orders heads by.
	Borrows int
}

// Assign says whether the whole job fits its queue, and in which flavors; it
// charges nothing. There are three answers. An Assignment without a Reason fits
// now, and goes on to fit when claims have become charges. One with a Reason
// does not fit now, but would if others left (Mode is Preempt). A Reason alone
// says no, in one of the classes QueueNotFound, QueueInactive,
// NamespaceMismatch, Misconfigured, NoMatchingFlavor, ExceedsMaxQuota and
// WaitingForQuota. A job that has a claim gets the flavors of it, if that fits.
// It is ExceedsMaxQuota only where the job would not fit the
// queue with no other job in the whole cohort.
func (t *Tree) Assign(r Request) (*Assignment, *reason.Reason) {
	s := &search{tree: t, request: &r}
	a, class, miss, why := s.ask()
	switch {
	case why != nil:
		return nil, why
	case class == reason.WaitingForQuota:
		return a, miss.waits(r.Queue.Name)
	case class == reason.ExceedsMaxQuota:
		return nil, miss.exceeds(r.Queue.Name)
	case class == reason.NoMatchingFlavor:
		return nil, miss.ineligible()
	}
	return a, nil
}

// ask is Assign, with the words left to be found: in why, or in miss.
func (s *search) ask() (a *Assignment, class reason.Class, miss *misfit, why *reason.Reason) {
	t, r := s.tree, s.request
	if s.queue, why = t.queueFor(*r); why != nil {
		return nil, why.Class, nil, why
	}
	sets, why := demands(s.queue, *r)
	if why != nil {
		return nil, why.Class, nil, why
	}
	defer t.without(r.ID)()
	if k := t.claims[r.ID]; k != nil && k.queue == s.queue {
		s.claimed = k.usage
		if a, miss := s.fit(sets); a != nil && miss == nil {
			return a, "", nil, nil
		}
		s.claimed = nil
	}
	a, miss = s.fit(sets)
	switch {
	case miss == nil:
		return a, "", nil, nil
	case a != nil:
		return a, reason.WaitingForQuota, miss, nil
	}
	// Waiting helps only a job that the empty queue would take.
	bar := s.bar
	s.empty = true
	_, ever := s.fit(sets)
	s.empty, s.bar = false, bar
	switch {
	case ever == nil:
		return nil, reason.WaitingForQuota, miss, nil
	case !ever.lacks:
		return nil, reason.NoMatchingFlavor, ever, nil
	}
	return nil, reason.ExceedsMaxQuota, ever, nil
}

// queueFor finds the ClusterQueue that may admit the request, sizes aside.
func (t *Tree) queueFor(r Request) (*clusterQueue, *reason.Reason) {
	lq, ok := t.localQueues[r.Queue]
	if !ok {
		return nil, reason.New(reason.QueueNotFound, "LocalQueue %s does not exist", r.Queue)
	}
	q := t.existing(lq.clusterQueue)
	if q == nil {
		return nil, reason.New(reason.QueueNotFound, "ClusterQueue %s does not exist", lq.clusterQueue)
	}
	if lq.stopPolicy != kueue.None {
		return nil, reason.New(reason.QueueInactive, "LocalQueue %s is stopped (%s)", r.Queue, lq.stopPolicy)
	}
	if cond, why := t.inactive(q); cond != "" {
		return nil, reason.New(reason.QueueInactive, "ClusterQueue %s is not active: %s", q.name, why)
	}
	if !q.spec.selector.Matches(labels.Set(r.NamespaceLabels)) {
		return nil, reason.New(reason.NamespaceMismatch,
			"namespace %s is not selected by ClusterQueue %s", r.Queue.Namespace, q.name)
	}
	return q, nil
}

// demand is what one pod set asks of the resource groups.
type demand struct {
	podSet PodSet
	// groups holds, for each resource group of the ClusterQueue, what the pod
	// set asks of it in the order of sortedResources; nil where it asks nothing.
	groups [][]portion
}

// portion is what all pods of a set together ask of one resource.
type portion struct {
	resource corev1.ResourceName
	value    int64
}

// demands splits the requests of each pod set over the resource groups. A
// resource that no group covers is refused, unless nothing is asked of it.
func demands(q *clusterQueue, r Request) ([]demand, *reason.Reason) {
	sets := make([]demand, 0, len(r.PodSets))
	for _, ps := range r.PodSets {
		if ps.Count < 0 {
			return nil, reason.New(reason.Misconfigured, "pod set %s has %d pods", ps.Name, ps.Count)
		}
		d := demand{podSet: ps, groups: make([][]portion, len(q.spec.groups))}
		pods, countsPods := q.spec.groupOf[corev1.ResourcePods]
		if countsPods {
			d.groups[pods] = []portion{{corev1.ResourcePods, int64(ps.Count)}}
		}
		var nowhere []corev1.ResourceName
		for name, v := range ps.PerPod {
			v = saturatingMul(v, int64(ps.Count))
			g, covered := q.spec.groupOf[name]
			switch {
			case covered && name == corev1.ResourcePods:
			case covered:
				d.groups[g] = append(d.groups[g], portion{name, v})
			case v != 0:
				nowhere = append(nowhere, name)
			}
		}
		if len(nowhere) > 0 {
			return nil, reason.New(reason.NoMatchingFlavor, "ClusterQueue %s has no quota for %s%s",
				q.name, slices.MinFunc(nowhere, compareResources), q.covers())
		}
		for _, asks := range d.groups {
			slices.SortFunc(asks, func(a, b portion) int { return compareResources(a.resource, b.resource) })
		}
		sets = append(sets, d)
	}
	return sets, nil
}

// covers says which resources the ClusterQueue has quota for, as the end of a
// sentence.
func (q *clusterQueue) covers() string {
	if len(q.spec.groupOf) == 0 {
		return ""
	}
	var names []string
	for _, name := range slices.SortedFunc(maps.Keys(q.spec.groupOf), compareResources) {
		names = append(names, string(name))
	}
	return " (it covers " + strings.Join(names, ", ") + ")"
}

// search looks for the flavors of one request.
type search struct {
	tree    *Tree
	queue   *clusterQueue
	request *Request
	// empty has it look as if no other job were in the whole cohort.
	empty bool
	// claimed, if not nil, has it look only at what the job has claimed: others
	// have left for these flavors.
	claimed Usage
	// wordless: nobody will read what is missing; mute is what stands for it then,
	// and bar what has to change before the answer can.
	wordless bool
	mute     misfit
	bar      Bar
}

// mayLook says that a flavor is among those to look at.
func (s *search) mayLook(flavor string, asked []portion, before Usage) bool {
	if s.claimed == nil {
		return true
	}
	for _, a := range asked {
		fr := FlavorResource{flavor, a.resource}
		if saturatingAdd(before[fr], a.value) > s.claimed[fr] {
			return false
		}
	}
	return true
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
			if miss != nil && !s.wordless && len(groups[g].flavors) == 1 {
				miss.countLaterSets(g, sets[i+1:])
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
		if !s.mayLook(name, asked, before) {
			continue
		}
		f := s.tree.flavors[name]
		if !eligible(ps.Template, f) {
			if !s.wordless {
				miss.refused = append(miss.refused, ineligible(ps.Template, f))
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

// look says what the outlook of one flavor is, which is that of its worst
// resource, and from how far away any of them is borrowed; it notes the
// resources of which there is too little, in the order of sortedResources.
// choice says that there are other flavors to choose from.
func (s *search) look(flavor string, asked []portion, before Usage, choice bool, miss *misfit) (worst outlook, level int) {
	worst.chance = fits
	var short []shortage
	var at barrier
	least := fits
	for _, a := range asked {
		fr := FlavorResource{flavor, a.resource}
		need := a.value
		if before != nil {
			need = saturatingAdd(before[fr], need)
		}
		c := s.queue.cells[fr]
		if c == nil || !c.listed {
			c = &cell{limits: limits{borrowing: noLimit, lending: noLimit}}
		}
		o := s.lookAt(fr, c, need, choice)
		if o.chance != fits {
			miss.lacks = true
			if !s.wordless {
				short = append(short, s.shortageOf(fr, c, need))
			}
		}
		if o.chance == waits && at.cell == nil {
			at = barrier{c, need}
		}
		if s.queue.spec.fungibility.better(worst, o) {
			worst = o
		}
		level = max(level, o.level)
		least = min(least, o.chance)
	}
	if worst.chance == fits {
		// Where to borrow is worse than to preempt, the worst resource may be free
		// although another one is not.
		worst.chance = least
	}
	if len(short) > 0 {
		miss.short = append(miss.short, short)
	}
	if s.wordless && worst.chance == waits {
		s.bar.barriers = append(s.bar.barriers, at)
	}
	return worst, level
}

// lookAt is the outlook of one cell. A queue in debt, its quota lowered under
// running jobs, has nothing free, and still takes a pod set that asks for zero.
func (s *search) lookAt(fr FlavorResource, c *cell, need int64, choice bool) outlook {
	v := amountOf(need)
	if c.potential().less(v) {
		return outlook{chance: never}
	}
	if s.empty {
		return outlook{chance: fits}
	}
	level, inside := s.queue.borrowLevel(c, v)
	fairly := s.tree.SharesFairly() && !off(s.queue.spec.preemption.reclaim)
	switch {
	case !c.available(afterwards).atLeastZero().less(v):
		if c.available(now).atLeastZero().less(v) {
			return outlook{leaving, level}
		}
		return outlook{fits, level}
	case !fairly && s.queue.mustWait(c, need, inside):
		// It may not preempt to borrow.
		return outlook{waits, level}
	default:
		return s.withVictims(fr, need, level, choice)
	}
}

// borrowLevel is how high up the tree v more of a cell is found: 0 in the
// ClusterQueue's own quota, else the height of the Cohort whose quota, with all
// below it, is enough; and whether that leaves a larger tree outside of which
// the use of others can be reclaimed. It looks at the use after jobs that are
// leaving have left.
func (q *clusterQueue) borrowLevel(c *cell, v amount) (level int, inside bool) {
	if !c.exceeds(afterwards, v) || c.parent == nil {
		return 0, c.parent != nil
	}
	rest := v.minus(c.keptFree(afterwards))
	n := q.node
	for c.parent != nil {
		c, n = c.parent, n.parent
		if !c.exceeds(afterwards, rest) {
			return n.height, n.parent != nil
		}
		rest = rest.minus(c.keptFree(afterwards))
	}
	return n.height, false
}

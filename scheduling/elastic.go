package scheduling

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// An elastic job that is admitted may come to ask for more or fewer pods, and
// goes on running. What it asks for more is charged and held like a job of its
// own, all of it at once, behind the jobs that wait; until then it runs with
// what it has. Of what it asks for less, the slots without a pod are given up,
// and the others as their pods go: first in the Workload, then here, so that
// nobody is admitted on what the API still shows as taken.

// otherCounts says that a job which is charged as had asks for other numbers of
// the same pods now, and can have them while it runs.
func otherCounts(had, job *workload.Job) bool {
	if !job.Elastic || job.Queue != had.Queue || len(had.PodSets) != len(job.PodSets) {
		return false
	}
	for i := range had.PodSets {
		x, y := &had.PodSets[i], &job.PodSets[i]
		if x.Name != y.Name || !equality.Semantic.DeepEqual(workload.Requests(&x.Template), workload.Requests(&y.Template)) {
			return false
		}
	}
	return true
}

func countsOf(job *workload.Job) []int32 {
	out := make([]int32, len(job.PodSets))
	for i := range job.PodSets {
		out[i] = job.PodSets[i].Count
	}
	return out
}

// withCounts is the job with so many pods in its sets.
func withCounts(job *workload.Job, counts []int32) *workload.Job {
	out := *job
	out.PodSets = slices.Clone(job.PodSets)
	for i := range out.PodSets {
		ps := &out.PodSets[i]
		if ps.Count != counts[i] {
			ps.Count, ps.Completions, ps.PodsPerReplica = counts[i], max(counts[i], ps.Completions), max(counts[i], 1)
		}
	}
	return &out
}

// admittedCounts are the numbers of pods for which an admission is, of a job
// with the same pod sets; nil for another.
func admittedCounts(job *workload.Job, a *kueue.Admission) []int32 {
	if len(job.PodSets) != len(a.PodSetAssignments) {
		return nil
	}
	out := make([]int32, len(job.PodSets))
	for i := range job.PodSets {
		set := &a.PodSetAssignments[i]
		if set.Name != kueue.NewPodSetReference(job.PodSets[i].Name) || set.Count == nil {
			return nil
		}
		out[i] = *set.Count
	}
	return out
}

// kept are the slots of the set that are not being given up.
func (s *setSlots) kept() int32 {
	var n int32
	for _, sl := range s.slots {
		if !sl.surplus {
			n++
		}
	}
	return n
}

// resize begins to bring an admitted job to the numbers of pods that it asks
// for now.
func (l *Ledger) resize(e *entry) {
	if e.state != Admitted || e.wants == nil || len(e.wants) != len(e.sets) {
		return
	}
	changed := false
	for i, set := range e.sets {
		changed = set.fit(e.wants[i]) || changed
	}
	if changed {
		e.replanned++
		l.enqueue(e)
		l.effects.Write(e.job.Owner.UID)
	}
	if e.missesPods() {
		l.growing[e.job.Owner.UID] = e
		l.effects.Admit()
		return
	}
	delete(l.growing, e.job.Owner.UID)
	e.cannotGrow = nil
}

// missesPods says that the job asks for more pods than it has slots.
func (e *entry) missesPods() bool {
	for i, set := range e.sets {
		if e.wants[i] > set.kept() {
			return true
		}
	}
	return false
}

// fit marks slots of the set that no pod is in as surplus, or keeps slots that
// were, as far as that brings it to want. It reports whether it has done so.
func (s *setSlots) fit(want int32) (changed bool) {
	n := s.kept()
	mark := func(surplus bool, is func(*slot) bool) {
		for i := len(s.slots) - 1; i >= 0 && n != want; i-- {
			if sl := s.slots[i]; sl.surplus != surplus && sl.pod == nil && is(sl) {
				sl.surplus, changed = surplus, true
				if surplus {
					n--
				} else {
					n++
				}
			}
		}
	}
	switch {
	case n > want:
		mark(true, func(sl *slot) bool { return sl.node == "" && !sl.done })
		mark(true, func(*slot) bool { return true })
	case n < want:
		mark(false, func(sl *slot) bool { return sl.node != "" })
	}
	return changed
}

// remaining is an admitted job, and what it is assigned, without the slots that
// it gives up.
func (e *entry) remaining() (*workload.Job, *quota.Assignment) {
	counts := make([]int32, len(e.sets))
	same := true
	for i, set := range e.sets {
		counts[i] = set.kept()
		same = same && counts[i] == int32(len(set.slots))
	}
	if same {
		return e.job, e.assignment
	}
	a := *e.assignment
	a.PodSetUsage, a.Usage = make([]quota.Requests, len(e.sets)), quota.Usage{}
	for i, set := range e.sets {
		usage := quota.Requests{}
		for r, n := range e.assignment.PodSetUsage[i] {
			if have := int64(len(set.slots)); have > 0 {
				usage[r] = n / have * int64(counts[i])
			}
			if f, ok := a.Flavors[i][r]; ok {
				a.Usage[quota.FlavorResource{Flavor: f, Resource: r}] += usage[r]
			}
		}
		a.PodSetUsage[i] = usage
	}
	return withCounts(e.job, counts), &a
}

// dropSurplus ends the charge and the holds of the slots that the Workload does
// not have any more.
func (l *Ledger) dropSurplus(e *entry) {
	job, a := e.remaining()
	if job == e.job {
		return
	}
	e.setJob(job)
	e.assignment = a
	for i, set := range e.sets {
		ps := job.PodSets[i]
		if int(ps.Count) == len(set.slots) {
			continue
		}
		slots := make([]*slot, 0, ps.Count)
		for _, sl := range set.slots {
			if sl.surplus {
				l.dropHold(sl)
				continue
			}
			slots = append(slots, sl)
		}
		set.set, set.slots, set.resized = ps, slots, true
		l.renumber(e, set)
	}
	e.version++
	l.quota.Charge(e.job.Owner.UID, a.ClusterQueue, a.Usage, e.holder(reservedAt(e.workload, l.clock.Now())))
	l.wakeAll(e)
	l.enqueue(e)
	l.released(a.ClusterQueue)
	l.roomCame(true)
	l.resize(e)
}

// renumber gives the slots of a set their numbers anew. Holds are named by them.
func (l *Ledger) renumber(e *entry, set *setSlots) {
	var again []*slot
	for i, sl := range set.slots {
		if sl.index == i {
			continue
		}
		if sl.index = i; sl.hold != nil {
			l.dropHold(sl)
			again = append(again, sl)
		}
	}
	for _, sl := range again {
		l.holdAgain(e, sl)
	}
}

// growthDue says that an admitted job asks for more pods, and that something
// has happened since it was refused them.
func (l *Ledger) growthDue() bool {
	for _, e := range l.growing {
		if e.grewAt != l.waits.seen {
			return l.restored && !l.kueueDecides()
		}
	}
	return false
}

// grow tries the admitted jobs that ask for more pods.
func (p *pass) grow() error {
	l := p.ledger
	l.mu.Lock()
	var jobs []*entry
	if l.growthDue() {
		for uid, e := range l.growing {
			switch {
			case e.state != Admitted || l.jobs[uid] != e || !e.missesPods():
				delete(l.growing, uid)
			case e.grewAt != l.waits.seen:
				jobs = append(jobs, e)
			}
		}
		slices.SortFunc(jobs, (*entry).before)
	}
	l.mu.Unlock()
	for _, e := range jobs {
		if p.spent(true) {
			return nil
		}
		if err := p.refresh(); err != nil {
			return err
		}
		p.tries++
		p.growOne(e)
	}
	return nil
}

// growsBehind is why a job of a StrictFIFO queue in which others wait gets no more
// pods, nil if it may.
func (l *Ledger) growsBehind(e *entry) *reason.Reason {
	queue := e.assignment.ClusterQueue
	if !l.quota.Strict(queue) {
		return nil
	}
	if first := l.claimOf(queue); first != nil {
		return behindJob(first, queue)
	}
	if h := l.waits.heads[queue]; h != nil && h.front != nil {
		return h.front.behindWhom()
	}
	return nil
}

// growAgain has those tried again that asked for more pods behind others, where
// these wait no more.
func (l *Ledger) growAgain() {
	for _, e := range l.growing {
		behind := e.cannotGrow != nil && e.cannotGrow.Class == reason.PendingEvaluation && e.grewAt != moves{}
		if behind && e.state == Admitted && l.growsBehind(e) == nil {
			e.grewAt = moves{}
			l.effects.Admit()
		}
	}
}

// growOne charges and holds what an admitted job asks for more, all of it, or
// records why not.
func (p *pass) growOne(e *entry) {
	c, l := p.Cycle, p.ledger
	l.mu.Lock()
	version, seen := e.version, l.waits.seen
	if e.state != Admitted || e.wants == nil || !e.missesPods() {
		l.mu.Unlock()
		return
	}
	e.grewAt = seen
	want, more := e.grown()
	no := l.growsBehind(e)
	var a *quota.Assignment
	if no == nil {
		a, no = l.assignAgain(e, want)
	}
	if no != nil {
		l.growthRefused(e, more, no)
		l.mu.Unlock()
		return
	}
	classes := l.classesAs(e, want)
	kept := make([][]string, len(classes))
	shunned := make([][]string, len(classes))
	missing := make([]int, len(classes))
	reserved := l.reservedFrom(e)
	for i, class := range classes {
		set := e.sets[class.set]
		shunned[i] = slices.Concat(l.shun(e, set), reserved)
		for _, s := range set.slots {
			if !s.done && s.node != "" && !slices.Contains(kept[i], s.node) {
				kept[i] = append(kept[i], s.node)
			}
		}
		if class.to > len(set.slots) {
			missing[i] = class.to - max(class.from, len(set.slots))
		}
	}
	l.mu.Unlock()

	fw, snap, no, err := c.framework(classes)
	var plan placement.Assignment
	if err == nil && no == nil {
		gang := gangOf(want.Owner.Name, want.Owner.UID, classes, missing)
		for i := range gang.Classes {
			gang.Classes[i].Fixed, gang.Classes[i].Avoid = kept[i], shunned[i]
		}
		plan, no, err = c.planner.Plan(p.ctx, fw, snap, gang)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if e.version != version || e.state != Admitted {
		e.grewAt = moves{}
		l.effects.Admit()
		return
	}
	if err != nil {
		no = reason.New(reason.NoPlacement, "planning failed: %v", err)
	}
	if no != nil {
		l.growthRefused(e, more, no)
		return
	}
	if err := l.extend(e, want, a, classes, plan); err != nil {
		klog.FromContext(p.ctx).V(2).Info("Growth not committed, it will be planned again", "job", klog.KRef(want.Owner.Namespace, want.Owner.Name), "why", err.Error())
		e.grewAt = moves{}
		return
	}
	p.fresh = false
	klog.FromContext(p.ctx).V(2).Info("Job has grown", "job", klog.KRef(want.Owner.Namespace, want.Owner.Name), "nodes", e.nodes())
}

// grown is the job with all the pods that it asks for where it has fewer, and
// how many those are by pod set.
func (e *entry) grown() (*workload.Job, []int32) {
	counts, more := countsOf(e.job), make([]int32, len(e.sets))
	for i, set := range e.sets {
		if more[i] = e.wants[i] - set.kept(); more[i] > 0 {
			counts[i] += more[i]
		} else {
			more[i] = 0
		}
	}
	return withCounts(e.job, counts), more
}

// assignAgain asks for the quota of a job that is charged, and would have other
// numbers of pods. It must get it in the flavors that its pods are made for.
func (l *Ledger) assignAgain(e *entry, want *workload.Job) (*quota.Assignment, *reason.Reason) {
	uid, had := e.job.Owner.UID, e.job
	// Nothing, rather than no charge: a ClusterQueue that is deleted is forgotten
	// with its last one.
	l.quota.Charge(uid, e.assignment.ClusterQueue, nil, e.holder(reservedAt(e.workload, l.clock.Now())))
	e.job = want
	a, no := l.quota.Assign(e.request(l.namespaces[want.Owner.Namespace]))
	e.job = had
	l.quota.Charge(uid, e.assignment.ClusterQueue, e.assignment.Usage, e.holder(reservedAt(e.workload, l.clock.Now())))
	if no == nil && !sameFlavors(a, e.assignment) {
		no = reason.New(reason.WaitingForQuota, "its queue has quota for more pods only in other flavors than those that it runs in")
	}
	return a, no
}

// classesAs are the classes of a job as it would be with other numbers of pods.
func (l *Ledger) classesAs(e *entry, want *workload.Job) []class {
	had := e.job
	e.job = want
	defer func() { e.job = had }()
	return prototypes(e, e.assignment, l.quota)
}

// extend commits a growth: quota, slots and holds, in one step. The new slots
// let pods in when the Workload has them.
func (l *Ledger) extend(e *entry, want *workload.Job, planned *quota.Assignment, classes []class, plan placement.Assignment) error {
	a, no := l.assignAgain(e, want)
	if no != nil || !sameFlavors(a, planned) {
		return fmt.Errorf("quota changed while the growth of %s was planned", e)
	}
	had, nodes := e.job, bySets(len(want.PodSets), classes, plan)
	lengths, resized := make([]int, len(e.sets)), make([]bool, len(e.sets))
	for i, set := range e.sets {
		lengths[i], resized[i] = len(set.slots), set.resized
		if len(nodes[i]) == 0 {
			continue
		}
		set.set, set.resized = want.PodSets[i], true
		for _, node := range nodes[i] {
			set.slots = append(set.slots, &slot{set: set, index: len(set.slots), node: node, unwritten: true})
		}
	}
	e.setJob(want)
	err := l.holdAll(e, classes)
	if err == nil && !l.stillFits(slices.Concat(nodes...)) {
		err = fmt.Errorf("the nodes that were planned for the growth of %s have other pods now", e)
	}
	if err != nil {
		for i, set := range e.sets {
			for _, s := range set.slots[lengths[i]:] {
				l.dropHold(s)
			}
			set.slots, set.set, set.resized = set.slots[:lengths[i]], had.PodSets[i], resized[i]
		}
		e.setJob(had)
		return err
	}
	e.assignment, e.cannotGrow = a, nil
	l.quota.Charge(e.job.Owner.UID, a.ClusterQueue, a.Usage, e.holder(reservedAt(e.workload, l.clock.Now())))
	e.version++
	e.replanned++
	delete(l.growing, e.job.Owner.UID)
	l.place(e)
	l.enqueue(e)
	l.waits.seen.quota++
	l.podsCame(e.gpus() > 0)
	l.effects.Report()
	l.effects.Write(e.job.Owner.UID)
	return nil
}

// growthRefused tells why an admitted job does not get the pods that it asks
// for, once for each class of reasons.
func (l *Ledger) growthRefused(e *entry, more []int32, why *reason.Reason) {
	if e.cannotGrow != nil && e.cannotGrow.Class == why.Class {
		return
	}
	e.cannotGrow = why
	var parts []string
	for i, n := range more {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d of %s", n, e.job.PodSets[i].Name))
		}
	}
	l.effects.Note(e.job, noteGrowthWaits, fmt.Sprintf("it asks for more pods, and they wait (%s): %s; those that it has run on", strings.Join(parts, ", "), why.Message))
}

// noteGrowthWaits is the reason of the event about an elastic job that gets no
// more pods for now.
const noteGrowthWaits = "GrowthWaits"

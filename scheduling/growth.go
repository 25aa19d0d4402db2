package scheduling

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// growthDue says that an admitted job asks for more pods, and that something
// has happened since it was refused them.
func (l *Ledger) growthDue() bool {
	for _, e := range l.growing {
		if e.growth.at != l.waits.seen {
			return l.admits()
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
			case e.growth.at != l.waits.seen:
				jobs = append(jobs, e)
			}
		}
		slices.SortFunc(jobs, (*entry).before)
	}
	l.mu.Unlock()
	for _, e := range jobs {
		if p.spent() || p.yields() {
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
		behind := e.growth.refused != nil && e.growth.refused.Class == reason.PendingEvaluation && e.growth.at != moves{}
		if behind && e.state == Admitted && l.growsBehind(e) == nil {
			e.growth.at = moves{}
			l.effects.Admit()
		}
	}
}

// growOne charges and holds what an admitted job asks for more, all of it, or
// records why not.
func (p *pass) growOne(e *entry) {
	l := p.ledger
	l.mu.Lock()
	version, seen := e.version, l.waits.seen
	if e.state != Admitted || e.wants() == nil || !e.missesPods() {
		l.mu.Unlock()
		return
	}
	e.growth.at = seen
	want, more := e.grown()
	no := l.growsBehind(e)
	if no == nil {
		_, no = l.assignAgain(e, want)
	}
	if no != nil {
		l.growthRefused(e, more, no)
		l.mu.Unlock()
		return
	}
	classes := l.classesAs(e, want)
	gang := gangOf(want.Owner.Name, want.Owner.UID, classes, make([]int, len(classes)))
	reserved := l.reservedFrom(e)
	for i, class := range classes {
		to, set := &gang.Classes[i], e.sets[class.set]
		to.Avoid = slices.Concat(l.shun(e, set), reserved)
		for _, s := range set.slots {
			if !s.done && s.node != "" && !slices.Contains(to.Fixed, s.node) {
				to.Fixed = append(to.Fixed, s.node)
			}
		}
		had := set.slots[min(class.from, len(set.slots)):min(class.to, len(set.slots))]
		keepNear(to, had, class.size())
		for k, s := range had {
			if to.Kept != nil && s.lost() {
				// It is not placed here.
				to.Kept[k] = placement.Over
			}
		}
		if class.to > len(set.slots) {
			to.Count = class.to - max(class.from, len(set.slots))
		}
	}
	l.mu.Unlock()

	plan, heard, no, err := p.planSome(p.ctx, gang, classes)

	l.mu.Lock()
	defer l.mu.Unlock()
	if e.version != version || e.state != Admitted {
		e.growth.at = moves{}
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
	if err := l.extend(e, want, classes, plan); err != nil {
		klog.FromContext(p.ctx).V(2).Info("Growth not committed, it will be planned again", "job", klog.KRef(want.Owner.Namespace, want.Owner.Name), "why", err.Error())
		e.growth.at = moves{}
		return
	}
	e.hears(heard)
	p.fresh = false
	klog.FromContext(p.ctx).V(2).Info("Job has grown", "job", klog.KRef(want.Owner.Namespace, want.Owner.Name), "nodes", e.nodes())
}

// grown is the job with all the pods that it asks for where it has fewer, and
// how many those are by pod set.
func (e *entry) grown() (*workload.Job, []int32) {
	counts, more := countsOf(e.job), make([]int32, len(e.sets))
	for i, set := range e.sets {
		if more[i] = e.growth.wants[i] - set.kept(); more[i] > 0 {
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
	a, no := l.assignIn(e, e.assignment)
	e.job = had
	l.quota.Charge(uid, e.assignment.ClusterQueue, e.assignment.Usage, e.holder(reservedAt(e.workload, l.clock.Now())))
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
func (l *Ledger) extend(e *entry, want *workload.Job, classes []class, plan placement.Assignment) error {
	a, no := l.assignAgain(e, want)
	if no != nil {
		return fmt.Errorf("quota changed while the growth of %s was planned: %w", e, no)
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
	e.assignment = a
	e.growth.settle()
	l.quota.Charge(e.job.Owner.UID, a.ClusterQueue, a.Usage, e.holder(reservedAt(e.workload, l.clock.Now())))
	e.version++
	e.replanned++
	delete(l.growing, e.job.Owner.UID)
	l.place(e)
	l.enqueue(e)
	l.taken(a)
	l.podsCame(e.gpus() > 0)
	l.effects.Report()
	l.effects.Write(e.job.Owner.UID)
	return nil
}

// growthRefused tells why an admitted job does not get the pods that it asks
// for.
func (l *Ledger) growthRefused(e *entry, more []int32, why *reason.Reason) {
	e.growth.refused = why
	var parts []string
	for i, n := range more {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d of %s", n, e.job.PodSets[i].Name))
		}
	}
	message := fmt.Sprintf("it asks for more pods, and they wait (%s): %s; those that it has run on", strings.Join(parts, ", "), why.Message)
	now, says := l.clock.Now(), reason.Reason{Class: why.Class, Message: message}
	if e.growth.said.stale(noteGrowthWaits, says, now) {
		e.growth.said = said{event: noteGrowthWaits, why: says, at: now}
		l.effects.Note(e.job, noteGrowthWaits, message)
	}
}

// noteGrowthWaits is the reason of the event about an elastic job that gets no
// more pods for now.
const noteGrowthWaits = "GrowthWaits"

// growth is what an elastic job asks for beside what it has.
type growth struct {
	// wants are the numbers of pods that it asks for by now, by pod set; nil
	// where they are those that it was admitted with.
	wants []int32
	// at is what had happened when it was last refused more pods, and refused
	// why, nil if it was not.
	at      moves
	refused *reason.Reason
	// said is what was last told of that.
	said said
}

// wants are the numbers of pods that the job asks for by now, as of growth.
func (e *entry) wants() []int32 {
	if e.growth == nil {
		return nil
	}
	return e.growth.wants
}

func (e *entry) setWants(counts []int32) {
	if e.growth == nil {
		if counts == nil {
			return
		}
		e.growth = &growth{}
	}
	e.growth.wants = counts
}

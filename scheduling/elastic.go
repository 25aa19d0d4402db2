package scheduling

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

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
	if e.state != Admitted || len(e.wants()) != len(e.sets) {
		// It does not grow, or does so no more; when it does again, that is news.
		delete(l.growing, e.job.Owner.UID)
		if e.growth != nil {
			e.growth.settle()
		}
		return
	}
	changed := false
	for i, set := range e.sets {
		changed = set.fit(e.growth.wants[i]) || changed
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
	e.growth.settle()
}

// missesPods says that the job asks for more pods than it has slots.
func (e *entry) missesPods() bool {
	for i, set := range e.sets {
		if e.growth.wants[i] > set.kept() {
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
	for i := range e.sets {
		usage := quota.Requests{}
		for r := range e.assignment.PodSetUsage[i] {
			usage[r] = e.part(i, r, counts)
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
	l.released(l.quota.Root(a.ClusterQueue))
	l.roomCame()
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

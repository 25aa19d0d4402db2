package scheduling

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/workload"
)

// class is the pods of a pod set that the plugins cannot tell apart: all of
// them, unless pods of the job choose their nodes by labels that differ between
// the set's replicas or between its pods.
type class struct {
	// pod is the prototype with all that the controllers write on the class's
	// first pod, base the one without, which all of the pod set share.
	pod, base *corev1.Pod
	// set is the index of the pod set, of whose slots those of [from, to) are
	// the class's.
	set, from, to int
	// name is the pod set's name, with what tells the class from others of it.
	name string
	// topology is what its pods ask for of being close to each other, nil for
	// nothing; leader says that it is the single pod beside others with that, and
	// beside is the one of others that it is to be close to without asking.
	topology, beside *placement.Topology
	leader           bool
	// levels are the labels by which nodes of its flavors are in domains, outermost
	// first.
	levels []string
}

func (c class) size() int { return c.to - c.from }

// division is into what the pod sets of a job are divided.
type division int

const (
	bySet division = iota
	byReplica
	byPod
)

// divisionOf is by the labels that pods of the job select by; bases are their
// prototypes.
func divisionOf(bases []*corev1.Pod) division {
	d := bySet
	for _, base := range bases {
		for _, label := range workload.SelectedLabels(&base.Spec) {
			switch {
			case workload.DiffersByPod(label):
				return byPod
			case workload.DiffersByReplica(label):
				d = byReplica
			}
		}
	}
	return d
}

// step is the number of slots in each class of a pod set. Where pods follow
// each other in the slots of a replica, no slot is one pod's own.
func (d division) step(ps *workload.PodSet) int {
	switch {
	case ps.Stamp.JobPrefix == "" && ps.Stamp.IndexLabel == "":
		return int(ps.Count)
	case d == byPod && ps.Completions <= ps.Count:
		return 1
	case d != bySet || ps.Exclusive != workload.Exclusive{}:
		return int(ps.PodsPerReplica)
	}
	return int(ps.Count)
}

// classesOf are the classes of a job, in the order of its slots. bases[i] is
// the prototype of pod set i.
func classesOf(job *workload.Job, bases []*corev1.Pod) []class {
	var out []class
	d := divisionOf(bases)
	for i := range job.PodSets {
		ps := &job.PodSets[i]
		count, step := int(ps.Count), d.step(ps)
		for from := 0; from < count; from += step {
			out = append(out, newClass(ps, i, bases[i], from, step))
		}
	}
	return out
}

func newClass(ps *workload.PodSet, set int, base *corev1.Pod, from, step int) class {
	c := class{base: base, set: set, from: from, to: min(from+step, int(ps.Count)), name: ps.Name}
	first := ps.Slot(int32(from))
	c.pod = ps.Stamped(base, first)
	switch {
	case step == 1 && ps.PodsPerReplica > 1:
		c.name = fmt.Sprintf("%s[%d][%d]", ps.Name, first.Replica, first.Completion)
	case step < int(ps.Count):
		c.name = fmt.Sprintf("%s[%d]", ps.Name, first.Replica)
	}
	return c
}

// written is what quota and placement look at of what the controllers write on
// the pods of a set. Labels count only where the job selects by some of them;
// otherwise they would tell every job from every other.
type written struct {
	Stamp     workload.Stamp
	Exclusive workload.Exclusive
	Replica   int32
	// Class is the priority class of pods that must be away from others of
	// their priority.
	Class string
}

func writtenOn(job *workload.Job, ps *workload.PodSet) written {
	var out written
	if (ps.Exclusive != workload.Exclusive{}) {
		out.Exclusive, out.Replica, out.Class = ps.Exclusive, ps.PodsPerReplica, ps.PlacedTemplate().Spec.PriorityClassName
		if ps.Exclusive.ByNodeSelector {
			out.Stamp = ps.Stamp
		}
	}
	labels := ps.LabelsOf(workload.Slot{})
	for i := range job.PodSets {
		t := job.PodSets[i].PlacedTemplate()
		for _, label := range workload.SelectedLabels(&t.Spec) {
			if _, found := labels[label]; found {
				out.Stamp, out.Replica = ps.Stamp, ps.PodsPerReplica
			}
		}
	}
	return out
}

// slotsOf are the slots of a class, in rank order.
func (e *entry) slotsOf(c class) []*slot { return e.sets[c.set].slots[c.from:c.to] }

// gangOf describes what is to be planned: counts[i] pods of each class.
func gangOf(name string, uid types.UID, classes []class, counts []int) placement.Gang {
	g := placement.Gang{Name: name, UID: uid}
	for i, c := range classes {
		g.Classes = append(g.Classes, placement.Class{
			Name: c.name, Pod: c.pod, Count: counts[i], Topology: c.topology, Leader: c.leader, Beside: c.beside,
		})
	}
	return g
}

// keepNear has the planner know where the pods are of a class of which only some
// are planned. Of size slots those that it does not have yet are to be placed, as are
// those that are lost.
func keepNear(c *placement.Class, slots []*slot, size int) {
	if c.Topology == nil {
		return
	}
	c.Kept = make([]string, size)
	for i, s := range slots {
		switch {
		case s.done || s.surplus:
			c.Kept[i] = placement.Over
		case !s.lost():
			c.Kept[i] = s.node
		}
	}
}

// stayNear has the planner know where the gang is of which only a part is planned.
func stayNear(g *placement.Gang, classes []class) {
	var near []string
	for i := range g.Classes {
		near = append(near, g.Classes[i].Fixed...)
	}
	for i := range g.Classes {
		g.Classes[i].Near, g.Classes[i].NearBy = near, classes[i].levels
	}
}

// keepOff has a gang planned off nodes that are reserved for others.
func keepOff(g *placement.Gang, reserved []string) {
	for i := range g.Classes {
		g.Classes[i].Reserved = reserved
	}
}

// sizes are the numbers of pods of whole classes.
func sizes(classes []class) []int {
	out := make([]int, len(classes))
	for i, c := range classes {
		out[i] = c.size()
	}
	return out
}

// wholeSets describes the same gang pod set by pod set, for what does not ask
// whom a pod is near: its resources and its node selector.
func wholeSets(job *workload.Job, classes []class) placement.Gang {
	g := placement.Gang{Name: job.Owner.Name, UID: job.Owner.UID}
	for _, c := range classes {
		if c.from == 0 {
			ps := &job.PodSets[c.set]
			g.Classes = append(g.Classes, placement.Class{Name: ps.Name, Pod: c.base, Count: int(ps.Count)})
		}
	}
	return g
}

// bySets joins the nodes of the classes to those of the pod sets.
func bySets(sets int, classes []class, plan placement.Assignment) placement.Assignment {
	out := make(placement.Assignment, sets)
	for i, c := range classes {
		out[c.set] = append(out[c.set], plan[i]...)
	}
	return out
}

package invariants

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// cell is one quota of a ClusterQueue.
type cell struct {
	flavor   string
	resource corev1.ResourceName
}

// place is a node as seen by a pod set.
type place struct{ set, node string }

// seats are the slots of one pod set.
type seats struct {
	count int64
	// charged is how many of the pods the Workload does not call reclaimable.
	charged int64
	// hosts is how many slots are on each node, by its kubernetes.io/hostname
	// label; nil where the Workload does not say.
	hosts map[string]int64
	// request is what one pod will take up.
	request amounts[corev1.ResourceName]
}

// claim is what a Workload claims.
type claim struct {
	ref, namespace, name string
	uid, owner           types.UID
	ownerName            string
	// admitted: it is admitted, with an assignment, and has not finished.
	admitted, finished bool
	// active is spec.active, generation and priority are the Workload's.
	active     bool
	generation int64
	priority   int32
	created    time.Time
	// evicted is the reason of a standing eviction.
	evicted string
	queue   string
	usage   amounts[cell]
	sets    map[string]*seats
	// done counts the pods that have succeeded since the admission.
	done map[place]int64
	// starts are the start groups that have begun since the admission.
	starts map[int]*start
	// gone, goneAt: the Workload was deleted, and when.
	gone   bool
	goneAt time.Time
}

func claimFrom(o *kueue.Workload) *claim {
	cl := &claim{
		ref: ref("Workload", o), namespace: o.Namespace, name: o.Name, uid: o.UID,
		usage: amounts[cell]{}, sets: map[string]*seats{}, done: map[place]int64{}, starts: map[int]*start{},
	}
	cl.active, cl.generation = o.Spec.Active == nil || *o.Spec.Active, o.Generation
	cl.created = o.CreationTimestamp.Time
	if o.Spec.Priority != nil {
		cl.priority = *o.Spec.Priority
	}
	if owner, ok := workload.OwnerOf(o); ok {
		cl.owner, cl.ownerName = owner.UID, owner.Name
	}
	cl.finished = apimeta.IsStatusConditionTrue(o.Status.Conditions, kueue.WorkloadFinished)
	if e := apimeta.FindStatusCondition(o.Status.Conditions, kueue.WorkloadEvicted); e != nil && e.Status == metav1.ConditionTrue {
		cl.evicted = e.Reason
	}
	a := o.Status.Admission
	cl.admitted = a != nil && !cl.finished && apimeta.IsStatusConditionTrue(o.Status.Conditions, kueue.WorkloadAdmitted)
	if !cl.admitted {
		return cl
	}
	cl.queue = string(a.ClusterQueue)
	for i := range a.PodSetAssignments {
		cl.assign(o, &a.PodSetAssignments[i])
	}
	return cl
}

func (cl *claim) assign(o *kueue.Workload, a *kueue.PodSetAssignment) {
	s := &seats{hosts: hostsOf(a.TopologyAssignment), request: amounts[corev1.ResourceName]{}}
	for i := range o.Spec.PodSets {
		ps := &o.Spec.PodSets[i]
		if ps.Name != a.Name {
			continue
		}
		s.count = int64(ps.Count)
		for name, q := range workload.Requests(&ps.Template) {
			s.request.add(name, q)
		}
		s.request.add(corev1.ResourcePods, *resource.NewQuantity(1, resource.DecimalSI))
	}
	if a.Count != nil {
		s.count = int64(*a.Count)
	}
	cl.sets[string(a.Name)] = s
	s.charged = s.count
	for _, r := range o.Status.ReclaimablePods {
		if r.Name == a.Name {
			s.charged = max(0, s.count-int64(r.Count))
		}
	}
	for name, q := range a.ResourceUsage {
		if flavor, ok := a.Flavors[name]; ok && s.count > 0 {
			cl.usage.add(cell{string(flavor), name}, times(part(name, q, s.count), s.charged))
		}
	}
}

// part is one pod's part of what count equal pods use.
func part(name corev1.ResourceName, q resource.Quantity, count int64) resource.Quantity {
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(q.MilliValue()/count, resource.DecimalSI)
	}
	return *resource.NewQuantity(q.Value()/count, q.Format)
}

// hostsOf counts the pods that a topology assignment puts on each host: the
// values of its lowest level.
func hostsOf(t *kueue.TopologyAssignment) map[string]int64 {
	if t == nil || len(t.Levels) == 0 || t.Levels[len(t.Levels)-1] != corev1.LabelHostname {
		return nil
	}
	out := map[string]int64{}
	for i := range t.Slices {
		slice := &t.Slices[i]
		if len(slice.ValuesPerLevel) != len(t.Levels) {
			continue
		}
		values := slice.ValuesPerLevel[len(t.Levels)-1]
		for d := range int(slice.DomainCount) {
			var host string
			switch {
			case values.Universal != nil:
				host = *values.Universal
			case values.Individual != nil && d < len(values.Individual.Roots):
				if p := values.Individual.Prefix; p != nil {
					host = *p
				}
				host += values.Individual.Roots[d]
				if s := values.Individual.Suffix; s != nil {
					host += *s
				}
			}
			switch {
			case slice.PodCounts.Universal != nil:
				out[host] += int64(*slice.PodCounts.Universal)
			case d < len(slice.PodCounts.Individual):
				out[host] += int64(slice.PodCounts.Individual[d])
			}
		}
	}
	return out
}

// hosts are all hosts on which the Workload has slots, in order.
func (cl *claim) hosts() []string {
	all := map[string]bool{}
	for _, s := range cl.sets {
		for host := range s.hosts {
			all[host] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// String says what the Workload claims and how it stands.
func (cl *claim) String() string {
	var state []string
	switch {
	case cl.finished:
		state = append(state, "finished")
	case cl.admitted:
		state = append(state, "admitted by "+cl.queue)
		for _, name := range slices.Sorted(maps.Keys(cl.sets)) {
			s := cl.sets[name]
			var where []string
			for _, host := range slices.Sorted(maps.Keys(s.hosts)) {
				where = append(where, fmt.Sprintf("%d on %s", s.hosts[host], host))
			}
			state = append(state, fmt.Sprintf("%s: %d pods (%s)", name, s.count, strings.Join(where, ", ")))
		}
		for u, q := range cl.usage {
			state = append(state, fmt.Sprintf("charged %s %s of %s", q.String(), u.resource, u.flavor))
		}
		slices.Sort(state[1:])
	default:
		state = append(state, "not admitted")
	}
	if cl.evicted != "" {
		state = append(state, "evicted: "+cl.evicted)
	}
	return strings.Join(state, "; ")
}

func (c *Checker) seeWorkload(o *kueue.Workload, gone bool) {
	was, cl := c.workloads[o.UID], claimFrom(o)
	newly := cl.admitted && (was == nil || !was.admitted)
	if was != nil && !newly {
		cl.done, cl.starts = was.done, was.starts
	}
	if newly {
		c.overBefore(cl, o)
	}
	about := []string{cl.ref}
	for _, host := range cl.hosts() {
		about = append(about, "Node "+c.nodeNamed(host))
	}
	if cl.queue != "" {
		about = append(about, "ClusterQueue "+cl.queue)
	}
	switch {
	case gone:
		c.note(cl.ref+" is gone; it was "+cl.String(), about...)
	case was == nil || was.String() != cl.String():
		c.note(cl.ref+" is "+cl.String(), about...)
	}
	if gone {
		delete(c.workloads, o.UID)
		cl.gone, cl.goneAt = true, c.now
	} else {
		c.workloads[o.UID] = cl
	}
	if cl.owner != "" {
		c.byOwner[cl.owner] = cl
	}
	c.judgeCharges(was, cl)
	c.judgeSlots(was, cl, newly)
	if was != nil && was.admitted && !cl.admitted {
		c.judgeLeaving(cl)
	}
	if !gone {
		c.judgeEviction(was, cl, o)
	}
	c.settleDebts(cl, newly)
}

// charges says that a Workload counts against its quota.
func (c *Checker) charges(cl *claim) bool {
	return cl.admitted && (!c.ended[cl.owner] || slices.ContainsFunc(c.podsOf(cl.owner, ""), (*pod).onNode))
}

// holds says that the slots of a Workload wait for pods.
func (c *Checker) holds(cl *claim) bool { return cl.admitted && !c.ended[cl.owner] }

// settleClaim takes what is used where a Workload was admitted as given, after
// it was given up.
func (c *Checker) settleClaim(cl *claim) {
	if cl.queue != "" {
		used, _ := c.charged(cl.queue)
		c.queueNamed(cl.queue).quota.settle(used)
	}
	for _, host := range cl.hosts() {
		c.settleNode(c.nodeNamed(host))
	}
}

// claimOf is the Workload of a pod's job, nil where there was none.
func (c *Checker) claimOf(p *pod) *claim {
	job, queued := c.jobOf(p.jobSet)
	if cl := c.byOwner[job]; queued && cl != nil && cl.namespace == p.namespace {
		return cl
	}
	return nil
}

package scheduling

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-gpu/muster/metrics"
)

// breach is what took room that was held: a pod that others put there, or the
// node itself.
type breach struct {
	// reason is the label of the metric, as metrics.HoldBrokenByPod.
	reason string
	// what is the beginning of the sentence that ends with the pods concerned.
	what string
}

// breachOf is a pod that someone else has put onto a node.
func breachOf(pod *corev1.Pod) *breach {
	if _, static := pod.Annotations[corev1.MirrorPodAnnotationKey]; static {
		return &breach{metrics.HoldBrokenByPod, fmt.Sprintf("static pod %s/%s of node %s took the room that was held for", pod.Namespace, pod.Name, pod.Spec.NodeName)}
	}
	return &breach{metrics.HoldBrokenByPod, fmt.Sprintf("pod %s/%s, whose schedulerName is %s, was put on node %s by others and took the room that was held for",
		pod.Namespace, pod.Name, pod.Spec.SchedulerName, pod.Spec.NodeName)}
}

// shortage is a node that has become smaller, or whose pods have grown.
func (l *Ledger) shortage(node string) *breach {
	r := l.roomOf(node, nil)
	var has []string
	for _, name := range slices.Sorted(maps.Keys(r.over())) {
		has = append(has, fmt.Sprintf("%s %s", quantity(name, r.allocatable[name]), name))
	}
	return &breach{metrics.HoldBrokenByNode, fmt.Sprintf("node %s has %s now, too little for what was held for", node, strings.Join(has, " and "))}
}

// amounts are quantities of resources; CPU in thousandths.
type amounts map[corev1.ResourceName]int64

func amountsOf(r fwk.Resource, pods int64) amounts {
	out := amounts{
		corev1.ResourceCPU: r.GetMilliCPU(), corev1.ResourceMemory: r.GetMemory(),
		corev1.ResourceEphemeralStorage: r.GetEphemeralStorage(), corev1.ResourcePods: pods,
	}
	maps.Copy(out, r.GetScalarResources())
	return out
}

func (a amounts) add(o amounts, times int64) {
	for name, v := range o {
		a[name] += times * v
	}
}

func quantity(name corev1.ResourceName, v int64) string {
	if name == corev1.ResourceCPU {
		return fmt.Sprintf("%dm", v)
	}
	return fmt.Sprint(v)
}

// room is what a node has, and what is used, held, or on its way there.
type room struct {
	allocatable, taken amounts
	// holds are the phantoms on the node that are those of a slot, by UID.
	holds map[types.UID]held
}

// held is a slot that is a hold.
type held struct {
	e    *entry
	s    *slot
	asks amounts
}

// over is by how much more is taken than there is, of the resources of which
// it is more.
func (r *room) over() amounts {
	over := amounts{}
	for name, v := range r.taken {
		if d := v - r.allocatable[name]; d > 0 {
			over[name] = d
		}
	}
	return over
}

// roomOf counts what is on a node, exactly, although the scheduler's cache and
// the Ledger are told one after the other: a pod of a job counts while it has
// its slot, whose phantom does else. allocatable stands for what the cache has,
// unless it is nil. A node without slots has taken nothing.
func (l *Ledger) roomOf(node string, allocatable *framework.Resource) *room {
	r := &room{holds: map[types.UID]held{}}
	var flying []*slot
	slots := l.slotsOn(node)
	if len(slots) == 0 {
		return r
	}
	for e, slots := range slots {
		for _, s := range slots {
			switch {
			case s.hold != nil:
				r.holds[s.hold.UID] = held{e: e, s: s}
			case s.inFlight:
				flying = append(flying, s)
			}
		}
	}
	info, err := l.cache.GetNode(node)
	if err != nil || info.Node() == nil {
		return r
	}
	if allocatable == nil {
		allocatable = info.Allocatable
	}
	r.allocatable, r.taken = amountsOf(allocatable, int64(allocatable.AllowedPodNumber)), amounts{}
	there := map[types.UID]bool{}
	for _, p := range info.Pods {
		pod := p.GetPod()
		if isClaimHold(pod) {
			continue
		}
		there[pod.UID] = true
		if h, ok := r.holds[pod.UID]; ok {
			h.asks = amountsOf(p.CalculateResource().Resource, 1)
			r.holds[pod.UID] = h
		} else if l.isPassing(pod) {
			continue
		}
		r.taken.add(amountsOf(p.CalculateResource().Resource, 1), 1)
	}
	for _, s := range flying {
		if !there[s.pod.UID] {
			r.taken.add(amountsOf((&framework.PodInfo{Pod: s.pod}).CalculateResource().Resource, 1), 1)
		}
	}
	l.leaveOutDevices(r)
	return r
}

// leaveOutDevices has those resources not counted of which the node advertises none,
// and behind which there are devices: whether these are enough, claims say.
func (l *Ledger) leaveOutDevices(r *room) {
	if l.devices == nil {
		return
	}
	maps.DeleteFunc(r.taken, func(name corev1.ResourceName, _ int64) bool {
		return r.allocatable[name] == 0 && l.isDevice(name)
	})
}

// isDevice tells whether there may be devices behind an extended resource.
func (l *Ledger) isDevice(name corev1.ResourceName) bool {
	return l.devices != nil && l.devices.DeviceClassResolver().GetDeviceClass(name) != nil
}

// isPassing says that a pod in the scheduler's cache belongs to a job and is on
// its way in or out: the Ledger is told of it next, or has been already.
func (l *Ledger) isPassing(pod *corev1.Pod) bool {
	m, e, _ := l.jobOf(pod)
	if m != member {
		return false
	}
	if s, seated := e.seats[pod.UID]; seated {
		return !s.occupied()
	}
	p := e.unplaced[pod.UID]
	return p == nil || p.Spec.NodeName == ""
}

// intruded says that someone else has put a pod onto a node, or has made one
// there larger.
func (l *Ledger) intruded(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.intrusions.Add(1)
	l.inspect(pod.Spec.NodeName, breachOf(pod))
}

// inspect gives up as few holds as cure a node on which more is used and held
// than there is: those of jobs that leave, then of the lowest priority, then of
// the jobs admitted last. A hold whose admission is still being written, and a
// slot whose pod is on its way, are looked at again when that has ended. why is
// nil if nothing new has happened to the node.
func (l *Ledger) inspect(node string, why *breach) {
	r := l.roomOf(node, nil)
	over := r.over()
	if len(over) == 0 {
		delete(l.overfull, node)
		return
	}
	if why == nil {
		why = l.overfull[node]
	}
	if why == nil {
		why = l.shortage(node)
	}
	l.overfull[node] = why
	broken := map[*entry]int64{}
	for _, h := range r.cheapest(over) {
		switch h.e.state {
		case Admitting:
			continue
		case Admitted:
			broken[h.e]++
		}
		l.lose(h.e, h.s)
	}
	for e, n := range broken {
		metrics.HoldsBroken.WithLabelValues(why.reason).Add(float64(n))
		message := fmt.Sprintf("%s %s of the job; another node is looked for", why.what, amount(0, n))
		l.logger.V(2).Info("Holds were broken", "job", e.job.Owner.NamespacedName, "node", node, "why", message)
		l.effects.Note(e.job, noteHoldBroken, message)
	}
}

// inspectAgain looks at the nodes that could not be cured before.
func (l *Ledger) inspectAgain() {
	for node := range maps.Clone(l.overfull) {
		l.inspect(node, nil)
	}
}

// cheapest are as few of a node's holds as free what is over, the cheapest to
// give up first.
func (r *room) cheapest(over amounts) []held {
	all := slices.SortedFunc(maps.Values(r.holds), byWorth)
	left := maps.Clone(over)
	helps := func(h held) bool {
		for name, v := range left {
			if v > 0 && h.asks[name] > 0 {
				return true
			}
		}
		return false
	}
	var out []held
	for _, h := range all {
		if helps(h) {
			out = append(out, h)
			left.add(h.asks, -1)
		}
	}
	// A later one can make an earlier one superfluous.
	for i := len(out) - 1; i >= 0; i-- {
		if !left.need(out[i].asks, over) {
			left.add(out[i].asks, 1)
			out = slices.Delete(out, i, i+1)
		}
	}
	return out
}

// need says that without asks more of what was over would be left.
func (a amounts) need(asks, over amounts) bool {
	for name := range over {
		if asks[name] > 0 && a[name]+asks[name] > 0 {
			return true
		}
	}
	return false
}

// byWorth orders holds by what it costs to give them up.
func byWorth(a, b held) int {
	leaving := func(h held) int {
		if h.e.state == Leaving {
			return 0
		}
		return 1
	}
	// A job whose admission is being written has been admitted last.
	writing := func(h held) int {
		if h.e.state == Admitting {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(leaving(a), leaving(b)),
		cmp.Compare(a.e.priority, b.e.priority),
		cmp.Compare(writing(a), writing(b)),
		admittedAt(b.e.workload).Compare(admittedAt(a.e.workload)),
		cmp.Compare(b.e.job.Owner.UID, a.e.job.Owner.UID),
		cmp.Compare(b.s.set.set.Name, a.s.set.set.Name),
		cmp.Compare(b.s.index, a.s.index))
}

// stillFits says whether what was just held on nodes fits there: pods that
// others have put there since the pass looked are in no plan.
func (l *Ledger) stillFits(nodes []string) bool {
	if l.intrusions.Load() == l.looked.Load() {
		return true
	}
	for _, name := range nodes {
		info, err := l.cache.GetNode(name)
		if err != nil || info.Node() == nil {
			return false
		}
		r := &room{
			allocatable: amountsOf(info.Allocatable, int64(info.Allocatable.AllowedPodNumber)),
			taken:       amountsOf(info.Requested, int64(len(info.Pods))),
		}
		for _, p := range info.Pods {
			if len(l.claims) > 0 && isClaimHold(p.GetPod()) {
				// What is there will have left.
				r.taken.add(amountsOf(p.CalculateResource().Resource, 1), -1)
			}
		}
		l.leaveOutDevices(r)
		if len(r.over()) > 0 {
			return false
		}
	}
	return true
}

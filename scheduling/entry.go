package scheduling

import (
	"fmt"
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// entry is what the Ledger knows of one job. The Ledger's lock guards it.
type entry struct {
	job      *workload.Job
	workload *kueue.Workload
	// readWith is the version of the Workload with which the job was read last,
	// justRead the pods that it was read with, while they are taken in.
	readWith string
	justRead map[types.UID]*corev1.Pod
	priority int32
	// stale: the job asks for something else than job says, which is what it
	// was admitted with; it is read again before it is admitted again.
	stale bool
	// resumed: the owner was resumed since the job was admitted.
	resumed bool
	// stopSent: the owner was suspended by us since the job began to leave.
	stopSent bool
	// ended: the owner has finished or is deleted.
	ended bool
	// refused is set while the API server does not let the job be resumed, or
	// stopped.
	refused *denial
	state   State
	// blocked is a reason that the job itself gives (it cannot be read, it is
	// deactivated); quota and nodes are not asked while it is set.
	blocked *reason.Reason
	// requeueAt is when a job that failed to start may be tried again.
	requeueAt instant
	// version counts the changes of the job; a plan made for an older version
	// is not committed.
	version int
	// tried is the epoch of the Ledger at the last try to replace lost slots,
	// why is the reason that they got no nodes, nil if they did.
	tried int64
	why   *reason.Reason
	// shape is that of job, zero until it is asked for.
	shape shape
	// spot is where the waitlist has the job; Ledger.enqueue sets it.
	spot spot
	// reservation is what is kept for the job, nil if nothing is; noReservation is
	// until when nothing will be.
	reservation   *reservation
	noReservation instant
	// unread is what was last said of annotations that cannot be read; nil if
	// nothing was.
	unread *string
	// ignored is the queue that the owner names and the job is not in, because it
	// runs; nil if it is in that which it names.
	ignored *string
	// said is what was last told in an event of a job that waits, or that is
	// admitted and misses nodes; nil if nothing was.
	said *said
	// provisioning is what became of the nodes that were asked for it, to be said
	// with its reason; nil if none were.
	provisioning *string
	// podOwners are the UIDs by which pods have named the job.
	podOwners []types.UID

	assignment *quota.Assignment
	sets       []*setSlots
	// close is how close the pods were planned to each other, nil where that is not
	// known.
	close *closeness
	// seats are the slots of the live pods that have one, unplaced the pods
	// that have none: the job has no slots, or theirs is not free yet.
	seats    map[types.UID]*slot
	unplaced map[types.UID]*corev1.Pod
	// succeeded are the pods whose success has been counted in their set. One
	// may be heard of more than once when it succeeds while the job is restored.
	succeeded map[types.UID]struct{}
	// replanned counts the changes of slots' nodes since admission.
	replanned int32
	// lateSince is since when a pod that should be on its node is not; zero
	// while there is none. lateStart: one of them has never been there.
	lateStart bool
	lateSince instant

	// unprotected: when its GPUs were looked at last, it did nothing with them for so
	// long that no minimum of runtime protected it.
	unprotected bool

	// growth is of elastic jobs; nil for most.
	growth *growth
	// claim is set while the job is Claimed. claimsFailed counts the claims in a
	// row that came to nothing, noClaimBefore is when the next may be made.
	claim         *claim
	claimsFailed  int
	noClaimBefore instant

	eviction *eviction
	// remains is of jobs that leave, but for some pods on nodes; nil for most.
	remains *remains
	// keptUntil is until when the place of a job that has ended is kept for its
	// keeper's next pod; zero if it is not.
	keptUntil instant
}

// settle forgets the refusals of before: a new one is news.
func (g *growth) settle() { g.at, g.refused, g.said = moves{}, nil, said{} }

// eviction is why and how a job is being stopped.
type eviction struct {
	// reason is one of Kueue's Evicted reasons.
	reason  string
	message string
	// preempted is Kueue's reason of the Preempted condition, for a job that is
	// stopped for another one.
	preempted string
	// by is the job for which it is stopped, empty if for none.
	by string
	// backOff: the job waits before it is tried again, longer each time.
	backOff bool
}

// moveTo gives a lost slot a new node. Its pod is let in when the Workload says
// the node.
func (e *entry) moveTo(s *slot, node string) {
	s.node, s.unwritten, s.stale, s.avoid, s.was = node, true, false, "", ""
	e.replanned++
}

func (e *entry) String() string {
	return fmt.Sprintf("%s %s (%s)", e.job.Owner.Kind, e.job.Owner.NamespacedName, e.state)
}

// move changes the state by the table and reports whether the event was legal.
func (e *entry) move(ev event) bool {
	to, ok := e.state.next(ev)
	if !ok {
		return false
	}
	e.state, e.refused = to, nil
	e.version++
	return true
}

// holdsCapacity says that the job is charged and has slots.
func (e *entry) holdsCapacity() bool {
	return e.state == Admitting || e.state == Admitted || e.state == Leaving
}

// unadmitted says that the job has no quota and no slots.
func (e *entry) unadmitted() bool { return e.state == Pending || e.state == Claimed }

// letsIn says that pods of the job may pass the gate.
func (e *entry) letsIn() bool { return e.state == Admitted }

func newEntry(job *workload.Job) *entry {
	return &entry{job: job, state: Pending}
}

// occupied says that a pod of the job is on a node or on its way to one.
func (e *entry) occupied() bool {
	for _, set := range e.sets {
		if slices.ContainsFunc(set.slots, (*slot).occupied) {
			return true
		}
	}
	for _, pod := range e.unplaced {
		if pod.Spec.NodeName != "" {
			return true
		}
	}
	return false
}

// late says that a pod which should be on its node is not. The first phase's
// pods are due from admission on; a later phase's are due once one of them
// exists, since they may wait for hours for the phase before.
func (e *entry) late(now time.Time) bool {
	due := e.due()
	for _, set := range e.sets {
		missing := func(s *slot) bool { return s.missing(now) }
		if due[set.set.Phase] && slices.ContainsFunc(set.slots, missing) {
			return true
		}
	}
	return false
}

// due are the phases whose pods should be on their nodes.
func (e *entry) due() map[int]bool {
	due := map[int]bool{0: true}
	for _, set := range e.sets {
		if slices.ContainsFunc(set.slots, func(s *slot) bool { return s.pod != nil }) {
			due[set.set.Phase] = true
		}
	}
	return due
}

// phase is the pod sets of a phase.
func (e *entry) phase(phase int) []*setSlots {
	var out []*setSlots
	for _, s := range e.sets {
		if s.set.Phase == phase {
			out = append(out, s)
		}
	}
	return out
}

// group is the slots of a start group: their pods do not depend on each other
// being bound, ready or complete.
func (e *entry) group(g startGroup) iter.Seq[*slot] {
	return func(yield func(*slot) bool) {
		for _, set := range e.sets {
			if set.set.Phase != g.phase {
				continue
			}
			for _, s := range set.slots {
				if s.group() == g && !yield(s) {
					return
				}
			}
		}
	}
}

// groupReady says that all pods of the start group exist and have nodes.
func (e *entry) groupReady(g startGroup) bool {
	for s := range e.group(g) {
		if !s.ready() {
			return false
		}
	}
	return true
}

// waiting are the pods of the start group that are in the scheduling queue, or
// held before it. Pods that are being scheduled come back by themselves.
func (e *entry) waiting(g startGroup) []*corev1.Pod {
	var out []*corev1.Pod
	for s := range e.group(g) {
		if s.pod != nil && !s.bound && !s.inFlight {
			out = append(out, s.pod)
		}
	}
	return out
}

func (e *entry) set(name string) *setSlots {
	for _, s := range e.sets {
		if s.set.Name == name {
			return s
		}
	}
	return nil
}

// renew takes in what the newest reading says of how the pods of each set come.
// A job that was restored while its pod templates were away did not know. It
// reports whether that has changed.
func (e *entry) renew() (changed bool) {
	for _, set := range e.sets {
		ps := e.job.PodSet(set.set.Name)
		if ps == nil || ps.Count != set.set.Count {
			continue
		}
		old := &set.set
		changed = changed || old.Phase != ps.Phase || old.PodsPerReplica != ps.PodsPerReplica || old.Exclusive != ps.Exclusive
		set.set = *ps
	}
	return changed
}

// newer keeps wl if it is not older than what the entry has, so that an event
// older than our own last write never rolls it back.
func (e *entry) newer(wl *kueue.Workload) bool {
	if wl == nil {
		return false
	}
	if e.workload == nil {
		return true
	}
	cmp, err := resourceversion.CompareResourceVersion(wl.ResourceVersion, e.workload.ResourceVersion)
	return err == nil && cmp >= 0
}

// before is the queue order of two jobs, as of slices.SortFunc.
func (e *entry) before(o *entry) int { return e.rank().compare(o.rank()) }

func gpusOf(job *workload.Job) int64 {
	var n int64
	for i := range job.PodSets {
		n += job.PodSets[i].GPUs()
	}
	return n
}

// nodes are the nodes of the slots, each once, in the order of the slots.
func (e *entry) nodes() []string {
	var out []string
	seen := map[string]bool{}
	for _, set := range e.sets {
		for _, s := range set.slots {
			if s.node != "" && !seen[s.node] {
				seen[s.node] = true
				out = append(out, s.node)
			}
		}
	}
	return out
}

// put puts v into a map that is made for its first key: of most jobs that wait
// there are no pods.
func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

package scheduling

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
)

// A claim is what a job is promised that waits for others to leave: their quota
// (quota.Tree.Claim) and, as phantom pods in the scheduler's cache, a place for
// every pod. While they have not left, the nodes have more on them than fits,
// so nobody else gets the room. A claim is in memory only. After a restart the
// job is tried like any other; who was being stopped for it goes on leaving,
// and counts as gone in a new search, so that nobody is stopped twice.
type claim struct {
	assignment *quota.Assignment
	// version is that of the job for which the claim was made.
	version int
	// holds are the phantoms.
	holds []*corev1.Pod
	// gone are the jobs that count as gone, awaits those of them that are in its
	// way, and victims those that were stopped for it and have not left.
	gone, awaits, victims map[types.UID]struct{}
	// tried is what had happened when it was tried in vain beside those of gone
	// that are leaving still, or with devices of those that have left still taken.
	tried moves
	// until is when it ends if they have not left.
	until time.Time
}

const (
	// claimFor is how long victims may take to leave, beside the time that their
	// pods are given to end.
	claimFor = 10 * time.Minute
	// devicesFreed is how long a claim lasts at most when they have left: devices of
	// a pod that has gone are taken back a moment later, by another controller.
	devicesFreed = 30 * time.Second
	// claimPause, doubled for each claim that failed in a row up to maxClaimPause,
	// is how long nobody is stopped for a job whose claim came to nothing.
	claimPause, maxClaimPause = time.Minute, 30 * time.Minute
	// claimPrefix begins the UIDs of the phantoms of claims.
	claimPrefix = "claim-"
)

// isClaimHold says that a pod in the scheduler's cache is a claim's phantom.
func isClaimHold(pod *corev1.Pod) bool { return strings.HasPrefix(string(pod.UID), claimPrefix) }

// claimHolds are the phantoms for a plan, which has the nodes of each class.
func claimHolds(classes []class, plan placement.Assignment) []*corev1.Pod {
	var out []*corev1.Pod
	for i, c := range classes {
		for j, node := range plan[i] {
			p := phantom(c.pod, c.from+j, node)
			p.Name, p.UID = claimPrefix+p.Name, types.UID(claimPrefix)+p.UID
			out = append(out, p)
		}
	}
	return out
}

// promise stops the victims and gives a job the claim on what they leave. gone
// are all jobs, with their pods, that the plan takes for gone.
func (l *Ledger) promise(e *entry, a *quota.Assignment, holds []*corev1.Pod, victims []victim, gone map[types.UID][]*corev1.Pod) error {
	c := &claim{
		assignment: a, until: l.clock.Now().Add(claimFor),
		gone: map[types.UID]struct{}{}, awaits: map[types.UID]struct{}{}, victims: map[types.UID]struct{}{},
	}
	e.claim = c
	for _, h := range holds {
		if err := l.cache.AssumePod(l.logger, h); err != nil {
			l.dropClaim(e)
			return fmt.Errorf("claiming a place on node %s: %w", h.Spec.NodeName, err)
		}
		c.holds = append(c.holds, h)
	}
	nodes := e.claimedNodes()
	for uid, pods := range gone {
		c.gone[uid] = struct{}{}
		if slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return slices.Contains(nodes, p.Spec.NodeName) }) {
			c.awaits[uid] = struct{}{}
		}
	}
	longest := time.Duration(0)
	for _, v := range victims {
		c.awaits[v.ID], c.victims[v.ID] = struct{}{}, struct{}{}
		longest = max(longest, graceOf(v.pods))
	}
	c.until = c.until.Add(longest)
	l.quota.Claim(e.job.Owner.UID, a.ClusterQueue, a.Usage)
	e.move(evClaimed)
	c.version = e.version
	l.claims[e.job.Owner.UID] = e
	l.taken(a)
	for _, v := range victims {
		l.preempt(v, e)
	}
	if len(victims) > 0 {
		l.effects.Note(e.job, notePreempting, stopsVictims(victims, len(c.awaits), l.awaitedNodes(e)))
	}
	l.enqueue(e)
	l.podsCame(e.gpus() > 0)
	if c.ripe() {
		l.effects.Admit()
	}
	l.effects.Report()
	return nil
}

// ripe says that it is worth a try: those have left that were stopped for it, and
// others whom the plan took for gone have left too, or there may be another place
// by now.
func (c *claim) ripe() bool { return len(c.victims) == 0 && c.tried == moves{} }

// preempt stops one job for another.
func (l *Ledger) preempt(v victim, by *entry) {
	o := by.job.Owner
	message := fmt.Sprintf("Preempted to accommodate %s %s (UID: %s, JobUID: %s) due to %s; %s",
		o.Kind, o.NamespacedName, by.workload.UID, o.UID, preempting(v.Reason), v.why(by.priority))
	l.evict(v.e, eviction{reason: kueue.WorkloadEvictedByPreemption, message: message, preempted: v.Reason, by: o.Kind + " " + o.NamespacedName.String()})
	l.effects.Note(v.e.job, notePreempted, message)
	metrics.Preempted(by.claim.assignment.ClusterQueue, v.Reason)
}

// claimStands says that a job is still what its claim was made for.
func (l *Ledger) claimStands(e *entry) bool {
	return l.jobs[e.job.Owner.UID] == e && e.state == Claimed && e.version == e.claim.version && e.startable()
}

// failClaim takes a claim back that came to nothing, and not because of the job
// itself. Others are not stopped for it again at once, so that what comes and goes,
// such as a node, does not have one job after the other stopped.
func (l *Ledger) failClaim(e *entry, why string) {
	e.claimsFailed++
	pause := Backoff{Base: claimPause, Max: maxClaimPause}.wait(e.claimsFailed)
	e.noClaimBefore = instantOf(l.clock.Now().Add(pause))
	l.effects.Note(e.job, noteClaimEnded, fmt.Sprintf("what jobs leave that were stopped for it is no longer kept: %s; no others are stopped for it for %s", why, pause))
	l.endClaim(e, why)
}

// endClaim takes a claim back; its job waits like any other.
func (l *Ledger) endClaim(e *entry, why string) {
	root := l.quota.Root(e.claim.assignment.ClusterQueue)
	l.logger.V(2).Info("Claim ended", "job", e.job.Owner.NamespacedName, "why", why)
	l.dropClaim(e)
	l.quota.Unclaim(e.job.Owner.UID)
	e.move(evUnclaimed)
	l.enqueue(e)
	if b := e.spot.bucket; b != nil {
		l.waits.put(b, cure{}, l.clock.Now())
	}
	l.released(root)
	l.roomCame()
}

// dropClaim takes the phantoms of a claim off.
func (l *Ledger) dropClaim(e *entry) {
	if e.claim == nil {
		return
	}
	for _, h := range e.claim.holds {
		if err := l.cache.ForgetPod(l.logger, h); err != nil {
			l.logger.Error(err, "Forgetting a claim", "pod", h.Name)
		}
	}
	e.claim = nil
	delete(l.claims, e.job.Owner.UID)
}

// claimsGone has the claims looked at that have waited for a job which has left.
func (l *Ledger) claimsGone(uid types.UID) {
	for _, e := range l.claims {
		c := e.claim
		delete(c.gone, uid)
		if _, awaited := c.awaits[uid]; !awaited {
			continue
		}
		delete(c.awaits, uid)
		delete(c.victims, uid)
		c.tried = moves{}
		l.effects.Report()
		if c.ripe() {
			l.effects.Admit()
		}
	}
}

// tendClaims ends the claims whose victims have not left in time, and has those
// tried again that wait for others, if room or quota may have come elsewhere.
func (l *Ledger) tendClaims(now time.Time) {
	for _, e := range maps.Clone(l.claims) {
		c := e.claim
		switch {
		case now.After(c.until) && len(c.awaits) == 0:
			l.failClaim(e, "the jobs have left, and there are still no devices for it")
		case now.After(c.until):
			l.failClaim(e, fmt.Sprintf("%s did not leave in time", jobs(len(c.awaits))))
		case c.tried != moves{} && c.tried != l.waits.seen:
			c.tried = moves{}
			l.effects.Admit()
		}
	}
}

// claimsRefused ends the claims of jobs that their queue admits no more whoever leaves,
// because it was stopped, or has less quota: others may have what is left.
func (l *Ledger) claimsRefused() {
	for _, e := range maps.Clone(l.claims) {
		_, no := l.assignIn(e, e.claim.assignment)
		switch {
		case no == nil || no.Class == reason.WaitingForQuota:
		case stepsOut(no.Class):
			l.endClaim(e, no.Message)
		default:
			l.failClaim(e, no.Message)
		}
	}
}

// claimsOn ends the claims on a node that does not take pods any more.
func (l *Ledger) claimsOn(node, why string) {
	for _, e := range maps.Clone(l.claims) {
		if slices.Contains(e.claimedNodes(), node) {
			l.failClaim(e, fmt.Sprintf("node %s %s", node, why))
		}
	}
}

// claimsEnd ends all claims.
func (l *Ledger) claimsEnd(why string) {
	for _, e := range maps.Clone(l.claims) {
		l.endClaim(e, why)
	}
}

// claimOf is the job of a ClusterQueue that has a claim, nil if none has.
func (l *Ledger) claimOf(queue string) *entry {
	for _, e := range l.claims {
		if e.claim.assignment.ClusterQueue == queue {
			return e
		}
	}
	return nil
}

// ripe are the jobs whose claims are worth a try, in queue order.
func (l *Ledger) ripe() []*entry {
	var out []*entry
	if !l.admits() {
		return nil
	}
	for _, e := range l.claims {
		if e.claim.ripe() {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, (*entry).before)
	return out
}

// claimedNodes are the nodes of a claim.
func (e *entry) claimedNodes() []string {
	var out []string
	for _, h := range e.claim.holds {
		if !slices.Contains(out, h.Spec.NodeName) {
			out = append(out, h.Spec.NodeName)
		}
	}
	return out
}

// whyClaimed is what a job says that has a claim.
func (l *Ledger) whyClaimed(e *entry) *reason.Reason {
	n := len(e.claim.awaits)
	if n == 0 && e.claim.tried != (moves{}) {
		return reason.New(reason.WaitingForPreemptedWorkloads, "the jobs that were stopped for it have left; it waits until their devices are free")
	}
	if n == 0 {
		return reason.New(reason.WaitingForPreemptedWorkloads, "the jobs that were stopped for it have left; it is about to start")
	}
	return reason.New(reason.WaitingForPreemptedWorkloads, "waiting for %s to leave %s%s", jobs(n), nodeRange(l.awaitedNodes(e)), l.unstoppable(e))
}

// leavers are the jobs that a claim waits for, in queue order.
func (l *Ledger) leavers(e *entry) []*entry {
	var out []*entry
	for uid := range e.claim.awaits {
		if o := l.jobs[uid]; o != nil {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, (*entry).before)
	return out
}

// awaitedNodes are the nodes that those leave whom a claim waits for: where only
// quota is short, the job starts on others.
func (l *Ledger) awaitedNodes(e *entry) []string {
	var out []string
	for _, o := range l.leavers(e) {
		out = append(out, o.nodes()...)
	}
	return out
}

// unstoppable says of one of those whom a claim waits for that it cannot be stopped, as the
// end of a sentence.
func (l *Ledger) unstoppable(e *entry) string {
	for _, o := range l.leavers(e) {
		if no := o.refusal(); no != "" {
			return fmt.Sprintf("; %s %s cannot be stopped: %s", o.job.Owner.Kind, o.job.Owner.NamespacedName, no)
		}
	}
	return ""
}

// stopsVictims names the jobs that are stopped for another one, which waits for
// as many to leave their nodes as are awaited.
func stopsVictims(victims []victim, awaited int, nodes []string) string {
	const most = 3
	var names []string
	for i, v := range victims {
		if i == most {
			names = append(names, fmt.Sprintf("and %d more", len(victims)-most))
			break
		}
		o := v.e.job.Owner
		names = append(names, o.Kind+" "+o.NamespacedName.String())
	}
	whom := "them"
	switch {
	case awaited != len(victims):
		whom = jobs(awaited)
	case awaited == 1:
		whom = "it"
	}
	return fmt.Sprintf("stops %s, and waits for %s to leave %s", strings.Join(names, ", "), whom, nodeRange(nodes))
}

func jobs(n int) string {
	if n == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", n)
}

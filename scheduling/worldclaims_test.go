package scheduling

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// stopFor has some jobs stopped for one that waits, if that gives it quota and
// nodes. Which may be stopped is not asked here.
func (w *world) stopFor(t *rapid.T, o *owner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.jobs[o.job.Owner.UID]
	if e == nil || e.state != Pending || !e.startable() || w.claimOf("cq") != nil {
		return
	}
	need, free := e.gpus(), int64(worldQuota)
	gone := map[types.UID][]*corev1.Pod{}
	var victims []victim
	room := map[string]int64{}
	for _, v := range w.inOrder() {
		switch {
		case !v.holdsCapacity():
			continue
		case v.state == Leaving:
		case rapid.Bool().Draw(t, "victim"):
			victims = append(victims, victim{
				Candidate: quota.Candidate{ID: v.job.Owner.UID, ClusterQueue: "cq", Reason: kueue.InClusterQueueReason}, e: v, version: v.version, pods: v.occupying(),
			})
		default:
			free -= v.gpus()
			continue
		}
		gone[v.job.Owner.UID] = v.occupying()
		for _, p := range v.occupying() {
			room[p.Spec.NodeName] -= podGPUs(p)
		}
	}
	if need > free {
		return
	}
	a := &quota.Assignment{ClusterQueue: "cq", Usage: quota.Usage{{Flavor: "gpu", Resource: gpuResource}: need}, Mode: quota.Preempt}
	for range e.job.PodSets {
		a.Flavors = append(a.Flavors, map[corev1.ResourceName]string{gpuResource: "gpu"})
	}
	classes := prototypes(e, a, w.quota)
	plan, ok := w.firstFit(classes, room)
	if !ok {
		return
	}
	if err := w.promise(e, a, claimHolds(classes, plan), victims, gone); err != nil {
		t.Fatalf("promising: %v", err)
	}
}

// inOrder are the jobs in an order that does not change.
func (w *world) inOrder() []*entry {
	var out []*entry
	for _, e := range w.jobs {
		out = append(out, e)
	}
	slices.SortFunc(out, (*entry).before)
	return out
}

// firstFit plans class by class; room is what is on the nodes beside what the
// cache says.
func (w *world) firstFit(classes []class, room map[string]int64) (placement.Assignment, bool) {
	var plan placement.Assignment
	for _, c := range classes {
		var nodes []string
		for range c.size() {
			name := w.fit(corev1.PodTemplateSpec{Spec: c.pod.Spec}, room)
			if name == "" {
				return nil, false
			}
			nodes = append(nodes, name)
		}
		plan = append(plan, nodes)
	}
	return plan, true
}

// redeemAll does with ripe claims what a pass does.
func (w *world) redeemAll() {
	for _, e := range w.ripe() {
		c := e.claim
		a, no := w.assignIn(e, c.assignment)
		var err error
		ok := no == nil
		if ok {
			room := map[string]int64{}
			for _, h := range c.holds {
				room[h.Spec.NodeName] -= podGPUs(h)
			}
			classes := prototypes(e, a, w.quota)
			var plan placement.Assignment
			if plan, ok = w.firstFit(classes, room); ok {
				err = w.chargeClaim(e, e.version, a, plan, classes)
			}
		}
		switch {
		case ok && err == nil:
			w.unwritten[e.job.Owner.UID] = true
		case e.claim == c && len(c.gone) > 0 && err == nil:
			for uid := range c.gone {
				c.awaits[uid] = struct{}{}
			}
			c.tried = w.waits.seen
		case e.claim == c:
			w.failClaim(e, "no place")
		}
	}
}

// checkClaims says that a claim is that of a job in the right state, has all its
// phantoms, and waits for jobs that leave.
func (w *world) checkClaims(t *rapid.T) {
	claimed := map[types.UID]bool{}
	for uid, e := range w.jobs {
		if (e.state == Claimed) != (e.claim != nil) || (e.claim != nil) != (w.claims[uid] == e) {
			t.Fatalf("%s has claim %v, listed %v", e, e.claim, w.claims[uid])
		}
		if e.claim == nil {
			continue
		}
		for _, h := range e.claim.holds {
			claimed[h.UID] = true
		}
		for of := range e.claim.awaits {
			if v := w.jobs[of]; v == nil || v.state != Leaving {
				t.Fatalf("the claim of %s waits for %s, which is %v", e, of, v)
			}
		}
	}
	for uid := range w.claims {
		if w.jobs[uid] == nil {
			t.Fatalf("the claim of %s outlives it", uid)
		}
	}
	for name, info := range w.plain.Dump().Nodes {
		for _, p := range info.Pods {
			if uid := p.GetPod().UID; isClaimHold(p.GetPod()) && !claimed[uid] {
				t.Fatalf("phantom %s on %s is nobody's", uid, name)
			} else {
				delete(claimed, uid)
			}
		}
	}
	if len(claimed) > 0 {
		t.Fatalf("phantoms %v are not in the cache", claimed)
	}
}

// promised are the GPUs of a node that are claimed.
func promised(info *framework.NodeInfo) int64 {
	var n int64
	for _, p := range info.Pods {
		if isClaimHold(p.GetPod()) {
			n += podGPUs(p.GetPod())
		}
	}
	return n
}

func podGPUs(p *corev1.Pod) int64 {
	return workload.GPUs(workload.Requests(&corev1.PodTemplateSpec{Spec: p.Spec}))
}

// wholeQuotaIsFree says that no charge and no claim is left in the quota tree.
func (w *world) wholeQuotaIsFree(t *rapid.T) {
	_, no := w.quota.Assign(quota.Request{
		ID: "new", Queue: types.NamespacedName{Namespace: namespace, Name: "main"},
		PodSets: []quota.PodSet{{Name: "all", Count: worldQuota, PerPod: quota.Requests{gpuResource: 1}}},
	})
	if no != nil {
		t.Fatalf("quota is never given back: %s", no)
	}
}

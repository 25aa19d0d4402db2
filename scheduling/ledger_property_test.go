package scheduling

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
)

// TestLedgerKeepsItsPromisesWhateverHappens runs jobs through random lives,
// restarts at any instant among them, and checks after each step what must
// always hold. In the end all jobs are deleted, and nothing may be left.
func TestLedgerKeepsItsPromisesWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		w := newWorld(ctx, t)
		states := map[types.UID]State{}
		actions := map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				if len(w.owners) < 5 {
					w.create(t)
				}
			},
			"reconcile": w.withOwner(func(t *rapid.T, o *owner) { w.reconcile(o, rapid.IntRange(0, 4).Draw(t, "fails") == 0) }),
			"pass":      func(*rapid.T) { w.pass() },
			"write": w.withOwner(func(t *rapid.T, o *owner) {
				if w.unwritten[o.job.Owner.UID] || w.wishes.writes[o.job.Owner.UID] > 0 {
					w.write(o, rapid.SampledFrom([]string{"ok", "ok", "ok", "conflict", "unanswered"}).Draw(t, "answer"))
				}
			}),
			"control":   w.withOwner(func(_ *rapid.T, o *owner) { w.control(o) }),
			"schedule":  w.withPod(gated, func(t *rapid.T, _ *owner, p *worldPod) { w.schedule(p, rapid.IntRange(0, 5).Draw(t, "refused") == 0) }),
			"bind":      w.withPod(assumed, func(_ *rapid.T, _ *owner, p *worldPod) { w.bind(p) }),
			"sendBack":  w.withPod(assumed, func(_ *rapid.T, _ *owner, p *worldPod) { w.sendBack(p) }),
			"terminate": w.withPod(alive, func(_ *rapid.T, _ *owner, p *worldPod) { w.terminate(p) }),
			"remove":    w.withPod(alive, func(_ *rapid.T, o *owner, p *worldPod) { w.remove(o, p) }),
			"succeed":   w.withPod(bound, func(_ *rapid.T, o *owner, p *worldPod) { w.succeed(o, p) }),
			"settle":    func(*rapid.T) { w.settleAll() },
			"wait":      func(t *rapid.T) { w.wait(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second) },
			"evict": w.withOwner(func(_ *rapid.T, o *owner) {
				if e := w.entry(o.job); e != nil {
					w.stop(o.job, eviction{reason: kueue.WorkloadDeactivated, message: "test"})
				}
			}),
			"preempt":   w.withOwner(w.stopFor),
			"make pods": func(*rapid.T) { w.makePods(); clear(states) },
			"run all":   func(*rapid.T) { w.runAll(); clear(states) },
			"resume by hand": w.withOwner(func(_ *rapid.T, o *owner) {
				if o.group == nil {
					o.job.Suspended = false
				}
			}),
			"start over": w.withOwner(func(_ *rapid.T, o *owner) {
				if o.group != nil {
					o.group.ended = nil
				}
				if o.counts {
					// A batch Job never does.
					return
				}
				for _, p := range slices.Clone(o.pods) {
					w.remove(o, p)
				}
				clear(o.succeeded)
				o.attempt++
			}),
			"finish": w.withOwner(func(_ *rapid.T, o *owner) {
				if o.group == nil {
					o.finish()
				}
			}),
			"resize": w.withOwner(func(t *rapid.T, o *owner) {
				w.resize(o, int32(rapid.IntRange(1, 4).Draw(t, "pods")))
				// It may have left by that, and is planned again now.
				w.check(t, states)
				w.pass()
			}),
			"delete": w.withOwner(func(_ *rapid.T, o *owner) { o.exists = false }),
			"lose a node": func(t *rapid.T) {
				w.loseNode(rapid.SampledFrom([]string{"node-0", "node-1", "node-2"}).Draw(t, "node"))
			},
			"node goes away": func(t *rapid.T) { w.goAway(t) },
			"node is back":   func(t *rapid.T) { w.comeBack(w.drawNode(t)) },
			"a GPU goes bad": func(t *rapid.T) { w.shrink(w.drawNode(t), int64(rapid.SampledFrom([]int{0, 4, 7}).Draw(t, "gpus"))) },
			"intrude":        func(t *rapid.T) { w.intrude(w.drawNode(t), int64(rapid.SampledFrom([]int{1, 4, 8}).Draw(t, "gpus"))) },
			"withdraw":       func(*rapid.T) { w.withdraw() },
			"put elsewhere":  w.withPod(gated, func(t *rapid.T, o *owner, p *worldPod) { w.putOn(o, p, w.drawNode(t)) }),
			"restore nodes":  func(*rapid.T) { w.restoreNodes() },
			"restart":        func(t *rapid.T) { w.restart(rapid.Bool().Draw(t, "pods first")); clear(states) },
			"":               func(t *rapid.T) { w.check(t, states) },
		}
		// One round is too short a life to get into much trouble.
		for range 4 {
			t.Repeat(actions)
		}
		w.end(t)
	})
}

// withOwner makes an action of something that happens to one owner.
func (w *world) withOwner(do func(*rapid.T, *owner)) func(*rapid.T) {
	return func(t *rapid.T) {
		if len(w.owners) > 0 {
			do(t, rapid.SampledFrom(w.owners).Draw(t, "owner"))
		}
	}
}

// withPod makes an action of something that happens to one of the pods that
// are in a certain state.
func (w *world) withPod(are func(*worldPod) bool, do func(*rapid.T, *owner, *worldPod)) func(*rapid.T) {
	return func(t *rapid.T) {
		var pods []*worldPod
		owners := map[*worldPod]*owner{}
		for _, o := range w.owners {
			for _, p := range o.pods {
				if are(p) {
					pods, owners[p] = append(pods, p), o
				}
			}
		}
		if len(pods) > 0 {
			p := rapid.SampledFrom(pods).Draw(t, "pod")
			do(t, owners[p], p)
		}
	}
}

func gated(p *worldPod) bool   { return p.assumed == nil && p.bound == nil }
func assumed(p *worldPod) bool { return p.assumed != nil }
func bound(p *worldPod) bool   { return p.bound != nil }
func alive(*worldPod) bool     { return true }

// makePods lets everyone but the scheduler do their work once.
func (w *world) makePods() {
	w.settleAll()
	w.pass()
	for _, o := range w.owners {
		if w.unwritten[o.job.Owner.UID] || w.wishes.writes[o.job.Owner.UID] > 0 {
			w.write(o, "ok")
		}
		w.reconcile(o, false)
		w.control(o)
	}
}

// runAll lets everyone do their work for a while, without mishaps.
func (w *world) runAll() {
	for range 6 {
		w.makePods()
		for _, o := range w.owners {
			for _, p := range slices.Clone(o.pods) {
				if p.DeletionTimestamp != nil {
					w.remove(o, p)
				}
				w.schedule(p, false)
			}
			for _, p := range o.pods {
				w.bind(p)
			}
		}
	}
}

// loseNode deletes a node that has no real pods.
func (w *world) loseNode(name string) {
	for _, o := range w.owners {
		for _, p := range o.pods {
			if (p.bound != nil && p.bound.Spec.NodeName == name) || (p.assumed != nil && p.assumed.Spec.NodeName == name) {
				return
			}
		}
	}
	if w.nodes[name] {
		w.nodes[name] = false
		for _, p := range slices.Clone(w.strangers) {
			if p.Spec.NodeName == name {
				w.leave(p)
			}
		}
		if err := w.watched.RemoveNode(w.logger, w.kubelets[name]); err != nil {
			w.t.Fatalf("removing: %v", err)
		}
	}
}

func (w *world) restoreNodes() {
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		if !w.nodes[name] {
			w.addNode(name)
		}
	}
}

// check compares what the Ledger, the cache, the quota and the API say.
func (w *world) check(t *rapid.T, states map[types.UID]State) {
	if errs := w.waitlistErrors(); len(errs) > 0 {
		t.Fatalf("the waitlist: %s", strings.Join(errs, "; "))
	}
	for _, uid := range w.forgotten {
		delete(states, uid)
	}
	w.forgotten = nil
	held := map[types.UID]bool{}
	charged := quota.Usage{}
	for uid, e := range w.jobs {
		w.checkSlots(t, e, held)
		if e.holdsCapacity() {
			for cell, v := range e.assignment.Usage {
				charged[cell] += v
			}
		} else if e.assignment != nil || len(e.sets) > 0 {
			t.Fatalf("%s has an assignment or slots", e)
		}
		if old, known := states[uid]; known && old != e.state && !slices.Contains(slices.Collect(maps.Values(transitions[old])), e.state) {
			t.Fatalf("%s came from %s", e, old)
		}
		states[uid] = e.state
	}
	if diff := cmp.Diff(charged, w.quota.Used("cq")); diff != "" {
		t.Fatalf("charge of the jobs and of the quota tree (-jobs +tree):\n%s", diff)
	}
	for name, info := range w.plain.Dump().Nodes {
		w.checkRoom(t, name, info)
		for _, p := range info.Pods {
			uid := p.GetPod().UID
			if strings.HasPrefix(string(uid), "hold-") && !held[uid] {
				t.Fatalf("hold %s on %s is nobody's", uid, name)
			}
			delete(held, uid)
		}
	}
	if len(held) > 0 {
		t.Fatalf("holds %v are not in the cache", held)
	}
	w.checkClaims(t)
	w.checkAPI(t)
}

// checkSlots says of each slot of a charged job what it is, and of the job's
// holds which they are.
func (w *world) checkSlots(t *rapid.T, e *entry, held map[types.UID]bool) {
	for _, set := range e.sets {
		for i, s := range set.slots {
			is := 0
			for _, yes := range []bool{s.hold != nil, s.occupied(), s.done, (s.lost() || (s.surplus && !s.done)) && s.hold == nil && !s.occupied()} {
				if yes {
					is++
				}
			}
			if is != 1 {
				t.Fatalf("slot %s/%d of %s is %d things at once: %+v", set.set.Name, i, e, is, *s)
			}
			if s.bound && s.pod.Spec.NodeName != s.node {
				t.Fatalf("slot %s/%d of %s is on %s, its pod %s on %s", set.set.Name, i, e, s.node, s.pod.Name, s.pod.Spec.NodeName)
			}
			if s.pod != nil && e.seats[s.pod.UID] != s {
				t.Fatalf("slot %s/%d of %s has pod %s, which sits elsewhere", set.set.Name, i, e, s.pod.Name)
			}
			if s.hold != nil {
				held[s.hold.UID] = true
			}
		}
	}
}

// checkAPI says that whoever the API calls admitted is charged, and that pods
// pass the gate only for those, and only together.
func (w *world) checkAPI(t *rapid.T) {
	for _, o := range w.owners {
		admitted := claimsAdmission(o.wl)
		if e := w.jobs[o.job.Owner.UID]; admitted && (e == nil || !e.holdsCapacity()) {
			t.Fatalf("the API calls %s admitted, the Ledger has %v", o.job.Owner.Name, e)
		}
		for _, p := range o.pods {
			if ok, _ := w.MayEnter(p.Pod); !ok {
				continue
			}
			e := w.jobs[o.job.Owner.UID]
			if !admitted || e.state != Admitted {
				t.Fatalf("pod %s may enter before its job is admitted", p.Name)
			}
			if at := e.seats[p.UID]; !at.bound && w.nodes[at.node] && !w.takesPods(at.node) {
				t.Fatalf("pod %s may enter for %s, which is away", p.Name, at.node)
			}
			for s := range e.group(e.seats[p.UID].group()) {
				if s.pod == nil && !s.done && !s.surplus {
					t.Fatalf("pod %s may enter before slot %s/%d has its pod", p.Name, s.set.set.Name, s.index)
				}
			}
		}
	}
}

// end deletes all jobs and lets everyone finish: nothing may be left over. A
// group that is made again then runs, whatever it went through.
func (w *world) end(t *rapid.T) {
	w.deleteAll(t)
	w.restoreNodes()
	for name := range w.nodes {
		w.comeBack(name)
	}
	for _, o := range w.owners {
		if o.group != nil && int64(o.group.size)*o.group.gpus <= worldQuota {
			w.startsAgain(t, o)
			w.deleteAll(t)
		}
	}
}

func (w *world) deleteAll(t *rapid.T) {
	for _, o := range w.owners {
		o.exists = false
	}
	for len(w.strangers) > 0 {
		w.withdraw()
	}
	w.runAll()
	w.check(t, map[types.UID]State{})
	if len(w.jobs) > 0 || len(w.podOwners) > 0 || len(w.strays) > 0 {
		t.Fatalf("left over: jobs %v, pod owners %v, strays %v", w.jobs, w.podOwners, w.strays)
	}
	w.wholeQuotaIsFree(t)
	for name := range w.nodes {
		if got := w.taken(name); got != 0 {
			t.Fatalf("%d GPUs of %s are never given back", got, name)
		}
	}
}

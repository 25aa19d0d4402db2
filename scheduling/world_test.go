package scheduling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// world is a Ledger with everything around it as it may be in the API: owners,
// their Workloads, their pods, and a scheduler that has some pods in its hands.
type world struct {
	*scene
	ctx    context.Context
	owners []*owner
	nodes  map[string]bool
	// kubelets is each node as it was last told; strangers are pods of no job.
	kubelets  map[string]*corev1.Node
	strangers []*corev1.Pod
	// unwritten are the jobs whose admission is to be written.
	unwritten map[types.UID]bool
	// forgotten are the jobs that the Ledger has forgotten since the last check.
	forgotten []types.UID
	born      int
}

const (
	worldQuota    = 20
	worldNodes    = 3
	worldNodeGPUs = 8
	worldGrace    = 10 * time.Second
)

// owner is one job in the API.
type owner struct {
	job *workload.Job
	// wl is the Workload in the API, nil while there is none.
	wl     *kueue.Workload
	exists bool
	pods   []*worldPod
	// succeeded are the slots whose pod has succeeded in this attempt.
	succeeded map[workload.Slot]bool
	attempt   int32
	// group is set for a group of pods, whose job is read from its pods.
	group *worldGroup
	// counts: its status says which they are, as that of a batch Job does.
	counts bool
}

// reading is the job as it is read from the API now.
func (o *owner) reading() *workload.Job {
	return with(o.job, func(j *workload.Job) {
		for i := range j.PodSets {
			if ps := &j.PodSets[i]; o.counts {
				ps.Ended = &workload.Ended{Indices: []int32{}}
				for k := range ps.Count {
					if o.succeeded[ps.Slot(k)] {
						ps.Ended.Indices = append(ps.Ended.Indices, k)
					}
				}
				ps.Ended.Count = int32(len(ps.Ended.Indices))
			}
		}
	})
}

func newWorld(ctx context.Context, t fataler) *world {
	w := &world{scene: newScene(ctx, t, worldQuota), ctx: ctx, nodes: map[string]bool{}, kubelets: map[string]*corev1.Node{}, unwritten: map[types.UID]bool{}}
	for i := range worldNodes {
		w.addNode(fmt.Sprintf("node-%d", i))
	}
	return w
}

func (w *world) addNode(name string) {
	w.nodes[name] = true
	w.kubelets[name] = node(name, worldNodeGPUs)
	w.watched.AddNode(w.logger, w.kubelets[name])
}

// create makes a job of one or two phases.
func (w *world) create(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "group") == 0 {
		w.createGroup(t)
		return
	}
	w.born++
	name := fmt.Sprintf("job-%d", w.born)
	sets := []workload.PodSet{set("node", 0, int32(rapid.IntRange(1, 3).Draw(t, "pods")), int64(rapid.SampledFrom([]int{2, 4, 8}).Draw(t, "gpus")))}
	switch rapid.IntRange(0, 5).Draw(t, "exclusive") {
	case 0:
		sets[0] = exclusive(set("node", 0, 4, 2), 2)
	case 1:
		sets[0] = stamped(sets[0])
	}
	if rapid.IntRange(0, 2).Draw(t, "phases") == 0 {
		sets = append(sets, set("later", 1, 1, 4))
	}
	elastic := len(sets) == 1 && sets[0].Stamp.JobPrefix == ""
	o := &owner{job: with(job(name, sets...), func(j *workload.Job) { j.Elastic = elastic }), exists: true, succeeded: map[workload.Slot]bool{}, counts: rapid.Bool().Draw(t, "counts")}
	w.owners = append(w.owners, o)
	w.reconcile(o, false)
}

// reconcile does what Jobs does with an owner; the write that an action needs
// fails if fail says so.
func (w *world) reconcile(o *owner, fail bool) {
	if o.group != nil {
		w.reconcileGroup(o, fail)
		return
	}
	var want action
	if o.exists {
		if o.wl == nil {
			o.wl = w.workloadOfJob(o.job)
		}
		want = w.read(o.reading(), o.wl.DeepCopy(), nil)
	} else {
		_, want = w.ownerGone(o.job.Owner.UID)
	}
	if fail {
		return
	}
	w.do(o, want)
}

// do carries an action out.
func (w *world) do(o *owner, want action) {
	switch want.do {
	case doSuspend:
		if want.eviction != nil {
			w.change(o, isTrue(kueue.WorkloadEvicted))
		}
		if o.group != nil {
			w.evictGroup(o)
		} else {
			o.job.Suspended = true
		}
		w.stopped(o.job.Owner.UID)
	case doResume:
		o.job.Suspended = false
	case doRequeue:
		w.change(o, func(wl *kueue.Workload) {
			wl.Status.Admission, wl.Status.ReclaimablePods = nil, nil
			apimeta.RemoveStatusCondition(&wl.Status.Conditions, kueue.WorkloadAdmitted)
		})
		w.left(o.job.Owner.UID)
	case doReclaim:
		w.change(o, func(wl *kueue.Workload) { wl.Status.ReclaimablePods = want.reclaim })
		w.reclaimed(o.job.Owner.UID, want.live)
	case doFinish:
		w.change(o, isTrue(kueue.WorkloadFinished))
		w.leaves(o)
	case doDelete:
		o.wl = nil
		w.leaves(o)
	}
}

// leaves has the Ledger forget a job that is over, if it has left its nodes. A
// group that is made again under its name is another job with the same UID.
func (w *world) leaves(o *owner) {
	w.left(o.job.Owner.UID)
	if !w.knows(o.job.Owner.UID) {
		w.forgotten = append(w.forgotten, o.job.Owner.UID)
	}
}

// change writes a Workload and tells the Ledger of it.
func (w *world) change(o *owner, edit func(*kueue.Workload)) {
	if o.wl == nil {
		return
	}
	o.wl = o.wl.DeepCopy()
	edit(o.wl)
	w.version++
	o.wl.ResourceVersion = fmt.Sprint(w.version)
	w.observe(o.job.Owner.UID, o.wl.DeepCopy())
}

// pass admits heads and plans lost slots anew, first fit.
func (w *world) pass() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.lostSlots() {
		protos := prototypes(e, e.assignment, w.quota)
		for _, set := range e.sets {
			for _, s := range set.slots {
				if s.lost() {
					e.moveTo(s, w.fit(set.set.Template, map[string]int64{}))
					if err := w.holdAll(e, protos); err != nil {
						w.t.Fatalf("%v", err)
					}
				}
			}
		}
		w.unwritten[e.job.Owner.UID] = true
		w.enqueue(e)
		w.wakeAll(e)
	}
	w.redeemAll()
	for b := w.next(); b != nil; b = w.next() {
		e := b.jobs.items[0]
		a, no := w.quota.Assign(e.request(nil))
		if no != nil {
			w.refuse(e, e.version, w.waits.seen, cure{wait: forQuota, queue: "cq"}, no)
			continue
		}
		var plan [][]string
		also := map[string]int64{}
		fits := true
		for _, ps := range e.job.PodSets {
			var nodes []string
			for range ps.Count {
				name := w.fit(ps.Template, also)
				fits = fits && name != ""
				nodes = append(nodes, name)
			}
			plan = append(plan, nodes)
		}
		if !fits {
			w.refuse(e, e.version, w.waits.seen, cure{wait: forRoom, queue: "cq"}, reason.New(reason.NoPlacement, "no node has room"))
			continue
		}
		if err := w.charge(e, e.version, a, plan, prototypes(e, a, w.quota)); err != nil {
			w.t.Fatalf("a plan is not committed: %v", err)
		}
		w.unwritten[e.job.Owner.UID] = true
	}
	w.grow()
}

// grow extends the admitted jobs that ask for more pods, first fit.
func (w *world) grow() {
	for uid, e := range w.growing {
		if e.state != Admitted || w.jobs[uid] != e || !e.missesPods() {
			delete(w.growing, uid)
			continue
		}
		want, more := e.grown()
		_, no := w.assignAgain(e, want)
		if no != nil {
			w.growthRefused(e, more, no)
			continue
		}
		nodes, also, fits := make([][]string, len(more)), map[string]int64{}, true
		for i, n := range more {
			for range n {
				name := w.fit(want.PodSets[i].Template, also)
				fits = fits && name != ""
				nodes[i] = append(nodes[i], name)
			}
		}
		if !fits {
			continue
		}
		if err := w.extend(e, want, w.classesAs(e, want), nodes); err != nil {
			w.t.Fatalf("a growth is not committed: %v", err)
		}
		w.unwritten[uid] = true
	}
}

// resize gives an elastic job another number of pods; those that it has beyond
// that are deleted.
func (w *world) resize(o *owner, count int32) {
	if !o.job.Elastic || !o.exists {
		return
	}
	o.job = with(o.job, func(j *workload.Job) {
		ps := &j.PodSets[0]
		ps.Count, ps.Completions, ps.PodsPerReplica = count, count, count
	})
	for _, p := range slices.Clone(o.pods) {
		if p.slot.Completion >= count {
			w.remove(o, p)
		}
	}
	w.reconcile(o, false)
	if w.wishes.writes[o.job.Owner.UID] > 0 {
		w.unwritten[o.job.Owner.UID] = true
	}
}

// fit is a node with room for a pod beside what also has, and counts it there.
func (w *world) fit(template corev1.PodTemplateSpec, also map[string]int64) string {
	gpus := workload.GPUs(workload.Requests(&template))
	for i := range worldNodes {
		name := fmt.Sprintf("node-%d", i)
		if w.takesPods(name) && w.taken(name)+also[name]+gpus <= w.gpusOf(name) {
			also[name] += gpus
			return name
		}
	}
	return ""
}

// errUnanswered is the loss of the API's answer.
var errUnanswered = errors.New("connection reset")

// write carries the admission of a job to the API, with the outcome given.
func (w *world) write(o *owner, how string) {
	uid := o.job.Owner.UID
	a, ok := w.admissionOf(uid)
	if !ok || o.wl == nil {
		delete(w.unwritten, uid)
		return
	}
	landed := claimsAdmission(o.wl) && equality.Semantic.DeepEqual(o.wl.Status.Admission, admissionStatus(a))
	if how == "conflict" && !landed {
		w.version++
		o.wl = o.wl.DeepCopy()
		o.wl.ResourceVersion = fmt.Sprint(w.version)
		err := apierrors.NewConflict(schema.GroupResource{Resource: "workloads"}, o.wl.Name, nil)
		w.written(uid, a.replanned, o.wl.DeepCopy(), refused, err)
		if a.state == Admitting {
			delete(w.unwritten, uid)
		}
		return
	}
	o.wl = o.wl.DeepCopy()
	o.wl.Status.Admission = admissionStatus(a)
	isTrue(kueue.WorkloadAdmitted)(o.wl)
	apimeta.RemoveStatusCondition(&o.wl.Status.Conditions, kueue.WorkloadEvicted)
	w.version++
	o.wl.ResourceVersion = fmt.Sprint(w.version)
	if how == "unanswered" {
		w.written(uid, a.replanned, nil, unknown, errUnanswered)
		return
	}
	delete(w.unwritten, uid)
	w.written(uid, a.replanned, o.wl.DeepCopy(), wrote, nil)
}

// settleAll tells the Ledger how the pods ended that it asked about.
func (w *world) settleAll() {
	asked := w.wishes.settles
	w.wishes.settles = nil
	for _, q := range asked {
		_, at, _ := workload.SlotOf(q.pod)
		o := w.ownerOf(q.owner)
		ok := o != nil && o.succeeded[at]
		if o != nil && o.group != nil {
			ok = slices.ContainsFunc(o.group.ended, func(p *corev1.Pod) bool { return p.UID == q.pod.UID })
		}
		w.Settled(q.owner, q.pod, ok)
	}
}

func (w *world) ownerOf(uid types.UID) *owner {
	for _, o := range w.owners {
		if o.job.Owner.UID == uid {
			return o
		}
	}
	return nil
}

// restart loses all memory: what is left are the API and the bound pods.
func (w *world) restart(podsFirst bool) {
	w.plain = internalcache.New(w.ctx, nil, false, false)
	w.fresh(worldQuota)
	w.unwritten = map[types.UID]bool{}
	for name, there := range w.nodes {
		if there {
			w.watched.AddNode(w.logger, w.kubelets[name])
		}
	}
	for _, p := range w.strangers {
		w.confirm(p)
	}
	tellPods := func() {
		for _, o := range w.owners {
			for _, p := range o.pods {
				p.assumed, p.allowed = nil, false
				if p.bound == nil {
					w.Seen(p.Pod)
				}
			}
		}
	}
	for _, o := range w.owners {
		for _, p := range o.pods {
			if p.bound != nil {
				if err := w.watched.AddPod(w.logger, p.bound); err != nil {
					w.t.Fatalf("adding: %v", err)
				}
			}
		}
	}
	if podsFirst {
		tellPods()
	}
	for _, o := range w.owners {
		switch {
		case o.group != nil:
			w.restoreGroup(o)
		case !o.exists:
			// The garbage collector's.
			o.wl = nil
		case claimsAdmission(o.wl):
			var done []*corev1.Pod
			for i := range o.job.PodSets {
				ps := &o.job.PodSets[i]
				for k := range ps.Count {
					if o.succeeded[ps.Slot(k)] && !o.counts {
						done = append(done, pod(o.job, ps.Name, k, "done"))
					}
				}
			}
			w.Ledger.restore(o.reading(), o.wl.DeepCopy(), done)
		}
	}
	if !podsFirst {
		tellPods()
	}
}

// finish ends a job in the API.
func (o *owner) finish() { o.job.Finish = &workload.Finish{Succeeded: true, Message: "done"} }

// wait lets time pass, in which back-offs end and late starts are noticed.
func (w *world) wait(d time.Duration) {
	w.clock.Step(d)
	w.giveUpNodes(worldGrace)
	w.expire(30 * time.Second)
}

package scheduling

import (
	"cmp"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// waiting is what a bucket waits for.
type waiting uint8

const (
	// nothing: the bucket is due.
	nothing waiting = iota
	// forQuota: no quota. Quota that is released anywhere in the cohort tree can
	// cure it, and any change of queues, flavors or namespaces.
	forQuota
	// forRoom: no nodes. Whatever makes room anywhere, or changes a node, can
	// cure it, because pods depend on those of other nodes too. Where resources
	// are too few, all nodes together, that is looked at before it is planned.
	forRoom
	// forGPUs: no nodes, because there are too few free GPUs of a kind, all
	// nodes together, in each flavor that it could have. Only more free GPUs can
	// cure it. How many there are is looked up when a pass begins and GPUs have
	// become free.
	forGPUs
	// behind: it stands behind another in the line of a StrictFIFO queue.
	behind
	// aside: tried without a result, or empty. It is in no list.
	aside
)

// cure is what can make a refused bucket startable. The zero cure is that of
// a bucket that is due; one that is due with a lack is so because of room.
type cure struct {
	wait waiting
	// blind: it is due because room has come somewhere, and nothing says that
	// it is the room which was too little.
	blind bool
	// queue is the ClusterQueue whose quota was asked, "" where there is none,
	// and root that of the tree it is in.
	queue, root string
	// lacks are what is too little, for forGPUs and some of forRoom: one for each
	// choice of flavors in which nodes were looked for. No plan is worth a try as
	// long as all of them last.
	lacks []*placement.Lack
}

// curedByRoom is what can make a job startable that has found no nodes, with what was
// too little in each of its choices of flavors, nil where that is not known.
func curedByRoom(queue string, lacks ...*placement.Lack) cure {
	c := cure{wait: forRoom, queue: queue}
	if slices.Contains(lacks, nil) {
		return c
	}
	c.wait, c.lacks = forGPUs, lacks
	if slices.ContainsFunc(lacks, func(l *placement.Lack) bool { return l.Bite.Resource == "" }) {
		c.wait = forRoom
	}
	return c
}

// bites are the kinds of GPUs of which there are too few, each once.
func (c cure) bites() []placement.Bite {
	var out []placement.Bite
	for _, l := range c.lacks {
		if !slices.Contains(out, l.Bite) {
			out = append(out, l.Bite)
		}
	}
	return out
}

// podsOf is for how many pods there must be GPUs of a kind.
func (c cure) podsOf(bite placement.Bite) int {
	least := math.MaxInt
	for _, l := range c.lacks {
		if l.Bite == bite {
			least = min(least, l.Pods)
		}
	}
	return least
}

// moves counts what has happened that can cure something.
type moves struct {
	// queues are changes of queues, flavors and namespaces; quota are charges
	// and releases; room is room that came, or nodes that changed; idle are jobs that
	// are protected no longer because of what they do not do with their GPUs.
	queues, quota, room, idle int64
}

// put makes a bucket wait for its cure, or be due when it is its turn.
func (w *waitlist) put(b *bucket, c cure, now time.Time) {
	if c.wait == nothing && !w.standIn(b) {
		c = cure{wait: behind}
	}
	w.file(b, c, now)
	w.settle(b.head, now)
}

// file puts a bucket into the list of those that wait as it does.
func (w *waitlist) file(b *bucket, c cure, now time.Time) {
	w.leave(b)
	b.cure = c
	switch c.wait {
	case nothing:
		if w.dueBuckets == 0 {
			w.dueSince = now
		}
		w.addDue(b)
		b.renewed, b.missed = false, false
	case behind:
		b.renewed, b.missed = false, false
	case forQuota:
		into(w.quota, c.root, b)
	case forRoom:
		into(w.room, c.queue, b)
		b.head.placeless.insert(b)
	case forGPUs:
		for _, bite := range c.bites() {
			list := w.gpus[bite]
			if list == nil {
				list = &ordered[*bucket]{compare: func(a, b *bucket) int {
					return cmp.Or(cmp.Compare(a.cure.podsOf(bite), b.cure.podsOf(bite)), cmp.Compare(a.born, b.born))
				}}
				w.gpus[bite] = list
			}
			list.insert(b)
		}
		b.head.placeless.insert(b)
	}
}

// leave takes a bucket out of the list that it waits in.
func (w *waitlist) leave(b *bucket) {
	switch b.cure.wait {
	case nothing:
		w.dropDue(b)
	case forQuota:
		outOf(w.quota, b.cure.root, b)
	case forRoom:
		outOf(w.room, b.cure.queue, b)
		b.head.placeless.remove(b)
	case forGPUs:
		for _, bite := range b.cure.bites() {
			list := w.gpus[bite]
			if list.remove(b); len(list.items) == 0 {
				delete(w.gpus, bite)
			}
		}
		b.head.placeless.remove(b)
	}
}

func into(m map[string]map[*bucket]struct{}, queue string, b *bucket) {
	if m[queue] == nil {
		m[queue] = map[*bucket]struct{}{}
	}
	m[queue][b] = struct{}{}
}

func outOf(m map[string]map[*bucket]struct{}, queue string, b *bucket) {
	if delete(m[queue], b); len(m[queue]) == 0 {
		delete(m, queue)
	}
}

// cured makes the buckets due of which yes is true, among those that wait for
// one of what is given.
func (l *Ledger) cured(yes func(*bucket) bool, what ...waiting) {
	w := &l.waits
	var due []*bucket
	for _, wait := range what {
		switch wait {
		case forQuota, forRoom:
			m := w.quota
			if wait == forRoom {
				m = w.room
			}
			for _, set := range m {
				for b := range set {
					due = append(due, b)
				}
			}
		case forGPUs:
			for _, list := range w.gpus {
				due = append(due, list.items...)
			}
		}
	}
	// Those that are due because of room are worth a plan now.
	for _, h := range w.turn.items {
		for _, b := range h.due.items {
			if yes == nil || yes(b) {
				b.cure.lacks, b.cure.blind = nil, false
			}
		}
	}
	now := l.clock.Now()
	any := false
	for _, b := range due {
		switch {
		case yes != nil && !yes(b):
		case yes != nil && b.rests(now):
			// It is planned when it has rested, whatever there was too little of.
			w.file(b, cure{wait: forRoom, queue: b.cure.queue, root: b.cure.root}, now)
			b.missed = true
		default:
			w.put(b, cure{}, now)
			any = true
		}
	}
	if any {
		l.effects.Admit()
	}
}

// touch says that queues, flavors or namespaces have changed, or that jobs may
// be admitted which could not for a reason of no single job: all are tried.
func (l *Ledger) touch() {
	l.epoch++
	l.waits.seen.queues++
	l.waits.seen.quota++
	l.waits.gpusMoved = true
	l.drain()
	l.refile()
	l.cured(nil, forQuota, forRoom, forGPUs)
	l.waits.unsure(func(*head) bool { return true })
	l.loosen()
	l.effects.Admit()
	l.effects.Report()
}

// released says that quota is free again in a cohort tree: any job in it may have
// waited for it. The root is that of before the release: a ClusterQueue which was
// deleted under its jobs is in no tree any more when the last of them has gone.
func (l *Ledger) released(root string) {
	w := &l.waits
	w.seen.quota++
	w.releases++
	now := l.clock.Now()
	barred := l.barred()
	for b := range w.quota[root] {
		if barred(b) {
			w.passOver(b)
		} else {
			w.put(b, cure{}, now)
		}
	}
	w.unsure(func(h *head) bool { return h.root == root })
	l.otherFlavors(root)
	l.effects.Admit()
	l.effects.Report()
}

// taken says that a job has got more of the quota of its cohort tree, or is
// promised it. Heads there may have no quota any more, and must not hold up those
// behind them as if they had.
func (l *Ledger) taken(a *quota.Assignment) {
	w := &l.waits
	w.seen.quota++
	root := l.quota.Root(a.ClusterQueue)
	w.unsure(func(h *head) bool { return h.root == root && (h.choice || h.holdsUp()) })
	l.otherFlavors(root)
}

// otherFlavors has the jobs tried again that wait for nodes in a cohort tree of
// which more or less is used now, and whose ClusterQueues have a choice of
// flavors: they may get other flavors, and with them other nodes.
func (l *Ledger) otherFlavors(root string) {
	w := &l.waits
	choose := func(h *head) bool { return h.choice && h.root == root }
	for _, h := range w.heads {
		if choose(h) && len(h.placeless.items) > 0 {
			l.cured(func(b *bucket) bool { return choose(b.head) }, forRoom, forGPUs)
			return
		}
	}
}

// roomCame says that a node takes pods now that it did not take before, and that
// it may be because of its GPUs. Whoever waits for quota is not tried.
func (l *Ledger) roomCame() {
	w := &l.waits
	w.gpusMoved, w.gpuNews = true, true
	if len(w.gpus) > 0 {
		l.effects.Admit()
	}
	l.otherRoomCame()
}

// otherRoomCame is roomCame where no GPUs have become free.
func (l *Ledger) otherRoomCame() {
	l.epoch++
	w := &l.waits
	w.seen.room++
	w.podNews = true
	now := l.clock.Now()
	for _, set := range w.room {
		for b := range set {
			if b.rests(now) {
				b.missed = true
				continue
			}
			w.put(b, cure{queue: b.cure.queue, root: b.cure.root, lacks: b.cure.lacks, blind: true}, now)
		}
	}
	if w.dueBuckets > 0 || len(w.lost) > 0 || len(l.growing) > 0 {
		l.effects.Admit()
	}
}

// nodeChanged says that a node has come, gone, or takes other pods now.
func (l *Ledger) nodeChanged() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.roomCame()
}

// departed says that the scheduler's cache has freed the room of a pod.
func (l *Ledger) departed(pod *corev1.Pod) {
	gpus := usesGPUs(pod)
	l.mu.Lock()
	defer l.mu.Unlock()
	if gpus {
		l.roomCame()
	} else {
		l.otherRoomCame()
	}
}

// arrived says that the scheduler's cache counts a pod on its node.
func (l *Ledger) arrived(pod *corev1.Pod) {
	gpus := usesGPUs(pod)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.podsCame(gpus)
}

// isHeld says that the room of a pod, which is off its node, is that of a hold
// now.
func (l *Ledger) isHeld(pod *corev1.Pod) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, e, _ := l.jobOf(pod)
	if m != member {
		return false
	}
	s, seated := e.seats[pod.UID]
	return seated && s.hold != nil && s.node == pod.Spec.NodeName
}

func usesGPUs(pod *corev1.Pod) bool {
	return workload.GPUs(workload.Requests(&corev1.PodTemplateSpec{Spec: pod.Spec})) > 0
}

// gpusFound makes those due that wait for no more GPUs than there are.
func (l *Ledger) gpusFound(bite placement.Bite, room int) {
	list := l.waits.gpus[bite]
	if list == nil {
		return
	}
	n := 0
	for n < len(list.items) && list.items[n].cure.podsOf(bite) <= room {
		n++
	}
	for _, b := range slices.Clone(list.items[:n]) {
		l.waits.put(b, cure{}, l.clock.Now())
	}
}

// podsCame says that a node has pods that it did not have; gpus that they have
// taken GPUs.
func (l *Ledger) podsCame(gpus bool) {
	l.waits.podNews = true
	l.waits.gpuNews = l.waits.gpuNews || gpus
}

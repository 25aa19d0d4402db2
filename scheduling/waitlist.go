package scheduling

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// waitlist is the waiting jobs in queue order. Nothing in it is made anew for
// a pass or a report: the cost of both does not grow with the jobs that wait.
//
// Jobs of one queue that quota and placement cannot tell apart share a bucket,
// and with it the reason why they wait. A bucket is due, or it waits for the
// one thing that can cure what was refused (see cure.go).
//
// Ledger.enqueue alone decides who is in which list. The Ledger's lock guards
// all of it.
type waitlist struct {
	// lines are all jobs that wait, startable or not, by LocalQueue; uncounted is how
	// many of them Kueue would not count.
	lines     map[types.NamespacedName]*line
	uncounted map[types.NamespacedName]int32
	buckets   map[bucketKey]*bucket
	demands   map[shape]*demand
	// requests are what pods of waiting jobs have been found to request, by what
	// it says in words: jobs of many shapes request the same.
	requests map[string]quota.Requests
	// extended are the extended resources that waiting jobs have asked for.
	extended sets.Set[corev1.ResourceName]
	// born numbers the buckets.
	born int64

	// heads are those of the ClusterQueues in which buckets wait, where is the
	// head of each LocalQueue with buckets, and turn those with some that are due.
	heads map[string]*head
	where map[types.NamespacedName]*head
	turn  *pile[*head]
	// loose are the heads for which capacity is withheld without need.
	loose map[*head]struct{}
	// releases counts those of quota, tried is how many there had been when nobody
	// was due last.
	releases, tried int64
	// dueBuckets is how many are due, dueSince since when some have been all the
	// time.
	dueBuckets int
	dueSince   time.Time
	// quota are the buckets that wait for it, by the root of their tree, room
	// those that wait for nodes, by ClusterQueue.
	quota, room map[string]map[*bucket]struct{}
	// gpus are those that wait for more free GPUs of a kind, the smallest need first;
	// one that could do with several kinds is with each.
	gpus map[placement.Bite]*ordered[*bucket]

	// seen counts what has happened; gpusMoved says that GPUs may have become
	// free since the last pass looked.
	seen      moves
	gpusMoved bool
	// renewals are refused buckets to be tried again only so that what they
	// say is true; gpuNews and podNews say that it may not be.
	renewals         []*bucket
	gpuNews, podNews bool

	// searches are the buckets for which victims may be looked for again.
	searches map[*bucket]struct{}

	// sleeping are the jobs that wait for a time to come.
	sleeping map[*entry]struct{}
	// charged are the jobs that hold capacity, lost those of them that have a
	// slot without a node.
	charged, lost map[*entry]struct{}

	untold untold
}

func newWaitlist() waitlist {
	return waitlist{
		lines:     map[types.NamespacedName]*line{},
		uncounted: map[types.NamespacedName]int32{},
		buckets:   map[bucketKey]*bucket{},
		demands:   map[shape]*demand{},
		extended:  sets.Set[corev1.ResourceName]{},
		requests:  map[string]quota.Requests{},
		heads:     map[string]*head{},
		where:     map[types.NamespacedName]*head{},
		turn:      &pile[*head]{compare: byTurn, at: func(h *head) *int { return &h.at }},
		loose:     map[*head]struct{}{},
		quota:     map[string]map[*bucket]struct{}{},
		room:      map[string]map[*bucket]struct{}{},
		gpus:      map[placement.Bite]*ordered[*bucket]{},
		searches:  map[*bucket]struct{}{},
		sleeping:  map[*entry]struct{}{},
		charged:   map[*entry]struct{}{},
		lost:      map[*entry]struct{}{},
		untold:    newUntold(),
	}
}

// rank is a job's place in queue order.
type rank struct {
	priority int32
	// created is when, in nanoseconds since 1970.
	created int64
	uid     types.UID
}

// compare is the queue order: priority, then creation, then UID.
func (r rank) compare(o rank) int {
	// The UIDs are compared only where it takes them.
	switch {
	case r.priority != o.priority:
		return cmp.Compare(o.priority, r.priority)
	case r.created != o.created:
		return cmp.Compare(r.created, o.created)
	}
	return cmp.Compare(r.uid, o.uid)
}

// spot is where the waitlist has a job. The zero spot is nowhere.
type spot struct {
	waits bool
	// uncounted: as Kueue counts, it is not pending.
	uncounted bool
	// priority and created are of the rank that the job is filed under.
	priority  int32
	created   int64
	line      *line
	bucket    *bucket
	blocked   *reason.Reason
	requeueAt instant
}

// filed is the rank that the job is filed under.
func (e *entry) filed() rank {
	return rank{priority: e.spot.priority, created: e.spot.created, uid: e.job.Owner.UID}
}

// isUncounted says that Kueue would not count a job that waits: it is
// deactivated and in nobody's way, or cannot be read and has no Workload.
func (e *entry) isUncounted() bool {
	return e.blocked != nil && (e.workload == nil || e.blocked.Class == reason.Deactivated)
}

// enqueue brings the waitlist in line with one job, after anything about the
// job has changed. Doing it twice changes nothing. A job that starts, or is
// another now, needs no reservation.
func (l *Ledger) enqueue(e *entry) {
	if e.claim != nil && !l.claimStands(e) {
		l.endClaim(e, "the job has changed")
	}
	l.list(e)
	if r := e.reservation; r != nil && (e.spot.bucket == nil || e.version != r.version) {
		l.unreserve(r)
	}
	l.loosen()
	l.growAgain()
}

// list puts a job into the lists that it belongs to.
func (l *Ledger) list(e *entry) {
	w := &l.waits
	known := l.jobs[e.job.Owner.UID] == e
	l.holds(e, known && e.holdsCapacity())
	belongs(w.lost, e, known && e.state == Admitted && e.lost())
	waits := known && e.unadmitted() && !e.ended
	asleep := waits && e.requeueAt.after(l.clock.Now())
	belongs(w.sleeping, e, asleep)

	var now spot
	queue := e.queue()
	inBucket := false
	if waits {
		r := e.rank()
		now = spot{waits: true, priority: r.priority, created: r.created, line: w.lines[queue], blocked: e.blocked, uncounted: e.isUncounted()}
		if asleep {
			now.requeueAt = e.requeueAt
		}
		if inBucket = e.state == Pending && e.startable() && !asleep; inBucket {
			now.bucket = w.buckets[bucketKey{now.line, e.shapeOf()}]
		}
	}
	if now == e.spot && inBucket == (now.bucket != nil) && waits == (now.line != nil) {
		return
	}
	clock := l.clock.Now()
	w.take(e, clock)
	if waits {
		now.line = w.line(queue)
		now.line.insert(e.at(now))
		if now.uncounted {
			w.uncounted[queue]++
		}
		w.untold.add(e)
		l.effects.Report()
	} else {
		w.untold.remove(e)
		e.said = nil
	}
	if inBucket && w.join(bucketKey{now.line, e.shapeOf()}, e, l.headOf(queue), clock) {
		l.effects.Admit()
	}
}

// holds files a job among those that hold capacity, or takes it out.
func (l *Ledger) holds(e *entry, holds bool) {
	if _, held := l.waits.charged[e]; held != holds {
		belongs(l.waits.charged, e, holds)
		l.effects.Holds(e.job.Owner.UID, holds)
	}
}

// at puts a job's spot down, by which the lists find it.
func (e *entry) at(s spot) *entry {
	e.spot = s
	return e
}

// take removes a job from its line and its bucket, where it has them.
func (w *waitlist) take(e *entry, now time.Time) {
	old := e.spot
	if !old.waits {
		e.spot = spot{}
		return
	}
	queue := old.line.queue
	if old.line.remove(e); len(old.line.items) == 0 {
		delete(w.lines, queue)
		delete(w.where, queue)
	}
	if old.uncounted {
		if w.uncounted[queue]--; w.uncounted[queue] == 0 {
			delete(w.uncounted, queue)
		}
	}
	if b := old.bucket; b != nil {
		w.change(b, now, func() { b.jobs.remove(e) })
	}
	e.spot = spot{}
}

func (w *waitlist) line(queue types.NamespacedName) *line {
	of := w.lines[queue]
	if of == nil {
		of = &line{queue: queue}
		w.lines[queue] = of
	}
	return of
}

// line is the jobs of one LocalQueue that wait. It is another one after the last
// of them has left.
type line struct {
	queue types.NamespacedName
	jobList
}

// jobList is jobs by the rank that they are filed under.
type jobList struct{ items []*entry }

func (j *jobList) insert(e *entry) { j.do((*ordered[*entry]).insert, e) }
func (j *jobList) remove(e *entry) { j.do((*ordered[*entry]).remove, e) }

func (j *jobList) do(what func(*ordered[*entry], *entry), e *entry) {
	o := ordered[*entry]{compare: byRank, items: j.items}
	what(&o, e)
	j.items = o.items
}

// byRank orders jobs by the rank that they are filed under.
func byRank(a, b *entry) int { return a.filed().compare(b.filed()) }

// belongs puts e into a set or takes it out.
func belongs(set map[*entry]struct{}, e *entry, in bool) {
	if in {
		set[e] = struct{}{}
	} else {
		delete(set, e)
	}
}

func (e *entry) rank() rank {
	return rank{priority: e.priority, created: e.job.Created.UnixNano(), uid: e.job.Owner.UID}
}

func (e *entry) queue() types.NamespacedName {
	return types.NamespacedName{Namespace: e.job.Owner.Namespace, Name: e.job.Queue}
}

// shapeOf is the shape of the job as it stands, worked out once.
func (e *entry) shapeOf() shape {
	if e.shape == (shape{}) {
		e.shape = shapeOf(e.job)
	}
	return e.shape
}

// setJob takes another reading of the job.
func (e *entry) setJob(job *workload.Job) {
	if e.job == nil || !sameRequest(e.job, job) {
		e.shape = shape{}
	}
	e.job = job
}

// lost says that a slot of the job has no node.
func (e *entry) lost() bool {
	for _, set := range e.sets {
		for _, s := range set.slots {
			if s.lost() {
				return true
			}
		}
	}
	return false
}

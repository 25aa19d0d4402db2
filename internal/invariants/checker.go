package invariants

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// What must hold. Every Violation carries one of them.
const (
	admittedFirst   = "every pod of a queued job is bound only while its Workload is admitted, with a slot for it"
	startsTogether  = "the pods of a start group are bound within a bound time of each other, or their Workload is released"
	leavesWhole     = "a Workload that is not admitted holds nothing"
	quotaKept       = "the charges of the admitted Workloads never exceed the quota of their ClusterQueue and its Cohorts"
	nodesKept       = "pods and held slots never exceed a node"
	evictionsSayWhy = "every eviction has a reason, and a preemption names its beneficiary"

	beneficiaryStarts = "a job for which others were preempted starts when they have left, unless it or what it was to get has changed since"
)

// Options of a Checker. The zero value means the defaults.
type Options struct {
	// After is the resource version up to which events only say how things
	// are, without being judged. Empty: every event is judged.
	After string
	// StartWithin bounds the time from the first bind of a start group to its
	// last, and from the moment when those have left who were preempted for a
	// Workload until it is admitted. Default: 60 s.
	StartWithin time.Duration
	// InFlight is for how long after a change by others Muster may still act
	// as if it had not been made: its decision was on its way. Default: 5 s.
	InFlight time.Duration
	// Schedulers are the scheduler names that Muster serves; what others bind
	// is not its doing. Default: muster and default-scheduler.
	Schedulers []string
	// History is how many changes are kept for reports. Default: 20,000.
	History int
}

func (o Options) complete() Options {
	if o.StartWithin == 0 {
		o.StartWithin = 60 * time.Second
	}
	if o.InFlight == 0 {
		o.InFlight = 5 * time.Second
	}
	if o.Schedulers == nil {
		o.Schedulers = []string{"muster", corev1.DefaultSchedulerName}
	}
	if o.History == 0 {
		o.History = 20_000
	}
	return o
}

// Checker judges a history of events. It is a pure function of what it was
// shown: no clock, no client. It is not safe for concurrent use.
type Checker struct {
	options Options
	// missed are the parts of the history whose events only say how things are,
	// without being judged: something that happened there is not known.
	missed []span
	// now and version are the event's that is being judged.
	now     time.Time
	version string
	history history

	pods   map[types.UID]*pod
	nodes  map[string]*node
	queues map[string]*queue
	// cohorts are those that exist or that somebody names.
	cohorts map[string]*queue
	// jobSets, batch Jobs and training jobs among them, and trainJobs are kept when they are
	// deleted, because their pods live a little longer.
	jobSets   map[types.UID]*jobSet
	trainJobs map[types.UID]*trainJob
	workloads map[types.UID]*claim
	// byOwner is the newest Workload of each job, also a deleted one.
	byOwner map[types.UID]*claim
	// ended are the jobs that were deleted.
	ended map[types.UID]bool
	// debts are owed to jobs for which others were stopped.
	debts map[types.UID]*debt

	violations []*Violation
	foreign    []string
}

// NewChecker returns a Checker that has seen nothing.
func NewChecker(o Options) *Checker {
	o = o.complete()
	return &Checker{
		options: o, history: history{size: o.History},
		pods: map[types.UID]*pod{}, nodes: map[string]*node{}, queues: map[string]*queue{}, cohorts: map[string]*queue{},
		jobSets: map[types.UID]*jobSet{}, trainJobs: map[types.UID]*trainJob{},
		workloads: map[types.UID]*claim{}, byOwner: map[types.UID]*claim{}, ended: map[types.UID]bool{},
		debts: map[types.UID]*debt{},
	}
}

// Observe judges the next event of the history. Events must come in the order
// of their resource versions.
func (c *Checker) Observe(e Event) {
	c.Advance(e.Seen)
	c.version = e.version()
	gone := e.Type == watch.Deleted
	switch o := e.Object.(type) {
	case *corev1.Pod:
		c.seePod(o, gone)
	case *corev1.Node:
		c.seeNode(o, gone)
	case *resourceapi.ResourceSlice:
		c.seeSlice(o, gone)
	case *kueue.Workload:
		c.seeWorkload(o, gone)
	case *kueue.ClusterQueue:
		c.seeQueue(o, gone)
	case *kueue.Cohort:
		c.seeCohort(o, gone)
	case *jobset.JobSet:
		c.seeJobSet(o, gone)
	case *batchv1.Job:
		c.seeBatchJob(o, gone)
	case *unstructured.Unstructured:
		switch o.GroupVersionKind().Group {
		case trainingGroup:
			c.seeTraining(o, gone)
		case rayGroup:
			c.seeRay(o, gone)
		default:
			c.seeTrainJob(o, gone)
		}
	}
}

// Advance says that time has passed without an event.
func (c *Checker) Advance(now time.Time) {
	if now.After(c.now) {
		c.now = now
	}
	c.overdue()
	c.overdueDebts()
}

// Violations are all that were found so far, oldest first.
func (c *Checker) Violations() []*Violation { return slices.Clone(c.violations) }

// Foreign says, in sentences, what others than Muster did to the nodes: pods
// that they bound where there was no room. These are no violations.
func (c *Checker) Foreign() []string { return slices.Clone(c.foreign) }

// judging says whether the event is to be judged, not only recorded.
func (c *Checker) judging() bool {
	return later(c.version, c.options.After) &&
		!slices.ContainsFunc(c.missed, func(s span) bool { return s.holds(c.version) })
}

// justNow says that something happened so recently that Muster may have acted
// without knowing of it.
func (c *Checker) justNow(at time.Time) bool { return c.now.Sub(at) <= c.options.InFlight }

// note adds a change to the history.
func (c *Checker) note(text string, about ...string) {
	c.history.add(line{version: c.version, seen: c.now, text: text, about: about})
}

// mostLines bounds the history in one report.
const mostLines = 60

func (c *Checker) violated(invariant, summary string, objects ...string) {
	if !c.judging() {
		return
	}
	slices.Sort(objects)
	objects = slices.DeleteFunc(slices.Compact(objects), func(o string) bool { return o == "" })
	c.violations = append(c.violations, &Violation{
		Invariant: invariant, Version: c.version, Seen: c.now, Summary: summary,
		Objects: objects, History: c.history.of(objects, mostLines),
	})
}

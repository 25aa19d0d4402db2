package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/sandbox"
	"github.com/muster-gpu/muster/internal/simulator"
	"github.com/muster-gpu/muster/workload"
)

// killSecondsVariable is for how many seconds the scheduler is killed again and
// again; by default long enough for a few deaths.
const killSecondsVariable = "MUSTER_TEST_KILL_SECONDS"

// nodeGPUs is what each node has, and each pod of the stream asks for: a pod
// takes a node, so that only numbers decide who has to leave.
const nodeGPUs = 8

// TestKills kills the scheduler at random moments, amid a stream of jobs of two
// priorities in two queues that lend to each other. Whatever it was about to
// write, no job is lost, none runs more often than it was stopped, none of the
// higher priority is stopped, and none is stopped whose room was not needed.
func TestKills(t *testing.T) {
	seconds := 20
	if v := os.Getenv(killSecondsVariable); v != "" {
		given, err := strconv.Atoi(v)
		if err != nil {
			t.Fatalf("%s: %v", killSecondsVariable, err)
		}
		seconds = given
	}
	c := up(t, "kills", func(o *sandbox.Options) {
		o.With = []string{sandbox.WithScheduler, sandbox.WithWebhook}
		o.Nodes, o.GPUsPerNode = 8, nodeGPUs
	})
	tm := batchTeam{c.team(t, "stream")}
	for _, obj := range []client.Object{
		&kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "low"}, Value: 1},
		&kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 2},
	} {
		if err := c.client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	for _, queue := range []string{"left", "right"} {
		tm.queueUp(t, queue, 4*nodeGPUs)
		tm.joinCohort(t, queue)
	}
	s := newStream(t, tm)
	t.Cleanup(func() { s.tell(t) })
	s.start(t)
	deaths := 0
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); deaths++ {
		time.Sleep(time.Duration(rand.Int64N(int64(4 * time.Second))))
		c.kill(t, "muster-scheduler")
		s.say("the scheduler is dead")
		time.Sleep(time.Duration(rand.Int64N(int64(time.Second))))
		c.restart(t, "muster-scheduler")
		s.say("the scheduler is ready")
	}
	s.stop(t)
	created := len(s.names)
	eventually(t, "all jobs to have finished", func(context.Context) error {
		if left := s.unfinished(); len(left) > 0 {
			return fmt.Errorf("%d of %d have not: %v; %s", len(left), created, left, tm.describe(t.Context(), left[0]))
		}
		return nil
	})
	s.judge(t)
	t.Logf("%d jobs, %d deaths, %d preemptions", created, deaths, s.preemptions())
	for _, queue := range []string{"left", "right"} {
		tm.usage(t, queue, 0, 0, 0)
	}
}

// joinCohort has a queue lend to the other one, and stop those of a lower
// priority in both.
func (tm batchTeam) joinCohort(t *testing.T, queue string) {
	t.Helper()
	eventually(t, "the cohort to be set", func(ctx context.Context) error {
		cq := &kueue.ClusterQueue{}
		if err := tm.client.Get(ctx, client.ObjectKey{Name: tm.namespace + "-" + queue}, cq); err != nil {
			return err
		}
		cq.Spec.CohortName = "all"
		cq.Spec.Preemption = &kueue.ClusterQueuePreemption{
			WithinClusterQueue: kueue.PreemptionPolicyLowerPriority, ReclaimWithinCohort: kueue.PreemptionPolicyLowerPriority,
		}
		return tm.client.Update(ctx, cq)
	})
}

// life is what was seen of a job of the stream.
type life struct {
	uid      types.UID
	high     bool
	pods     int
	finished bool
	// suspended is what the Job said last, resumed how often that ended.
	suspended bool
	resumed   int
	// evicted is since when its Workload's standing eviction is, if there is
	// one; evictions are all that there were.
	evicted   *metav1.Time
	evictions []eviction
	// bound are its pods that came onto a node.
	bound map[types.UID]bool
	// admitted is what its Workload said last, admissions how often that began.
	admitted   bool
	admissions int
}

// eviction is one that was seen.
type eviction struct {
	reason, message string
	// round is how often the job that the message names was admitted before.
	round int
}

// stream creates jobs and watches what becomes of them.
type stream struct {
	tm batchTeam

	ending  context.CancelFunc
	created sync.WaitGroup
	watched sync.WaitGroup

	mu    sync.Mutex
	names []string
	lives map[string]*life
	// err is the first thing that could not be done.
	err error
	// history is what has happened, for a test that has failed.
	history []string
}

// mostAtOnce is how many jobs of the stream are unfinished at the most: some
// three times what the nodes hold.
const mostAtOnce = 14

// newStream begins to watch.
func newStream(t *testing.T, tm batchTeam) *stream {
	t.Helper()
	s := &stream{tm: tm, lives: map[string]*life{}}
	w := tm.Watching(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &kueue.WorkloadList{}, &corev1.PodList{}} {
		events, err := w.Watch(ctx, list, client.InNamespace(tm.namespace))
		if err != nil {
			t.Fatalf("watching %T: %v", list, err)
		}
		s.watched.Go(func() {
			for event := range events.ResultChan() {
				s.see(event)
			}
			if ctx.Err() == nil {
				s.failed(fmt.Errorf("the watch of %T has ended", list))
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		s.watched.Wait()
	})
	return s
}

// start has jobs come at random until stop is called.
func (s *stream) start(t *testing.T) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	s.ending = cancel
	t.Cleanup(cancel)
	s.created.Go(func() {
		for i := 0; ctx.Err() == nil; {
			if len(s.unfinished()) < mostAtOnce {
				if err := s.create(fmt.Sprintf("job-%d", i)); err != nil {
					s.failed(err)
					return
				}
				i++
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(rand.Int64N(int64(400 * time.Millisecond)))):
			}
		}
	})
}

// stop ends the stream. What has come is there.
func (s *stream) stop(t *testing.T) {
	t.Helper()
	s.ending()
	s.created.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		t.Fatal(s.err)
	}
}

func (s *stream) say(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("%s", what)
}

// note adds to the history. The lock is held.
func (s *stream) note(format string, args ...any) {
	s.history = append(s.history, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// tell shows the history when the test has failed.
func (s *stream) tell(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.Failed() {
		t.Logf("what has happened:\n%s", strings.Join(s.history, "\n"))
	}
}

func (s *stream) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// create creates a job of one to four pods that takes up to three seconds. One
// of three is of the higher priority.
func (s *stream) create(name string) error {
	pods, class := 1+rand.Int32N(4), "low"
	if rand.IntN(3) == 0 {
		class = "high"
	}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.tm.namespace, Name: name, Labels: map[string]string{
			workload.QueueLabel:             []string{"left", "right"}[rand.IntN(2)],
			"kueue.x-k8s.io/priority-class": class,
		}},
		Spec: jobSpec(pods, nodeGPUs),
	}
	job.Spec.Template.Annotations = map[string]string{simulator.RunForAnnotation: fmt.Sprintf("%dms", rand.IntN(3000))}
	s.mu.Lock()
	s.note("%s is created: %s, %d pods, %s", name, job.Labels[workload.QueueLabel], pods, class)
	s.names = append(s.names, name)
	s.lives[name] = &life{high: class == "high", pods: int(pods), suspended: true, bound: map[types.UID]bool{}}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.tm.client.Create(ctx, job); err != nil {
		return fmt.Errorf("creating Job %s: %w", name, err)
	}
	return nil
}

// unfinished are the jobs that have not finished, oldest first.
func (s *stream) unfinished() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.names), func(name string) bool { return s.lives[name].finished })
}

// see keeps what a change says of a job.
func (s *stream) see(event watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch o := event.Object.(type) {
	case *batchv1.Job:
		l := s.lives[o.Name]
		suspended := ptr.Deref(o.Spec.Suspend, false)
		if l.suspended != suspended {
			s.note("%s is suspended: %v", o.Name, suspended)
		}
		if l.suspended && !suspended {
			l.resumed++
		}
		l.suspended = suspended
	case *corev1.Pod:
		if l := s.lives[o.Labels[batchv1.JobNameLabel]]; l != nil && o.Spec.NodeName != "" {
			l.bound[o.UID] = true
		}
	case *kueue.Workload:
		if owner := metav1.GetControllerOf(o); owner != nil {
			s.seeWorkload(owner.Name, o)
		}
	}
}

func (s *stream) seeWorkload(name string, o *kueue.Workload) {
	l := s.lives[name]
	l.uid = metav1.GetControllerOf(o).UID
	if !l.finished && apimeta.IsStatusConditionTrue(o.Status.Conditions, kueue.WorkloadFinished) {
		s.note("%s has finished", name)
		l.finished = true
	}
	admitted := apimeta.IsStatusConditionTrue(o.Status.Conditions, kueue.WorkloadAdmitted)
	if admitted != l.admitted {
		s.note("%s is admitted: %v", name, admitted)
	}
	if admitted && !l.admitted {
		l.admissions++
	}
	l.admitted = admitted
	e := apimeta.FindStatusCondition(o.Status.Conditions, kueue.WorkloadEvicted)
	if e == nil || e.Status != metav1.ConditionTrue {
		l.evicted = nil
		return
	}
	if l.evicted.Equal(&e.LastTransitionTime) {
		return
	}
	l.evicted = &e.LastTransitionTime
	s.note("%s is evicted: %s", name, e.Message)
	seen := eviction{reason: e.Reason, message: e.Message}
	if to := s.beneficiary(e.Message); to != "" {
		seen.round = s.lives[to].admissions
	}
	l.evictions = append(l.evictions, seen)
}

// beneficiary is the job that a message names by its UID.
func (s *stream) beneficiary(message string) string {
	for _, name := range s.names {
		if uid := s.lives[name].uid; uid != "" && strings.Contains(message, string(uid)) {
			return name
		}
	}
	return ""
}

func (s *stream) preemptions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, l := range s.lives {
		n += len(l.evictions)
	}
	return n
}

// judge says what should not have happened.
func (s *stream) judge(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		t.Error(s.err)
	}
	// stopped are the pods of each that was stopped, for one admission of a job.
	type cause struct {
		job   string
		round int
	}
	stopped := map[cause][]int{}
	for _, name := range s.names {
		l := s.lives[name]
		if l.resumed > l.admissions || l.admissions > 1+len(l.evictions) {
			t.Errorf("%s was resumed %d times, admitted %d times and stopped %d times: %+v", name, l.resumed, l.admissions, len(l.evictions), l.evictions)
		}
		if len(l.bound) > l.pods*l.resumed {
			t.Errorf("%s, of %d pods, ran %d times, and %d pods of it came onto nodes", name, l.pods, l.resumed, len(l.bound))
		}
		for _, e := range l.evictions {
			to := s.beneficiary(e.message)
			if e.reason != kueue.WorkloadEvictedByPreemption || l.high || to == "" || !s.lives[to].high {
				t.Errorf("%s (of the higher priority: %v) was stopped for %s: %s", name, l.high, e.reason, e.message)
				continue
			}
			stopped[cause{to, e.round}] = append(stopped[cause{to, e.round}], l.pods)
		}
	}
	for c, pods := range stopped {
		sum := 0
		for _, n := range pods {
			sum += n
		}
		// Without the smallest of them it would have been enough.
		if need := s.lives[c.job].pods; sum-slices.Min(pods) >= need {
			t.Errorf("for %s, of %d pods, jobs of %v pods were stopped", c.job, need, pods)
		}
	}
}

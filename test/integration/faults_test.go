package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/testcluster"
)

const (
	// secondsVariable is for how many seconds the API fails, at least; by
	// default until 20 jobs have come to their ends.
	secondsVariable = "MUSTER_TEST_FAULTS_SECONDS"
	// seedVariable repeats the faults of a run that printed its seed. What the
	// programs ask for in between is not the same again.
	seedVariable = "MUSTER_TEST_FAULTS_SEED"
)

// weather is an API that fails at random.
type weather struct {
	*env
	mu   sync.Mutex
	dice *rand.Rand
	// delays is how many long delays are left.
	delays int
	// counts are the faults by what they were.
	counts map[string]int
	// history is what was asked for, and what became of it.
	history []string
}

// bad decides on one request.
func (w *weather) bad(r testcluster.Request) testcluster.Fault {
	f, touch := w.roll(r)
	if r.Changes() && r.Resource != "events" {
		w.note(r, f)
	}
	if touch {
		w.touch(r)
	}
	return f
}

func (w *weather) roll(r testcluster.Request) (f testcluster.Fault, touch bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	odds := 0.3
	if !r.Changes() {
		odds = 0.05
	}
	if r.Verb == "watch" || w.dice.Float64() > odds {
		return testcluster.Fault{}, false
	}
	what := ""
	switch w.dice.IntN(8) {
	case 0, 1:
		what, f.LoseAnswer = "answer lost", true
	case 2:
		what, f.LoseRequest = "request lost", true
	case 3:
		what, f.Status = "429", http.StatusTooManyRequests
	case 4:
		what, f.Status = "500", http.StatusInternalServerError
	case 5:
		what, f.Status = "503", http.StatusServiceUnavailable
	case 6:
		what, touch = "changed in between", r.Changes()
	case 7:
		what, f.Delay = "delayed", time.Duration(w.dice.IntN(500))*time.Millisecond
		if w.delays > 0 && r.Changes() {
			w.delays--
			what, f.Delay = "delayed for long", 10*time.Second
		}
	}
	w.counts[what]++
	return f, touch
}

// note keeps what became of a change.
func (w *weather) note(r testcluster.Request, f testcluster.Fault) {
	obj := &metav1.PartialObjectMetadata{}
	if r.Verb == "create" && r.Name == "" && json.Unmarshal(r.Body, obj) == nil {
		r.Name = obj.Name
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history = append(w.history, fmt.Sprintf("%s %s: %+v", time.Now().Format("15:04:05.000"), r, f))
}

// tell shows what became of all that was asked for, when the test has failed.
func (w *weather) tell(t *testing.T) {
	if t.Failed() {
		w.mu.Lock()
		defer w.mu.Unlock()
		t.Logf("the changes that the scheduler has asked for, and their fate:\n%s", strings.Join(w.history, "\n"))
	}
}

// touch changes the object of a request, so that what the request says of its
// version is out of date.
func (w *weather) touch(r testcluster.Request) {
	obj := &metav1.PartialObjectMetadata{}
	switch r.Resource {
	case "workloads", "workloads/status":
		obj.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("Workload"))
	case "jobsets":
		obj.SetGroupVersionKind(jobset.SchemeGroupVersion.WithKind("JobSet"))
	case "pods/binding", "pods/status":
		obj.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	default:
		return
	}
	obj.Namespace, obj.Name = r.Namespace, r.Name
	body := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/touched":"%d"}}}`, time.Now().UnixNano())
	// It may be gone, or not there yet.
	_ = w.Client.Patch(context.Background(), obj, client.RawPatch(types.MergePatchType, body))
}

// fate is what becomes of a job.
type fate string

const (
	finishes           fate = "finishes"
	deletedAtOnce      fate = "is deleted at once"
	deletedRunning     fate = "is deleted while it runs"
	suspendedByHand    fate = "is suspended by hand while it runs, and finishes"
	stoppedAndLetAgain fate = "is deactivated while it runs, activated, and finishes"
)

var fates = []fate{finishes, finishes, deletedAtOnce, deletedRunning, suspendedByHand, stoppedAndLetAgain}

// life is a job on its way to its fate.
type life struct {
	js   *jobset.JobSet
	pods int
	fate fate
	// step counts what has been done to it.
	step int
	over bool
}

// live does the next thing to a job, if it is time; an error says what it
// waits for.
func (e *env) live(ctx context.Context, l *life) error {
	if l.fate == deletedAtOnce {
		return e.gone(ctx, l)
	}
	if l.step == 1 && l.fate == stoppedAndLetAgain {
		return e.letAgain(ctx, l)
	}
	if l.step == 1 && l.fate == deletedRunning {
		return e.gone(ctx, l)
	}
	if l.step < 9 {
		if err := e.Bound(ctx, l.js, l.pods); err != nil {
			return err
		}
		if err := e.Client.Get(ctx, client.ObjectKeyFromObject(l.js), l.js); err != nil {
			return err
		}
		if *l.js.Spec.Suspend {
			return fmt.Errorf("%s is suspended", l.js.Name)
		}
	}
	switch {
	case l.step == 0 && l.fate == deletedRunning:
		l.step++
		return e.gone(ctx, l)
	case l.step == 0 && l.fate == suspendedByHand:
		l.js.Spec.Suspend = new(true)
		if err := e.Client.Update(ctx, l.js); err != nil {
			return err
		}
		l.step++
		return fmt.Errorf("%s was just suspended", l.js.Name)
	case l.step == 0 && l.fate == stoppedAndLetAgain:
		if err := e.mayRun(ctx, l.js, false); err != nil {
			return err
		}
		l.step++
		return fmt.Errorf("%s was just deactivated", l.js.Name)
	}
	l.step = 9
	return e.complete(ctx, l)
}

// gone deletes a job, and is content when its Workload and pods are gone too.
func (e *env) gone(ctx context.Context, l *life) error {
	if err := e.Client.Delete(ctx, l.js); client.IgnoreNotFound(err) != nil {
		return err
	}
	pods, err := e.Pods(ctx, l.js)
	if err != nil || len(pods) > 0 {
		return fmt.Errorf("%s is deleted and has %d pods (%v)", l.js.Name, len(pods), err)
	}
	if wl, err := e.workload(ctx, l.js); err == nil && isTrue(wl, kueue.WorkloadAdmitted) {
		return fmt.Errorf("%s is deleted, and its Workload says that it is admitted", l.js.Name)
	}
	l.over = true
	return nil
}

// letAgain activates a job that was deactivated, once it is stopped.
func (e *env) letAgain(ctx context.Context, l *life) error {
	wl, err := e.workload(ctx, l.js)
	if err != nil {
		return err
	}
	if isTrue(wl, kueue.WorkloadAdmitted) {
		return fmt.Errorf("%s is deactivated and not stopped", l.js.Name)
	}
	if err := e.mayRun(ctx, l.js, true); err != nil {
		return err
	}
	l.step++
	return fmt.Errorf("%s was just activated", l.js.Name)
}

func (e *env) mayRun(ctx context.Context, js *jobset.JobSet, active bool) error {
	wl, err := e.workload(ctx, js)
	if err != nil {
		return err
	}
	wl.Spec.Active = &active
	return e.Client.Update(ctx, wl)
}

// complete ends a job as its controllers would, and is content when its
// Workload says so.
func (e *env) complete(ctx context.Context, l *life) error {
	pods, err := e.Pods(ctx, l.js)
	if err != nil {
		return err
	}
	for i := range pods {
		if pods[i].Status.Phase != corev1.PodSucceeded {
			pods[i].Status.Phase = corev1.PodSucceeded
			if err := e.Client.Status().Update(ctx, &pods[i]); err != nil {
				return err
			}
		}
	}
	if err := e.Client.Get(ctx, client.ObjectKeyFromObject(l.js), l.js); err != nil {
		return err
	}
	if !apimeta.IsStatusConditionTrue(l.js.Status.Conditions, string(jobset.JobSetCompleted)) {
		apimeta.SetStatusCondition(&l.js.Status.Conditions, metav1.Condition{
			Type: string(jobset.JobSetCompleted), Status: metav1.ConditionTrue, Reason: "AllJobsCompleted", Message: "jobset completed successfully",
		})
		if err := e.Client.Status().Update(ctx, l.js); err != nil {
			return err
		}
	}
	wl, err := e.workload(ctx, l.js)
	if err != nil {
		return err
	}
	if !isTrue(wl, kueue.WorkloadFinished) {
		return fmt.Errorf("%s is completed, and its Workload does not say so", l.js.Name)
	}
	l.over = true
	return nil
}

// failures has jobs of mixed sizes come, finish, and be deleted, suspended and
// stopped, while every third write of the scheduler fails in some way. In the
// end every job is as it should be, and all quota and room are free.
func failures(t *testing.T, s *stages) {
	e := s.next(t)
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv(seedVariable); v != "" {
		given, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
		seed = given
	}
	t.Logf("%s=%d", seedVariable, seed)
	seconds := 0
	if v := os.Getenv(secondsVariable); v != "" {
		given, err := strconv.Atoi(v)
		if err != nil {
			t.Fatalf("%s: %v", secondsVariable, err)
		}
		seconds = given
	}
	e.Node(t, "node-0", 8)
	e.Node(t, "node-1", 8)
	e.Queue(t, e.namespace, "team", 16)
	proxy := e.Proxy(t)
	w := &weather{env: e, dice: rand.New(rand.NewPCG(seed, 1)), delays: 2, counts: map[string]int{}}
	t.Cleanup(func() { w.tell(t) })
	acts := rand.New(rand.NewPCG(seed, 2))
	e.spawn(t, "scheduler", proxy.Kubeconfig)
	proxy.Faults(w.bad)
	round := 0
	for end := time.Now().Add(time.Duration(seconds) * time.Second); round == 0 || time.Now().Before(end); round++ {
		e.storm(t, proxy, acts, round)
	}
	t.Logf("in %d rounds: %v", round, w.counts)
	last := e.job("last", "team", 2, 8)
	e.Create(t, last)
	e.runs(t, last, 2)
	e.usage(t, "team", 16, 1, 0)
	e.finish(t, last)
	e.usage(t, "team", 0, 0, 0)
}

// storm brings 20 jobs to their ends. When half of them are there the
// connections are cut for an instant; when it lasts too long the API recovers.
func (e *env) storm(t *testing.T, proxy *testcluster.Proxy, acts *rand.Rand, round int) {
	t.Helper()
	var lives []*life
	for i := range 20 {
		// Up to four pods of up to half a node each, or two of up to a whole.
		pods, most := 1+acts.Int32N(4), int64(4)
		if pods <= 2 {
			most = 8
		}
		js := e.job(fmt.Sprintf("job-%d-%d", round, i), "team", pods, 1+acts.Int64N(most))
		l := &life{js: js, pods: int(pods), fate: fates[acts.IntN(len(fates))]}
		e.Create(t, js)
		lives = append(lives, l)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	calm := time.Now().Add(30 * time.Second)
	cut := false
	for {
		left := map[string]error{}
		for _, l := range lives {
			if !l.over {
				if err := e.live(ctx, l); err != nil && !l.over {
					left[l.js.Name+", which "+string(l.fate)] = err
				}
			}
		}
		switch {
		case len(left) == 0:
			return
		case ctx.Err() != nil:
			t.Errorf("%d jobs have not come to their ends: %v", len(left), left)
			// Before anything is put away.
			e.dump(t)
			t.FailNow()
		case len(left) <= len(lives)/2 && !cut:
			cut = true
			proxy.Cut()
			proxy.Mend()
		case time.Now().After(calm):
			proxy.Faults(nil)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

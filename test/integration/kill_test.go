package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/testcluster"
)

// moment is a write of the scheduler in the life of a job, at which the
// scheduler is killed.
type moment struct {
	name string
	is   func(testcluster.Request) bool
	// nth counts such writes from 1; zero is the first.
	nth int32
	// then brings a job that runs to the moment; nil if it comes there by
	// itself.
	then func(t *testing.T, e *env, js *jobset.JobSet)
	// after is what is left to do before the job has run to its end; nil if
	// it is to start once and to finish.
	after func(t *testing.T, e *env, js *jobset.JobSet)
}

var moments = []moment{
	{name: "its Workload is created", is: of("create", "workloads")},
	{name: "its Workload is written as admitted", is: statusWith(func(wl *kueue.Workload) bool {
		return isTrue(wl, kueue.WorkloadAdmitted)
	})},
	{name: "it is resumed", is: suspension(false)},
	{name: "its first pod is bound", is: of("create", "pods/binding")},
	{name: "its second pod is bound", is: of("create", "pods/binding"), nth: 2},
	{name: "its eviction is written", then: stopIt, after: startsAgain, is: statusWith(func(wl *kueue.Workload) bool {
		return isTrue(wl, kueue.WorkloadEvicted)
	})},
	{name: "it is suspended and its pods take their time", then: stopItSlowly, after: keepsItsRoom, is: suspension(true)},
	{name: "its Workload is written as pending again", then: stopIt, after: startsAgain, is: statusWith(func(wl *kueue.Workload) bool {
		return isTrue(wl, kueue.WorkloadEvicted) && !isTrue(wl, kueue.WorkloadAdmitted)
	})},
	{name: "its Workload is written as finished", then: finishIt, after: nothingIsLeft, is: statusWith(func(wl *kueue.Workload) bool {
		return isTrue(wl, kueue.WorkloadFinished)
	})},
	{name: "its Workload is deleted", then: deleteIt, after: nothingIsLeft, is: of("delete", "workloads")},
}

func of(verb, resource string) func(testcluster.Request) bool {
	return func(r testcluster.Request) bool { return r.Verb == verb && r.Resource == resource }
}

// statusWith are the writes of a Workload's status in which something is so.
func statusWith(so func(*kueue.Workload) bool) func(testcluster.Request) bool {
	return func(r testcluster.Request) bool {
		wl := &kueue.Workload{}
		return r.Verb == "update" && r.Resource == "workloads/status" && json.Unmarshal(r.Body, wl) == nil && so(wl)
	}
}

func isTrue(wl *kueue.Workload, condition string) bool {
	return apimeta.IsStatusConditionTrue(wl.Status.Conditions, condition)
}

// suspension are the patches that suspend, or resume, a JobSet.
func suspension(to bool) func(testcluster.Request) bool {
	return func(r testcluster.Request) bool {
		return r.Verb == "patch" && r.Resource == "jobsets" && bytes.Contains(r.Body, fmt.Appendf(nil, `"path":"/spec/suspend","value":%v`, to))
	}
}

// kills kills a scheduler with kill -9 at each of its writes, before the
// write arrives and after it was carried out, and starts another one. Each
// time the job starts as often as it should and not once more, its quota and
// its room are free at its end, and nothing is broken that must always hold.
func kills(t *testing.T, s *stages) {
	for _, m := range moments {
		for _, lost := range []string{"request", "answer"} {
			t.Run(m.name+", and the "+lost+" is lost", func(t *testing.T) { killAt(t, s.next(t), m, lost == "answer") })
		}
	}
}

func killAt(t *testing.T, e *env, m moment, carriedOut bool) {
	e.Node(t, "kill-node", 8)
	e.Queue(t, e.namespace, "team", 8)
	proxy := e.Proxy(t)
	first := e.spawn(t, "first", proxy.Kubeconfig)
	first.leads(t)
	killed := make(chan struct{})
	var seen atomic.Int32
	proxy.Faults(func(r testcluster.Request) testcluster.Fault {
		if !m.is(r) || seen.Add(1) != max(1, m.nth) {
			return testcluster.Fault{}
		}
		// What does not wait for the write, and should, has time to go out.
		return testcluster.Fault{Delay: 300 * time.Millisecond, LoseRequest: !carriedOut, LoseAnswer: carriedOut, Then: func() {
			proxy.Cut()
			first.kill()
			close(killed)
		}}
	})
	js := e.job("job", "team", 2, 4)
	e.Create(t, js)
	if m.then != nil {
		e.runs(t, js, 2)
		m.then(t, e, js)
	}
	testcluster.Eventually(t, "the scheduler to be killed when "+m.name, func(context.Context) error {
		select {
		case <-killed:
			return nil
		default:
			return fmt.Errorf("it lives, and has come to it %d times", seen.Load())
		}
	})

	e.spawn(t, "second", e.Kubeconfig).leads(t)
	if m.after != nil {
		m.after(t, e, js)
	} else {
		e.runs(t, js, 2)
		e.resumed(t, js, 1)
		e.usage(t, "team", 8, 1, 0)
		e.finish(t, js)
	}
	// A job that needs all that the first one had.
	next := e.job("next", "team", 2, 4)
	e.Create(t, next)
	e.runs(t, next, 2)
	e.usage(t, "team", 8, 1, 0)
	e.finish(t, next)
	e.usage(t, "team", 0, 0, 0)
}

func stopIt(t *testing.T, e *env, js *jobset.JobSet) { e.setActive(t, js, false) }

func stopItSlowly(t *testing.T, e *env, js *jobset.JobSet) {
	e.linger(t, js, true)
	e.setActive(t, js, false)
}

func finishIt(t *testing.T, e *env, js *jobset.JobSet) { e.finish(t, js) }

func deleteIt(t *testing.T, e *env, js *jobset.JobSet) {
	if err := e.Client.Delete(t.Context(), js); err != nil {
		t.Fatal(err)
	}
}

// startsAgain lets a job that is being stopped come to rest, start a second
// time, and finish.
func startsAgain(t *testing.T, e *env, js *jobset.JobSet) {
	e.condition(t, js, kueue.WorkloadAdmitted, metav1.ConditionFalse, "NoReservation", "")
	e.usage(t, "team", 0, 0, 0)
	e.setActive(t, js, true)
	e.runs(t, js, 2)
	e.resumed(t, js, 2)
	e.usage(t, "team", 8, 1, 0)
	e.finish(t, js)
}

// keepsItsRoom sees that a job whose pods are still there keeps its charge from
// another that would fit without it.
func keepsItsRoom(t *testing.T, e *env, js *jobset.JobSet) {
	waiter := e.job("waiter", "team", 1, 4)
	e.Create(t, waiter)
	e.pending(t, waiter, "WaitingForQuota", "0 of 8 free")
	e.usage(t, "team", 8, 1, 1)
	deleteIt(t, e, waiter)
	e.linger(t, js, false)
	startsAgain(t, e, js)
}

// nothingIsLeft waits until the job, which has ended, is charged for nothing.
func nothingIsLeft(t *testing.T, e *env, _ *jobset.JobSet) { e.usage(t, "team", 0, 0, 0) }

// linger keeps the pods of a JobSet, when they are deleted, until it is undone.
func (e *env) linger(t *testing.T, js *jobset.JobSet, linger bool) {
	t.Helper()
	testcluster.Eventually(t, "the pods' finalizers", func(ctx context.Context) error {
		pods, err := e.Pods(ctx, js)
		if err != nil {
			return err
		}
		for i := range pods {
			before := client.MergeFrom(pods[i].DeepCopy())
			pods[i].Finalizers = nil
			if linger {
				pods[i].Finalizers = []string{"example.com/linger"}
			}
			if err := e.Client.Patch(ctx, &pods[i], before); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		return nil
	})
}

// resumed fails the test unless a JobSet that runs has been resumed so often.
// Only its suspension and what comes with it changes its spec.
func (e *env) resumed(t *testing.T, js *jobset.JobSet, times int64) {
	t.Helper()
	if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(js), js); err != nil {
		t.Fatal(err)
	}
	if js.Generation != 2*times || *js.Spec.Suspend {
		t.Errorf("%s was suspended or resumed %d times since it was created, want %d", js.Name, js.Generation-1, 2*times-1)
	}
}

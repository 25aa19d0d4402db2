package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/configz"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/cmd/scheduler/app"
	"github.com/muster-gpu/muster/internal/invariants"
	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/internal/testobject"
)

// env is one scheduler on the shared API server, in a namespace of its own.
type env struct {
	*testcluster.Cluster
	jobs      *testcluster.JobSets
	namespace string
	config    *configv1alpha1.SchedulerConfiguration
	stop      func()
}

// dump shows the namespace's Workloads and pods when a test has failed.
func (e *env) dump(t *testing.T) {
	if !t.Failed() {
		return
	}
	var workloads kueue.WorkloadList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&workloads, &pods} {
		if err := e.Client.List(context.Background(), list, client.InNamespace(e.namespace)); err != nil {
			t.Logf("listing: %v", err)
		}
	}
	for _, wl := range workloads.Items {
		t.Logf("Workload %s: priority %d, conditions %+v", wl.Name, *wl.Spec.Priority, wl.Status.Conditions)
	}
	var queues kueue.ClusterQueueList
	if err := e.Client.List(context.Background(), &queues); err != nil {
		t.Logf("listing: %v", err)
	}
	for _, cq := range queues.Items {
		t.Logf("ClusterQueue %s: %+v", cq.Name, cq.Status)
	}
	for _, pod := range pods.Items {
		t.Logf("Pod %s: node %q, phase %s, conditions %+v", pod.Name, pod.Spec.NodeName, pod.Status.Phase, pod.Status.Conditions)
	}
}

// TestScheduler runs all scenarios, one after the other, against one server.
// Whatever a scenario does, what must always hold must hold.
func TestScheduler(t *testing.T) {
	cluster := testcluster.Start(t)
	for _, gvk := range otherKinds {
		cluster.AddKind(t, gvk)
	}
	watcher, err := invariants.Start(t.Context(), cluster.Config, invariants.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Stop)
	for i, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			e := &env{Cluster: cluster, namespace: fmt.Sprintf("team-%d", i), jobs: cluster.RunJobSets(t)}
			e.config = configv1alpha1.DefaultScheduler()
			e.config.ClientConnection.Kubeconfig = cluster.Kubeconfig
			e.config.LeaderElection.LeaderElect = false
			e.config.SecureServing.Port = 0
			e.config.Admission.Requeue.BackoffBase.Duration = time.Second
			if s.configure != nil {
				s.configure(e.config)
			}
			cluster.Namespace(t, e.namespace)
			// Last, when everything of the scenario is put away.
			t.Cleanup(func() { e.holds(t, watcher) })
			e.start(t)
			t.Cleanup(func() { e.stop() })
			t.Cleanup(func() { e.dump(t) })
			s.run(t, e)
		})
	}
}

// holds fails the test if anything was broken that must always hold.
func (e *env) holds(t *testing.T, watcher *invariants.Watcher) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := watcher.Check(ctx); err != nil {
		t.Error(err)
	}
}

// start runs a scheduler until stop is called. Its memory starts empty.
func (e *env) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	a, err := app.New(ctx, e.config)
	if err != nil {
		cancel()
		t.Fatalf("building the scheduler: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// It ends when ctx does; the error says only that.
		_ = a.Run(ctx)
	}()
	e.stop = func() {
		cancel()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Error("the scheduler does not stop")
		}
		configz.Delete("componentconfig")
	}
}

// restart kills the scheduler's memory and starts another.
func (e *env) restart(t *testing.T) {
	t.Helper()
	e.stop()
	e.start(t)
}

func (e *env) job(name, queue string, pods int32, gpus int64) *jobset.JobSet {
	return testcluster.Job(e.namespace, name, queue, pods, gpus)
}

// workload is the Workload of a job.
func (e *env) workload(ctx context.Context, job client.Object) (*kueue.Workload, error) {
	var list kueue.WorkloadList
	if err := e.Client.List(ctx, &list, client.InNamespace(job.GetNamespace())); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if o := metav1.GetControllerOf(&list.Items[i]); o != nil && o.UID == job.GetUID() {
			return &list.Items[i], nil
		}
	}
	return nil, fmt.Errorf("%s has no Workload", job.GetName())
}

// condition waits until a condition of a job's Workload is as wanted; part
// must be in its message.
func (e *env) condition(t *testing.T, job client.Object, kind string, status metav1.ConditionStatus, why, part string) {
	t.Helper()
	testcluster.Eventually(t, fmt.Sprintf("%s=%s (%s) of %s", kind, status, why, job.GetName()), func(ctx context.Context) error {
		wl, err := e.workload(ctx, job)
		if err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(wl.Status.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != why || !strings.Contains(c.Message, part) {
			return fmt.Errorf("the condition is %+v", c)
		}
		return nil
	})
}

// pending waits until a JobSet is pending for the reason given, and checks
// that it holds nothing: no pods, no admission.
func (e *env) pending(t *testing.T, js *jobset.JobSet, why, part string) {
	t.Helper()
	e.condition(t, js, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, why, part)
	pods, err := e.Pods(t.Context(), js)
	if err != nil || len(pods) > 0 {
		t.Fatalf("%s is pending but has %d pods (%v)", js.Name, len(pods), err)
	}
	wl, err := e.workload(t.Context(), js)
	if err != nil || wl.Status.Admission != nil {
		t.Fatalf("%s is pending but admitted: %+v (%v)", js.Name, wl, err)
	}
}

// runs waits until all pods of a JobSet are on nodes, and checks that it was
// admitted before.
func (e *env) runs(t *testing.T, js *jobset.JobSet, pods int) {
	t.Helper()
	testcluster.Eventually(t, fmt.Sprintf("%d pods of %s to be on nodes", pods, js.Name), func(ctx context.Context) error {
		return e.Bound(ctx, js, pods)
	})
	e.condition(t, js, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "admitted: ")
}

// cordon takes a node out of scheduling, or lets it back in.
func (e *env) cordon(t *testing.T, name string, cordon bool) {
	t.Helper()
	testcluster.Eventually(t, name+" to be cordoned or not", func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := e.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		node.Spec.Unschedulable = cordon
		return e.Client.Update(ctx, node)
	})
}

// event waits for an event on a job whose note has part in it.
func (e *env) event(t *testing.T, job client.Object, why, part string) {
	t.Helper()
	e.eventOn(t, job.GetName(), job.GetUID(), why, part)
}

// eventOn waits for an event on an object of the namespace.
func (e *env) eventOn(t *testing.T, name string, uid types.UID, why, part string) {
	t.Helper()
	testcluster.Eventually(t, fmt.Sprintf("event %s %q on %s", why, part, name), func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := e.Client.List(ctx, &list, client.InNamespace(e.namespace)); err != nil {
			return err
		}
		var notes []string
		for _, ev := range list.Items {
			if ev.Regarding.UID != uid {
				continue
			}
			if ev.Reason == why && strings.Contains(ev.Note, part) {
				return nil
			}
			notes = append(notes, ev.Reason+": "+ev.Note)
		}
		return fmt.Errorf("events are %q", notes)
	})
}

// finish marks a JobSet's pods as succeeded and the JobSet as completed, as
// its controllers would.
func (e *env) finish(t *testing.T, js *jobset.JobSet) {
	t.Helper()
	pods, err := e.Pods(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		testobject.ChangeStatus(t, e.Client, &pods[i], func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })
	}
	testcluster.Eventually(t, js.Name+" to be completed", func(ctx context.Context) error {
		if err := e.Client.Get(ctx, client.ObjectKeyFromObject(js), js); err != nil {
			return err
		}
		apimeta.SetStatusCondition(&js.Status.Conditions, metav1.Condition{
			Type: string(jobset.JobSetCompleted), Status: metav1.ConditionTrue, Reason: "AllJobsCompleted", Message: "jobset completed successfully",
		})
		return e.Client.Status().Update(ctx, js)
	})
}

// usage waits until a ClusterQueue says that gpus GPUs of it are reserved, by
// reserving jobs, while pending wait.
func (e *env) usage(t *testing.T, queue string, gpus int64, reserving, pending int32) {
	t.Helper()
	testcluster.Eventually(t, fmt.Sprintf("ClusterQueue of %s at %d GPUs, %d reserving, %d pending", queue, gpus, reserving, pending), func(ctx context.Context) error {
		var cq kueue.ClusterQueue
		if err := e.Client.Get(ctx, client.ObjectKey{Name: e.namespace + "-" + queue}, &cq); err != nil {
			return err
		}
		if len(cq.Status.FlavorsReservation) != 1 {
			return fmt.Errorf("status is %+v", cq.Status)
		}
		got := cq.Status.FlavorsReservation[0].Resources[0].Total
		if got.Value() != gpus || cq.Status.ReservingWorkloads != reserving || cq.Status.PendingWorkloads != pending {
			return fmt.Errorf("it is at %s GPUs, %d reserving, %d pending", got.String(), cq.Status.ReservingWorkloads, cq.Status.PendingWorkloads)
		}
		return nil
	})
}

package integration

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/internal/testobject"
)

func gpus(n int64) corev1.ResourceList {
	return corev1.ResourceList{testcluster.GPU: *resource.NewQuantity(n, resource.DecimalSI)}
}

func init() {
	scenarios = append(scenarios,
		scenario{name: "a queue that does not exist is named, and the job starts when it comes", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			js := e.job("lost", "nowhere", 1, 1)
			e.Create(t, js)
			e.pending(t, js, "QueueNotFound", "LocalQueue "+e.namespace+"/nowhere does not exist")
			e.event(t, js, "Pending", "does not exist")
			e.Queue(t, e.namespace, "nowhere", 8)
			e.runs(t, js, 1)
		}},
		scenario{name: "a resource that the ClusterQueue does not cover is named", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			js := e.job("odd", "team", 1, 1)
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Resources.Limits["example.com/fpga"] = resource.MustParse("1")
			e.Create(t, js)
			e.pending(t, js, "NoMatchingFlavor", "example.com/fpga")
		}},
		scenario{name: "a gang larger than the cluster says so, holds nothing, and lets others run", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 1000)
			huge, small := e.job("huge", "team", 100, 8), e.job("small", "team", 1, 1)
			e.Create(t, huge)
			e.pending(t, huge, "ExceedsCluster", "")
			e.Create(t, small)
			e.runs(t, small, 1)
			e.usage(t, "team", 1, 1, 1)
		}},
		scenario{name: "a job without pods is refused with its count", run: func(t *testing.T, e *env) {
			e.Queue(t, e.namespace, "team", 8)
			js := e.job("empty", "team", 0, 1)
			e.Create(t, js)
			e.event(t, js, "Pending", "pending: ")
		}},
		scenario{name: "a job for another scheduler is refused with its name", run: func(t *testing.T, e *env) {
			e.Queue(t, e.namespace, "team", 8)
			js := e.job("foreign", "team", 1, 1)
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.SchedulerName = "volcano"
			e.Create(t, js)
			e.event(t, js, "Pending", "volcano")
		}},
		scenario{name: "a job whose pods name their node is refused with the node", run: func(t *testing.T, e *env) {
			e.Queue(t, e.namespace, "team", 8)
			js := e.job("pinned", "team", 1, 1)
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeName = "node-0"
			e.Create(t, js)
			e.event(t, js, "Pending", "names the node node-0 in spec.nodeName")
		}},
		scenario{name: "a pod whose JobSet does not exist is scheduled like any other", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: e.namespace, Name: "orphan",
					Labels: map[string]string{
						jobset.JobSetNameKey: "gone", jobset.JobSetUIDKey: "gone-1", jobset.ReplicatedJobNameKey: "node", jobset.JobIndexKey: "0",
					},
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "job-1", Controller: new(true)}},
				},
				Spec: corev1.PodSpec{SchedulerName: "muster", Containers: []corev1.Container{{Name: "c", Image: "example.com/x"}}},
			}
			e.Create(t, pod)
			testcluster.Eventually(t, "the orphan to be on a node", func(ctx context.Context) error {
				if err := e.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
					return err
				}
				if pod.Spec.NodeName == "" {
					return fmt.Errorf("it is not")
				}
				return nil
			})
		}},
		scenario{name: "a job deleted while it is pending, held or running leaves nothing behind", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			held := e.job("held", "team", 2, 4)
			e.jobs.Withhold("held-node-0-1", true)
			e.Create(t, held)
			e.usage(t, "team", 8, 1, 0)
			pending := e.job("pending", "team", 2, 4)
			e.Create(t, pending)
			e.pending(t, pending, "WaitingForQuota", "")
			e.remove(t, pending)
			e.usage(t, "team", 8, 1, 0)
			e.remove(t, held)
			e.usage(t, "team", 0, 0, 0)
			running := e.job("running", "team", 2, 4)
			e.Create(t, running)
			e.runs(t, running, 2)
			e.remove(t, running)
			e.usage(t, "team", 0, 0, 0)
			last := e.job("last", "team", 2, 4)
			e.Create(t, last)
			e.runs(t, last, 2)
		}},
		scenario{name: "a job deleted while half of it is on nodes leaves nothing behind", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			js := e.job("half", "team", 2, 4)
			e.Create(t, js)
			e.runs(t, js, 2)
			e.loseOne(t, js)
			e.usage(t, "team", 8, 1, 0)
			e.remove(t, js)
			e.usage(t, "team", 0, 0, 0)
			next := e.job("next", "team", 2, 4)
			e.Create(t, next)
			e.runs(t, next, 2)
		}},
		scenario{name: "a running job that loses its queue label goes on in its queue until it is gone, also over a restart", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			js, next := e.job("sly", "team", 2, 4), e.job("next", "team", 2, 4)
			e.Create(t, js)
			e.runs(t, js, 2)
			testobject.Change(t, e.Client, js, func(js *jobset.JobSet) { delete(js.Labels, "kueue.x-k8s.io/queue-name") })
			e.event(t, js, "QueueChangeIgnored", "runs on in queue team")
			e.Create(t, next)
			e.pending(t, next, "WaitingForQuota", "0 of 8 free")
			e.restart(t)
			e.usage(t, "team", 8, 1, 1)
			e.pending(t, next, "WaitingForQuota", "0 of 8 free")
			if err := e.Bound(t.Context(), js, 2); err != nil {
				t.Fatal(err)
			}
			e.remove(t, js)
			e.runs(t, next, 2)
		}},
		scenario{name: "a running job that comes to name another queue stays in its own until it is suspended", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			e.Queue(t, e.namespace, "other", 8)
			js := e.job("moves", "team", 2, 4)
			e.Create(t, js)
			e.runs(t, js, 2)
			change := func(edit func()) {
				t.Helper()
				testcluster.Eventually(t, "the change", func(ctx context.Context) error {
					if err := e.Client.Get(ctx, client.ObjectKeyFromObject(js), js); err != nil {
						return err
					}
					edit()
					return e.Client.Update(ctx, js)
				})
			}
			change(func() { js.Labels["kueue.x-k8s.io/queue-name"] = "other" })
			e.event(t, js, "QueueChangeIgnored", "names queue other now; the job runs on in queue team")
			e.usage(t, "team", 8, 1, 0)
			if err := e.Bound(t.Context(), js, 2); err != nil {
				t.Fatal(err)
			}
			change(func() { js.Spec.Suspend = new(true) })
			e.event(t, js, "Suspended", "it was admitted in queue team, and names queue other now")
			e.usage(t, "other", 8, 1, 0)
			e.usage(t, "team", 0, 0, 0)
			e.runs(t, js, 2)
		}},
		scenario{name: "a job that is stopped by spec.active frees its nodes, and runs again when it may", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			js, other := e.job("parked", "team", 2, 4), e.job("other", "team", 2, 4)
			e.Create(t, js)
			e.runs(t, js, 2)
			e.setActive(t, js, false)
			e.condition(t, js, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadDeactivated, "spec.active is false")
			e.Create(t, other)
			e.runs(t, other, 2)
			e.pending(t, js, "Deactivated", "spec.active is false")
			e.setActive(t, js, true)
			e.pending(t, js, "WaitingForQuota", "0 of 8 free")
			e.remove(t, other)
			e.runs(t, js, 2)
		}},
	)
}

// loseOne deletes one pod of a JobSet, and keeps it from being made again.
func (e *env) loseOne(t *testing.T, js *jobset.JobSet) {
	t.Helper()
	pods, err := e.Pods(t.Context(), js)
	if err != nil || len(pods) == 0 {
		t.Fatalf("%s has %d pods (%v)", js.Name, len(pods), err)
	}
	e.jobs.Withhold(pods[0].Name, true)
	if err := e.Client.Delete(t.Context(), &pods[0], client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	testcluster.Eventually(t, "the pod to be gone", func(ctx context.Context) error { return e.Bound(ctx, js, len(pods)-1) })
}

// setActive allows a job's Workload to be admitted, or stops it.
func (e *env) setActive(t *testing.T, job client.Object, active bool) {
	t.Helper()
	testcluster.Eventually(t, job.GetName()+" to be activated or not", func(ctx context.Context) error {
		wl, err := e.workload(ctx, job)
		if err != nil {
			return err
		}
		wl.Spec.Active = &active
		return e.Client.Update(ctx, wl)
	})
}

// remove deletes an object and waits until it is gone.
func (e *env) remove(t *testing.T, obj client.Object) {
	t.Helper()
	if err := e.Client.Delete(t.Context(), obj, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	e.isGone(t, obj)
}

// isGone waits until an object is gone.
func (e *env) isGone(t *testing.T, obj client.Object) {
	t.Helper()
	testcluster.Eventually(t, obj.GetName()+" to be gone", func(ctx context.Context) error {
		err := e.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		if err == nil {
			err = fmt.Errorf("it is there")
		}
		return client.IgnoreNotFound(err)
	})
}

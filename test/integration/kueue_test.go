package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	musterv1alpha1 "github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/internal/testobject"
	"github.com/muster-gpu/muster/workload"
)

func init() {
	byKueue := func(c *configv1alpha1.SchedulerConfiguration) { c.Quota.Provider = configv1alpha1.ProviderKueue }
	scenarios = append(scenarios,
		scenario{name: "where Kueue decides, what it admits is placed whole, and nothing else is touched", configure: byKueue, run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 64)
			waits, runs := e.job("waits", "team", 1, 4), e.job("runs", "team", 2, 4)
			e.Create(t, waits)
			e.Create(t, runs)
			e.admitAsKueue(t, runs)
			testcluster.Eventually(t, "both pods to be on nodes", func(ctx context.Context) error { return e.Bound(ctx, runs, 2) })

			big := e.job("big", "team", 3, 4)
			e.Create(t, big)
			e.admitAsKueue(t, big)
			e.event(t, big, "Replanning", "none of 3 pods have a node: ")
			testcluster.Eventually(t, "all pods of the gang without a place to be unschedulable", func(ctx context.Context) error {
				pods, err := e.Pods(ctx, big)
				if err != nil || len(pods) != 3 {
					return fmt.Errorf("%d pods (%v)", len(pods), err)
				}
				for i := range pods {
					_, c := podutil.GetPodCondition(&pods[i].Status, corev1.PodScheduled)
					if c == nil || c.Reason != corev1.PodReasonUnschedulable {
						return fmt.Errorf("pod %s says %+v", pods[i].Name, c)
					}
				}
				return nil
			})
			e.Node(t, "node-1", 16)
			testcluster.Eventually(t, "three pods to be on nodes", func(ctx context.Context) error { return e.Bound(ctx, big, 3) })

			if _, err := e.workload(t.Context(), waits); err == nil {
				t.Error("Muster made a Workload")
			}
			for _, js := range []*jobset.JobSet{runs, big} {
				wl, err := e.workload(t.Context(), js)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range wl.ManagedFields {
					if f.Manager != "integration.test" {
						t.Errorf("%s wrote to Workload %s", f.Manager, wl.Name)
					}
				}
			}
		}},
		scenario{name: "where Kueue decides, a job that does nothing with its GPUs is stopped by way of its Workload, once", configure: byKueue, run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 4)
			e.Node(t, "node-1", 4)
			e.Queue(t, e.namespace, "team", 8)
			queue := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "team"}}
			testobject.Change(t, e.Client, queue, func(q *kueue.LocalQueue) {
				q.Annotations = map[string]string{"muster.dev/idle-policy": "suspend-after=1h30m"}
			})
			js, works := e.job("notebook", "team", 1, 4), e.job("works", "team", 1, 4)
			for _, js := range []*jobset.JobSet{js, works} {
				e.Create(t, js)
				e.admitAsKueue(t, js)
				testcluster.Eventually(t, "the pod to be on a node", func(ctx context.Context) error { return e.Bound(ctx, js, 1) })
			}
			before, err := e.workload(t.Context(), js)
			if err != nil {
				t.Fatal(err)
			}
			idle := musterv1alpha1.GPUHolder{Verdict: musterv1alpha1.GPUIdle, Since: metav1.NewTime(time.Now().Add(-2 * time.Hour)).Rfc3339Copy(), Reclaimable: true}
			e.agentsSay(t, idle, js)
			e.event(t, js, "Suspended", "and its queue suspends such a job after 1h30m0s")
			testcluster.Eventually(t, "the Workload not to be active", func(ctx context.Context) error {
				wl, err := e.workload(ctx, js)
				if err == nil && (wl.Spec.Active == nil || *wl.Spec.Active) {
					err = errors.New("it is active")
				}
				return err
			})

			// Kueue does not get to it, and all are looked at again.
			stalled := idle
			stalled.Verdict, stalled.Reclaimable = musterv1alpha1.GPUStalled, false
			e.agentsSay(t, stalled, works)
			e.event(t, works, "GPUsStalled", "and get nothing done since ")
			wl, err := e.workload(t.Context(), js)
			if err != nil {
				t.Fatal(err)
			}
			if n := wl.Generation - before.Generation; n != 1 {
				t.Errorf("its spec has changed %d times", n)
			}
			if diff := cmp.Diff(before.Status, wl.Status); diff != "" {
				t.Errorf("its status (-as it was +as it is):\n%s", diff)
			}
			if n := e.told(t, js.UID, "Suspended"); n != 1 {
				t.Errorf("it was told %d times that it is suspended", n)
			}
		}},
		scenario{name: "what Kueue left in a job that it started holds no pod back that is made anew, and goes when the job is stopped", configure: byKueue, run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.labelNode(t, "node-0", "pool", "kueues")
			e.Queue(t, e.namespace, "team", 8)
			js := e.job("gang", "team", 2, 4)
			e.Create(t, js)
			original := js.Spec.ReplicatedJobs[0].Template.Spec.Template.DeepCopy()
			e.admitAsKueue(t, js, func(pods *corev1.PodTemplateSpec) {
				pods.Labels = map[string]string{"kueue.x-k8s.io/podset": "node"}
				pods.Annotations = map[string]string{"kueue.x-k8s.io/workload": "jobset-gang"}
				pods.Spec.NodeSelector = map[string]string{"pool": "kueues"}
				pods.Spec.Tolerations = []corev1.Toleration{{Key: "pool", Operator: corev1.TolerationOpExists}}
				pods.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}}
			})
			testcluster.Eventually(t, "two pods to be let go as Kueue does", func(ctx context.Context) error {
				pods, err := e.Pods(ctx, js)
				if err != nil || len(pods) != 2 {
					return fmt.Errorf("%d pods (%v)", len(pods), err)
				}
				for i := range pods {
					pods[i].Spec.SchedulingGates = nil
					if err := e.Client.Update(ctx, &pods[i]); err != nil {
						return err
					}
				}
				return nil
			})
			testcluster.Eventually(t, "both pods to be on nodes", func(ctx context.Context) error { return e.Bound(ctx, js, 2) })
			e.stop()
			e.config.Quota.Provider = configv1alpha1.ProviderNative
			e.start(t)
			e.usage(t, "team", 8, 1, 0)
			pods, err := e.Pods(t.Context(), js)
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Client.Delete(t.Context(), &pods[0], client.GracePeriodSeconds(0)); err != nil {
				t.Fatal(err)
			}
			testcluster.Eventually(t, "the pod that is made anew to be on its node", func(ctx context.Context) error {
				now, err := e.Pods(ctx, js)
				if err == nil && len(now) == 2 && (now[0].UID == pods[0].UID || now[1].UID == pods[0].UID) {
					err = errors.New("the deleted pod is there")
				}
				return errors.Join(err, e.Bound(ctx, js, 2))
			})

			e.setActive(t, js, false)
			e.pending(t, js, "Deactivated", "")
			if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(js), js); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(original, &js.Spec.ReplicatedJobs[0].Template.Spec.Template); diff != "" {
				t.Errorf("the pod template (-as it was +as it is):\n%s", diff)
			}
			e.setActive(t, js, true)
			e.runs(t, js, 2)
		}},
		scenario{name: "a queue that is deleted stays until its jobs have ended, and its flavor until then", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			runs, waits := e.job("runs", "team", 1, 8), e.job("waits", "team", 1, 8)
			e.Create(t, runs)
			e.runs(t, runs, 1)
			cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: e.namespace + "-team"}}
			flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: cq.Name}}
			for _, obj := range []client.Object{flavor, cq} {
				testcluster.Eventually(t, "the finalizer", func(ctx context.Context) error {
					if err := e.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
						return err
					}
					if f := obj.GetFinalizers(); len(f) != 1 || f[0] != kueue.ResourceInUseFinalizerName {
						return fmt.Errorf("the finalizers are %v", f)
					}
					return nil
				})
				if err := e.Client.Delete(t.Context(), obj); err != nil {
					t.Fatal(err)
				}
			}
			testcluster.Eventually(t, "the queue to be terminating", func(ctx context.Context) error {
				if err := e.Client.Get(ctx, client.ObjectKeyFromObject(cq), cq); err != nil {
					return err
				}
				if c := apimeta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueActive); c == nil || c.Reason != kueue.ClusterQueueActiveReasonTerminating {
					return fmt.Errorf("it says %+v", c)
				}
				return nil
			})
			e.Create(t, waits)
			e.condition(t, waits, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "QueueInactive", "it is being deleted")
			if err := e.Bound(t.Context(), runs, 1); err != nil {
				t.Errorf("the running job: %v", err)
			}
			e.finish(t, runs)
			for _, obj := range []client.Object{cq, flavor} {
				testcluster.Eventually(t, fmt.Sprintf("%T to be gone", obj), func(ctx context.Context) error {
					err := e.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj)
					if err == nil {
						err = errors.New("it is there")
					}
					return client.IgnoreNotFound(err)
				})
			}
		}},
		scenario{name: "a Workload with Kueue's finalizer is gone when its job is deleted", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			js := e.job("runs", "team", 1, 8)
			e.Create(t, js)
			e.runs(t, js, 1)
			wl, err := e.workload(t.Context(), js)
			if err != nil {
				t.Fatal(err)
			}
			testcluster.Eventually(t, "the finalizer to be written", func(ctx context.Context) error {
				if err := e.Client.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
					return err
				}
				wl.Finalizers = []string{kueue.ResourceInUseFinalizerName}
				return e.Client.Update(ctx, wl)
			})
			if err := e.Client.Delete(t.Context(), js); err != nil {
				t.Fatal(err)
			}
			testcluster.Eventually(t, "the Workload to be gone", func(ctx context.Context) error {
				if err := e.Client.Get(ctx, client.ObjectKeyFromObject(wl), wl); !apierrors.IsNotFound(err) {
					return fmt.Errorf("it is %+v (%v)", wl.ObjectMeta, err)
				}
				return nil
			})
		}},
	)
}

// labelNode gives a node a label.
func (e *env) labelNode(t *testing.T, name, key, value string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, key, value))
	if err := e.Client.Patch(t.Context(), node, patch); err != nil {
		t.Fatalf("labelling node %s: %v", name, err)
	}
}

// admitAsKueue does what Kueue's manager does with a job: it makes the Workload,
// admits it, without naming nodes, and resumes the job with what is injected.
func (e *env) admitAsKueue(t *testing.T, js *jobset.JobSet, inject ...func(*corev1.PodTemplateSpec)) {
	t.Helper()
	count, gpus := *js.Spec.ReplicatedJobs[0].Template.Spec.Parallelism, js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Resources.Limits[testcluster.GPU]
	gpus.Mul(int64(count))
	wl := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: js.Namespace,
			Name: workload.WorkloadName(workload.Owner{
				GroupVersionKind: jobset.SchemeGroupVersion.WithKind("JobSet"), NamespacedName: client.ObjectKeyFromObject(js), UID: js.UID,
			}),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: jobset.SchemeGroupVersion.String(), Kind: "JobSet", Name: js.Name, UID: js.UID, Controller: new(true),
			}},
		},
		Spec: kueue.WorkloadSpec{QueueName: "team", PodSets: []kueue.PodSet{{
			Name: "node", Count: count, Template: js.Spec.ReplicatedJobs[0].Template.Spec.Template,
		}}},
	}
	e.Create(t, wl)
	flavor := kueue.ResourceFlavorReference(e.namespace + "-team")
	wl.Status.Admission = &kueue.Admission{
		ClusterQueue: kueue.ClusterQueueReference(flavor),
		PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "node", Count: &count,
			Flavors:       map[corev1.ResourceName]kueue.ResourceFlavorReference{testcluster.GPU: flavor},
			ResourceUsage: corev1.ResourceList{testcluster.GPU: gpus},
		}},
	}
	for _, kind := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind})
	}
	if err := e.Client.Status().Update(t.Context(), wl); err != nil {
		t.Fatal(err)
	}
	testcluster.Eventually(t, js.Name+" to be resumed", func(ctx context.Context) error {
		if err := e.Client.Get(ctx, client.ObjectKeyFromObject(js), js); err != nil {
			return err
		}
		for _, f := range inject {
			f(&js.Spec.ReplicatedJobs[0].Template.Spec.Template)
		}
		js.Spec.Suspend = new(false)
		return e.Client.Update(ctx, js)
	})
}

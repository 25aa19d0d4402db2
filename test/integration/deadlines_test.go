package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/testcluster"
)

func init() {
	scenarios = append(scenarios,
		scenario{name: "a job of which one pod is never ready is released whole, and has started when all are", configure: readyWithin(3 * time.Second), run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			js := e.job("gang", "team", 4, 2)
			e.Create(t, js)
			e.runs(t, js, 4)
			e.condition(t, js, kueue.WorkloadPodsReady, metav1.ConditionFalse, kueue.WorkloadWaitForStart, "")
			testcluster.Eventually(t, "the job to be released with three ready pods", func(ctx context.Context) error {
				if err := e.setReady(ctx, js, true, 3); client.IgnoreNotFound(err) != nil {
					return err
				}
				return e.evicted(ctx, js, "only 3 of 4 pods became ready within 3s")
			})
			e.event(t, js, "Suspended", "only 3 of 4 pods became ready within 3s")
			e.startedAgain(t, js)
			wl, err := e.workload(t.Context(), js)
			if err != nil || wl.Status.RequeueState != nil {
				t.Errorf("failed starts still count: %+v (%v)", wl, err)
			}
		}},
		scenario{name: "a job whose pods are unready later is left alone, also over a restart", configure: readyWithin(3 * time.Second), run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			js := e.job("steady", "team", 2, 2)
			e.Create(t, js)
			e.startedAgain(t, js)
			e.ready(t, js, false, 2)
			e.restart(t)
			// By the time another job has run out of its time, this one has too.
			other := e.job("never", "team", 1, 2)
			e.Create(t, other)
			e.condition(t, other, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByPodsReadyTimeout, "none of 1 pods became ready")
			e.condition(t, js, kueue.WorkloadPodsReady, metav1.ConditionTrue, kueue.WorkloadStarted, "")
			e.runs(t, js, 2)
		}},
		scenario{name: "a job that has used up its maximum execution time is deactivated, also over a restart, and has it anew when it is activated", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			js, next := e.job("bounded", "team", 2, 4), e.job("next", "team", 2, 4)
			js.Labels["kueue.x-k8s.io/max-exec-time-seconds"] = "6"
			e.Create(t, js)
			e.condition(t, js, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "")
			e.restart(t)
			e.condition(t, js, kueue.WorkloadEvicted, metav1.ConditionTrue, "DeactivatedDueToMaximumExecutionTimeExceeded", "maximum execution time of 6s")
			e.pending(t, js, "Deactivated", "spec.active is false, because it has used up its maximum execution time of 6s")
			e.Create(t, next)
			e.runs(t, next, 2)
			e.remove(t, next)
			e.setActive(t, js, true)
			e.condition(t, js, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "")
			e.condition(t, js, kueue.WorkloadEvicted, metav1.ConditionTrue, "DeactivatedDueToMaximumExecutionTimeExceeded", "maximum execution time of 6s")
		}},
		scenario{name: "the time of a job that is stopped is kept for its next admission", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			js := e.job("stopped", "team", 1, 4)
			js.Labels["kueue.x-k8s.io/max-exec-time-seconds"] = "3600"
			e.Create(t, js)
			e.runs(t, js, 1)
			e.setActive(t, js, false)
			e.pending(t, js, "Deactivated", "spec.active is false")
			wl, err := e.workload(t.Context(), js)
			if err != nil || wl.Status.AccumulatedPastExecutionTimeSeconds == nil || wl.Spec.MaximumExecutionTimeSeconds == nil || *wl.Spec.MaximumExecutionTimeSeconds != 3600 {
				t.Errorf("the Workload is %+v (%v)", wl, err)
			}
		}},
		scenario{name: "a maximum execution time that is no number is refused with its value", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			js := e.job("odd", "team", 1, 1)
			js.Labels["kueue.x-k8s.io/max-exec-time-seconds"] = "1h"
			e.Create(t, js)
			e.event(t, js, "Pending", `pending: the label kueue.x-k8s.io/max-exec-time-seconds is "1h"`)
			e.usage(t, "team", 0, 0, 0)
		}},
		scenario{name: "a job of which a pod cannot be created says who refuses it", configure: func(c *configv1alpha1.SchedulerConfiguration) {
			c.Admission.StartTimeout.Duration = 4 * time.Second
		}, run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			js := e.job("gang", "team", 4, 2)
			e.jobs.Withhold("gang-node-0-3", true)
			e.Create(t, js)
			e.condition(t, js, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "")
			refused := &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Namespace: e.namespace, Name: "refused"},
				InvolvedObject: corev1.ObjectReference{APIVersion: jobset.SchemeGroupVersion.String(), Kind: "JobSet", Namespace: e.namespace, Name: js.Name, UID: js.UID},
				Reason:         "FailedCreate", Message: "Error creating: exceeded quota: team-quota", Type: corev1.EventTypeWarning,
			}
			e.Create(t, refused)
			testcluster.Eventually(t, "the job to be released with the reason", func(ctx context.Context) error {
				// Who is refused tries again, and says so.
				refused.LastTimestamp = metav1.Now()
				if err := e.Client.Update(ctx, refused); err != nil {
					return err
				}
				return e.evicted(ctx, js, "a pod could not be created: exceeded quota: team-quota")
			})
			e.event(t, js, "Suspended", "none of 4 pods came onto their nodes in 4s")
			e.jobs.Withhold("gang-node-0-3", false)
			e.runs(t, js, 4)
		}},
	)
}

func readyWithin(d time.Duration) func(*configv1alpha1.SchedulerConfiguration) {
	return func(c *configv1alpha1.SchedulerConfiguration) { c.Admission.ReadyTimeout.Duration = d }
}

// evicted is nil once a JobSet is evicted for not starting; part must be in the
// message.
func (e *env) evicted(ctx context.Context, js *jobset.JobSet, part string) error {
	wl, err := e.workload(ctx, js)
	if err != nil {
		return err
	}
	c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != kueue.WorkloadEvictedByPodsReadyTimeout || !strings.Contains(c.Message, part) {
		return fmt.Errorf("the condition is %+v", c)
	}
	return nil
}

// ready has n pods of a JobSet be ready, or no longer, as their kubelets would.
func (e *env) ready(t *testing.T, js *jobset.JobSet, is bool, n int) {
	t.Helper()
	testcluster.Eventually(t, fmt.Sprintf("%d pods of %s to be ready: %v", n, js.Name, is), func(ctx context.Context) error {
		return e.setReady(ctx, js, is, n)
	})
}

func (e *env) setReady(ctx context.Context, js *jobset.JobSet, is bool, n int) error {
	pods, err := e.Pods(ctx, js)
	if err != nil || len(pods) < n {
		return fmt.Errorf("%d pods are there (%v)", len(pods), err)
	}
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	for i := range pods[:n] {
		was := pods[i].DeepCopy()
		podutil.UpdatePodCondition(&pods[i].Status, &corev1.PodCondition{Type: corev1.PodReady, Status: status})
		if err := e.Client.Status().Patch(ctx, &pods[i], client.StrategicMergeFrom(was)); err != nil {
			return err
		}
	}
	return nil
}

// startedAgain makes the pods of a JobSet ready until its Workload says that it
// has started; on a slow machine that may take more than one start.
func (e *env) startedAgain(t *testing.T, js *jobset.JobSet) {
	t.Helper()
	pods := int(*js.Spec.ReplicatedJobs[0].Template.Spec.Parallelism)
	testcluster.Eventually(t, js.Name+" to have started", func(ctx context.Context) error {
		if err := e.Bound(ctx, js, pods); err != nil {
			return err
		}
		if err := e.setReady(ctx, js, true, pods); err != nil {
			return err
		}
		wl, err := e.workload(ctx, js)
		if err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadPodsReady) {
			return fmt.Errorf("its conditions are %+v", wl.Status.Conditions)
		}
		return nil
	})
}

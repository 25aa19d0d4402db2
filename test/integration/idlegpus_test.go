package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/agent/publish"
	musterv1alpha1 "github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/internal/testobject"
)

func init() {
	scenarios = append(scenarios,
		scenario{name: "a job that does nothing with its GPUs is told so once, also by two schedulers, and goes before one that works", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Node(t, "node-1", 8)
			e.preempting(t, "team", 16)
			idle := e.job("idle", "team", 1, 8)
			e.Create(t, idle)
			e.runs(t, idle, 1)
			works := e.job("works", "team", 1, 8)
			e.Create(t, works)
			e.runs(t, works, 1)
			hourAgo := metav1.NewTime(time.Now().Add(-time.Hour)).Rfc3339Copy()
			e.agentsSay(t, musterv1alpha1.GPUHolder{Verdict: musterv1alpha1.GPUIdle, Since: hourAgo, Reclaimable: true}, idle)
			e.agentsSay(t, musterv1alpha1.GPUHolder{Verdict: musterv1alpha1.GPUActive, Since: hourAgo}, works)
			none := "none of its 8 GPUs has been used since " + hourAgo.UTC().Format(time.RFC3339)
			e.condition(t, idle, "muster.dev/Idle", metav1.ConditionTrue, "Idle", none)
			e.event(t, idle, "GPUsIdle", none)

			e.restart(t)
			e.agentsSay(t, musterv1alpha1.GPUHolder{Verdict: musterv1alpha1.GPUStalled, Since: hourAgo}, works)
			e.event(t, works, "GPUsStalled", "kernels run on 8 of its 8 GPUs, and get nothing done since ")
			if n := e.told(t, idle.UID, "GPUsIdle"); n != 1 {
				t.Errorf("it was told %d times that it is idle", n)
			}

			e.agentsSay(t, musterv1alpha1.GPUHolder{Verdict: musterv1alpha1.GPUIdle, Since: hourAgo, Reclaimable: true}, idle)
			// It has run for longer, and would lose more, if it had done anything.
			urgent := e.urgent(t, "urgent", 1, 8)
			e.preempted(t, []*jobset.JobSet{idle, works}, urgent, 1)
			e.condition(t, idle, kueue.WorkloadPreempted, metav1.ConditionTrue, kueue.InClusterQueueReason, "it is idle: "+none)
			e.runs(t, urgent, 1)
			e.condition(t, idle, "muster.dev/Idle", metav1.ConditionFalse, "Stopped", "Previously: "+none)
		}},
		scenario{name: "a job that does nothing with its GPUs is suspended where its queue says so, and its author starts it again", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			queue := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "team"}}
			says := func(policy string) {
				testobject.Change(t, e.Client, queue, func(q *kueue.LocalQueue) {
					q.Annotations = map[string]string{"muster.dev/idle-policy": policy}
				})
			}
			says("suspend-after=soon")
			e.eventOn(t, queue.Name, queue.UID, "InvalidAnnotation", `annotation muster.dev/idle-policy is "suspend-after=soon"`)
			js := e.job("notebook", "team", 1, 8)
			js.Annotations = map[string]string{"muster.dev/idle-exempt-until": "2100-01-01T00:00:00Z"}
			e.Create(t, js)
			e.runs(t, js, 1)
			says("suspend-after=1h30m")
			idle := musterv1alpha1.GPUHolder{Verdict: musterv1alpha1.GPUIdle, Since: metav1.NewTime(time.Now().Add(-2 * time.Hour)).Rfc3339Copy(), Reclaimable: true}
			e.agentsSay(t, idle, js)
			e.event(t, js, "GPUsIdle", "; its queue suspends such a job after 1h30m0s")
			e.runs(t, js, 1)

			// It has asked to be left alone until now.
			testobject.Change(t, e.Client, js, func(js *jobset.JobSet) { delete(js.Annotations, "muster.dev/idle-exempt-until") })
			e.condition(t, js, kueue.WorkloadEvicted, metav1.ConditionTrue, "DeactivatedDueToIdle", "and its queue suspends such a job after 1h30m0s")
			e.event(t, js, "Suspended", "and its queue suspends such a job after 1h30m0s")
			e.condition(t, js, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "Deactivated", "spec.active is false, because none of its 8 GPUs has been used since ")

			wl, err := e.workload(t.Context(), js)
			if err != nil {
				t.Fatal(err)
			}
			testobject.Change(t, e.Client, wl, func(wl *kueue.Workload) { wl.Spec.Active = new(true) })
			e.runs(t, js, 1)
			idle.Since = metav1.NewTime(time.Now().Add(-time.Hour)).Rfc3339Copy()
			e.agentsSay(t, idle, js)
			e.condition(t, js, "muster.dev/Idle", metav1.ConditionTrue, "Idle", idle.Since.UTC().Format(time.RFC3339))
			e.runs(t, js, 1)
		}},
		scenario{name: "pods of no queue are told once that their GPUs idle, on what they were made for", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			template := corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec:       *e.job("x", "team", 1, 1).Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.DeepCopy(),
			}
			template.Spec.RestartPolicy = corev1.RestartPolicyAlways
			selector := &metav1.LabelSelector{MatchLabels: template.Labels}
			named := func(name string, controller ...metav1.OwnerReference) metav1.ObjectMeta {
				return metav1.ObjectMeta{Namespace: e.namespace, Name: name, Labels: template.Labels, OwnerReferences: controller}
			}
			web := &appsv1.Deployment{ObjectMeta: named("web"), Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}}
			e.Create(t, web)
			replicas := &appsv1.ReplicaSet{
				ObjectMeta: named("web-1", *metav1.NewControllerRef(web, appsv1.SchemeGroupVersion.WithKind("Deployment"))),
				Spec:       appsv1.ReplicaSetSpec{Selector: selector, Template: template},
			}
			e.Create(t, replicas)
			template.Spec.NodeName = "node-0"
			replica := &corev1.Pod{ObjectMeta: named("web-1-a", *metav1.NewControllerRef(replicas, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))), Spec: template.Spec}
			bare := &corev1.Pod{ObjectMeta: named("bare"), Spec: template.Spec}
			e.Create(t, replica)
			e.Create(t, bare)
			hourAgo := metav1.NewTime(time.Now().Add(-time.Hour)).Rfc3339Copy()
			say := func(of map[*corev1.Pod]musterv1alpha1.GPUVerdict) {
				var devices []musterv1alpha1.GPUDevice
				for pod, verdict := range of {
					devices = append(devices, musterv1alpha1.GPUDevice{UUID: "GPU-" + pod.Name, Minor: int32(len(devices)), Holders: []musterv1alpha1.GPUHolder{
						{Namespace: pod.Namespace, Pod: pod.Name, PodUID: string(pod.UID), Verdict: verdict, Since: hourAgo},
					}})
				}
				e.agentSays(t, "node-0", devices...)
			}
			say(map[*corev1.Pod]musterv1alpha1.GPUVerdict{replica: musterv1alpha1.GPUIdle, bare: musterv1alpha1.GPUIdle})
			e.eventOn(t, web.Name, web.UID, "GPUsIdle", "its GPU has not been used since "+hourAgo.UTC().Format(time.RFC3339))
			e.eventOn(t, bare.Name, bare.UID, "GPUsIdle", "its GPU has not been used since "+hourAgo.UTC().Format(time.RFC3339))

			e.restart(t)
			say(map[*corev1.Pod]musterv1alpha1.GPUVerdict{replica: musterv1alpha1.GPUIdle, bare: musterv1alpha1.GPUStalled})
			e.eventOn(t, bare.Name, bare.UID, "GPUsStalled", "and get nothing done since ")
			for name, uid := range map[string]types.UID{"the Deployment": web.UID, "the bare pod": bare.UID} {
				if n := e.told(t, uid, "GPUsIdle"); n != 1 {
					t.Errorf("%s was told %d times that it is idle", name, n)
				}
			}
			if n := e.told(t, replicas.UID, "GPUsIdle") + e.told(t, replica.UID, "GPUsIdle"); n != 0 {
				t.Errorf("the ReplicaSet or its pod was told %d times", n)
			}
		}},
		scenario{name: "a GPU that is unhealthy is given to nobody until it is healthy again", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 16)
			devices := make([]musterv1alpha1.GPUDevice, 8)
			for i := range devices {
				devices[i].UUID, devices[i].Minor = fmt.Sprintf("GPU-%d", i), int32(i)
			}
			devices[3].Unhealthy = []string{"Xid 79"}
			e.agentSays(t, "node-0", devices...)
			e.Node(t, "node-1", 8)
			first := e.job("first", "team", 1, 8)
			e.Create(t, first)
			e.runs(t, first, 1)
			second := e.job("second", "team", 1, 8)
			e.Create(t, second)
			e.pending(t, second, "NoPlacement", "; 1 node has a GPU that is unhealthy")
			devices[3].Unhealthy = nil
			e.agentSays(t, "node-0", devices...)
			e.runs(t, second, 1)
			pods, err := e.Pods(t.Context(), second)
			if err != nil || pods[0].Spec.NodeName != "node-0" {
				t.Errorf("it runs on %s (%v)", pods[0].Spec.NodeName, err)
			}
		}},
	)
}

// agentsSay has the agents of the nodes on which a job runs say the same of all of its
// GPUs, and of no others.
func (e *env) agentsSay(t *testing.T, says musterv1alpha1.GPUHolder, js *jobset.JobSet) {
	t.Helper()
	pods, err := e.Pods(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	devices := map[string][]musterv1alpha1.GPUDevice{}
	for _, p := range pods {
		says.Namespace, says.Pod, says.PodUID = p.Namespace, p.Name, string(p.UID)
		gpus := p.Spec.Containers[0].Resources.Limits[testcluster.GPU]
		for range gpus.Value() {
			n := len(devices[p.Spec.NodeName])
			devices[p.Spec.NodeName] = append(devices[p.Spec.NodeName], musterv1alpha1.GPUDevice{
				UUID: fmt.Sprintf("GPU-%d", n), Minor: int32(n), Holders: []musterv1alpha1.GPUHolder{says},
			})
		}
	}
	for node, of := range devices {
		e.agentSays(t, node, of...)
	}
}

// agentSays has the agent of a node say this of its GPUs, now.
func (e *env) agentSays(t *testing.T, node string, devices ...musterv1alpha1.GPUDevice) {
	t.Helper()
	objects, err := dynamic.NewForConfig(e.Config)
	if err != nil {
		t.Fatal(err)
	}
	status := musterv1alpha1.GPUNodeStatus{LastHeartbeat: metav1.Now(), Devices: devices}
	if err := (publish.Applier{Client: objects}).Write(t.Context(), node, status); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := e.Client.Delete(context.Background(), &musterv1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: node}})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// told is how often an event was told of an object.
func (e *env) told(t *testing.T, uid types.UID, why string) (times int32) {
	t.Helper()
	var list eventsv1.EventList
	if err := e.Client.List(t.Context(), &list, client.InNamespace(e.namespace)); err != nil {
		t.Fatal(err)
	}
	for _, ev := range list.Items {
		if ev.Regarding.UID == uid && ev.Reason == why && ev.Type == corev1.EventTypeWarning {
			times += max(1, ev.DeprecatedCount)
		}
	}
	return times
}

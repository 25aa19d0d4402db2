package integration

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/internal/testobject"
)

// created is what the API server has made of a new object.
type created struct {
	Queue     string
	Suspended bool
	Scheduler string
}

// TestWebhookDefaults has a namespace with a default queue, nlp, and one
// without, vision. The last part ends the webhook.
func TestWebhookDefaults(t *testing.T) {
	e := startWebhook(t)
	e.Namespace(t, "vision")
	e.Create(t, &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: "nlp", Name: "default"},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: "cq"},
	})

	tests := map[string]struct {
		object client.Object
		want   created
	}{
		"a TrainJob of no queue goes to the default one": {
			trainJob("free", ""), created{Queue: "default", Suspended: true}},
		"a TrainJob that names a queue stays with it": {
			trainJob("queued", "q"), created{Queue: "q", Suspended: true}},
		"a TrainJob of a namespace without a default queue is left": {
			in("vision", trainJob("free", "")), created{}},
		"a Job with GPUs goes to the default queue": {
			batchJob("gpus", 1), created{Queue: "default", Suspended: true, Scheduler: "muster"}},
		"a Job of a CronJob goes there too": {
			controlledBy(batchJob("cron", 1), "batch/v1", "CronJob"), created{Queue: "default", Suspended: true, Scheduler: "muster"}},
		"a Job without GPUs is left": {
			batchJob("cpus", 0), created{Scheduler: "default-scheduler"}},
		"a Job with GPUs of a namespace without a default queue is left": {
			in("vision", batchJob("gpus", 1)), created{Scheduler: "default-scheduler"}},
		"a Job of a JobSet is left": {
			controlledBy(batchJob("part", 1), "jobset.x-k8s.io/v1alpha2", "JobSet"), created{Scheduler: "default-scheduler"}},
		"a JobSet with GPUs goes to the default queue": {
			jobSetWith("gpus", "nvidia.com/gpu"), created{Queue: "default", Suspended: true, Scheduler: "muster"}},
		"a JobSet without GPUs is left": {
			jobSetWith("cpus", "cpu"), created{}},
		"a queued pod gets the scheduler's name": {
			barePod("queued", "q", ""), created{Queue: "q", Scheduler: "muster"}},
		"a queued pod that names another scheduler keeps it": {
			barePod("other", "q", "volcano"), created{Queue: "q", Scheduler: "volcano"}},
		"a pod of no queue is left": {
			barePod("free", "", ""), created{Scheduler: "default-scheduler"}},
		"a queued pod of an exempt namespace is left": {
			in("kube-system", barePod("queued", "q", "")), created{Queue: "q", Scheduler: "default-scheduler"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			e.Create(t, tc.object)
			if diff := cmp.Diff(tc.want, readCreated(t, tc.object)); diff != "" {
				t.Errorf("created (-want +got):\n%s", diff)
			}
		})
	}

	t.Run("the JobSet of a TrainJob in the default queue is stamped and gets no label", func(t *testing.T) {
		owner := trainJob("owner", "")
		e.Create(t, owner)
		js := childJobSet(owner)
		e.apply(t, js, "trainer")
		if diff := cmp.Diff(map[string]string{"launcher": "muster", "node": "volcano"}, schedulerNames(t, js)); diff != "" {
			t.Errorf("scheduler names (-want +got):\n%s", diff)
		}
		if queue := js.GetLabels()["kueue.x-k8s.io/queue-name"]; queue != "" {
			t.Errorf("it is in queue %s", queue)
		}
	})
	t.Run("without the webhook everything is created as it was written", func(t *testing.T) {
		e.stop()
		for name, object := range map[string]client.Object{
			"TrainJob": trainJob("late", ""), "Job": batchJob("late", 1), "pod": barePod("late", "q", ""),
		} {
			want := readCreated(t, object)
			if name != "TrainJob" {
				want.Scheduler = "default-scheduler"
			}
			e.Create(t, object)
			if diff := cmp.Diff(want, readCreated(t, object)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	})
}

// TestOthersDoNotNoticeThatTheWebhookIsGone makes every call to the webhook that
// is tried a refusal: what is none of its business must not be tried.
func TestOthersDoNotNoticeThatTheWebhookIsGone(t *testing.T) {
	e := startWebhook(t)
	e.stop()
	registration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: e.registration.Name}}
	testobject.Change(t, e.Client, registration, func(registration *admissionregistrationv1.MutatingWebhookConfiguration) {
		for i := range registration.Webhooks {
			registration.Webhooks[i].FailurePolicy = new(admissionregistrationv1.Fail)
		}
	})
	testcluster.Eventually(t, "calls to be refused", func(ctx context.Context) error {
		if err := e.Client.Create(ctx, barePod("probe", "q", ""), client.DryRunAll); err == nil {
			return fmt.Errorf("a queued pod is created")
		}
		return nil
	})
	for _, object := range []client.Object{
		withoutGPUs(barePod("free", "", "")), withoutGPUs(barePod("named", "", "muster")), withoutGPUs(barePod("member", "q", "muster")), batchJob("cpus", 0), jobSetWith("cpus", "cpu"),
		controlledBy(batchJob("part", 1), "jobset.x-k8s.io/v1alpha2", "JobSet"),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "nlp", Name: "c", Labels: map[string]string{"kueue.x-k8s.io/queue-name": "q"}}},
	} {
		if err := e.Client.Create(t.Context(), object); err != nil {
			t.Errorf("%T %s: %v", object, object.GetName(), err)
		}
	}
}

func withoutGPUs(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	return pod
}

func in(namespace string, object client.Object) client.Object {
	object.SetNamespace(namespace)
	return object
}

func controlledBy(object client.Object, apiVersion, kind string) client.Object {
	object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "owner", UID: "u", Controller: new(true)}})
	return object
}

func train(gpus int64) corev1.PodSpec {
	c := corev1.Container{Name: "train", Image: "example.com/train"}
	if gpus > 0 {
		c.Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI)}
	}
	return corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{c}}
}

func batchJob(name string, gpus int64) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "nlp", Name: name},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: train(gpus)}},
	}
}

// barePod is a pod in namespace nlp that nobody owns; it names no queue and no
// scheduler where these are empty.
func barePod(name, queue, scheduler string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "nlp", Name: name}, Spec: train(1)}
	pod.Spec.SchedulerName = scheduler
	if queue != "" {
		pod.Labels = map[string]string{"kueue.x-k8s.io/queue-name": queue}
	}
	return pod
}

// jobSetWith is a JobSet in namespace nlp whose pods ask for one of a resource.
func jobSetWith(name, asks string) *unstructured.Unstructured {
	pod := map[string]any{"containers": []any{map[string]any{
		"name": "node", "image": "example.com/train", "resources": map[string]any{"limits": map[string]any{asks: "1"}},
	}}}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
		"metadata": map[string]any{"namespace": "nlp", "name": name},
		"spec": map[string]any{"replicatedJobs": []any{
			map[string]any{"name": "node", "template": map[string]any{"spec": map[string]any{"template": map[string]any{"spec": pod}}}},
		}},
	}}
}

// readCreated reads the object as the API server has returned it.
func readCreated(t *testing.T, object client.Object) created {
	t.Helper()
	got := created{Queue: object.GetLabels()["kueue.x-k8s.io/queue-name"]}
	switch o := object.(type) {
	case *corev1.Pod:
		got.Scheduler = o.Spec.SchedulerName
	case *batchv1.Job:
		got.Suspended = o.Spec.Suspend != nil && *o.Spec.Suspend
		got.Scheduler = o.Spec.Template.Spec.SchedulerName
	case *unstructured.Unstructured:
		got.Suspended, _, _ = unstructured.NestedBool(o.Object, "spec", "suspend")
		if o.GetKind() == "JobSet" {
			got.Scheduler = schedulerNames(t, o)["node"]
		}
	default:
		t.Fatalf("a %T", object)
	}
	return got
}

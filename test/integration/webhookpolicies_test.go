package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/agent/publish"
	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	musterv1alpha1 "github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/internal/testobject"
)

// strict are the library's policies as a strict administrator has them.
func strict(config *configv1alpha1.WebhookConfiguration) {
	config.Policies.Audit.Interval.Duration = time.Second
	config.Policies.Library = map[string]configv1alpha1.LibraryPolicy{
		"pinned-images": {
			Level: "deny", Parameters: map[string]any{"require": "version"},
			Exempt: configv1alpha1.LibraryExemptions{Namespaces: []string{"sandbox-*"}},
		},
		"counted-gpus":       {Level: "deny"},
		"notebook-gpus":      {Level: "deny", Parameters: map[string]any{"max": 4}},
		"notebook-idle-gpus": {Level: "deny"},
	}
}

// TestWebhookPolicies runs its parts against one webhook; the last one ends it.
func TestWebhookPolicies(t *testing.T) {
	e := startWebhook(t, strict)
	e.Namespace(t, "sandbox-1")
	for apiVersion, kind := range map[string]string{"trainer.kubeflow.org/v1alpha1": "TrainingRuntime", "kubeflow.org/v1": "Notebook", "kubeflow.org/v1beta1": "Experiment", "scheduling.x-k8s.io/v1alpha1": "PodGroup"} {
		e.AddKind(t, schema.FromAPIVersionAndKind(apiVersion, kind))
	}
	e.Create(t, runtimeWith("torch", "repo/torch:latest"))
	e.askPolicies(t)

	t.Run("the tag latest is found in init containers, ephemeral containers and runtimes", func(t *testing.T) {
		init := barePod("init", "", "")
		init.Spec.Containers[0].Image = "repo/x:v1"
		init.Spec.InitContainers = []corev1.Container{{Name: "fetch", Image: "repo/x:latest"}}
		e.denied(t, e.Client.Create(t.Context(), init), `[muster-pinned-images] initContainer fetch of pod has the image "repo/x:latest"`)

		pod := barePod("runs", "", "")
		pod.Spec.Containers[0].Image = "repo/x:v1"
		e.Create(t, pod)
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: "repo/debug:latest", ImagePullPolicy: corev1.PullAlways, TerminationMessagePolicy: corev1.TerminationMessageReadFile}}}
		e.denied(t, e.Client.SubResource("ephemeralcontainers").Update(t.Context(), pod), `ephemeralContainer debug of pod has the image "repo/debug:latest"`)

		job := trainJob("runtime", "q")
		job.Object["spec"] = map[string]any{"runtimeRef": map[string]any{"name": "torch", "kind": "TrainingRuntime"}}
		e.denied(t, e.Client.Create(t.Context(), job), `has the image "repo/torch:latest"`)
	})
	t.Run("an exempt namespace, and what no policy looks at, are let through", func(t *testing.T) {
		exempt := barePod("latest", "", "")
		exempt.Spec.Containers[0].Image = "repo/x:latest"
		e.Create(t, in("sandbox-1", exempt))
		unasked := withoutGPUs(barePod("cpu", "", ""))
		unasked.Spec.Containers[0].Image = "repo/x:latest"
		e.Create(t, unasked)
	})
	t.Run("an old notebook over a new maximum takes labels, and no more GPUs", func(t *testing.T) {
		e.denied(t, e.Client.Create(t.Context(), notebook("old", 8)), "the notebook asks for 8 GPUs, and may have 4")
		old := notebook("old", 4)
		e.Create(t, old)
		e.policy(t, "muster-notebook-gpus", notebookMaximum(1))
		e.eventuallyDenied(t, notebook("probe", 2), "may have 1")
		old.SetLabels(map[string]string{"team": "nlp"})
		e.update(t, old)
		setGPUs(t, old, 8)
		e.denied(t, e.Client.Update(t.Context(), old.DeepCopy()), "the notebook asks for 8 GPUs, and may have 1")
		if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(old), old); err != nil {
			t.Fatal(err)
		}
		setGPUs(t, old, 2)
		e.update(t, old)
	})
	t.Run("devices that pods claim are GPUs, and a claim that cannot be read is said to be unknown", func(t *testing.T) {
		e.Create(t, &resourceapi.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: "nlp", Name: "six"},
			Spec: resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
				Name: "gpus", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.nvidia.com", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 6},
			}}}}},
		})
		claims := func(template string) *unstructured.Unstructured {
			claiming := notebook("claims", 0)
			claim := []any{map[string]any{"name": "gpus", "resourceClaimTemplateName": template}}
			if err := unstructured.SetNestedSlice(claiming.Object, claim, "spec", "template", "spec", "resourceClaims"); err != nil {
				t.Fatal(err)
			}
			return claiming
		}
		e.eventuallyDenied(t, claims("six"), "[muster-notebook-gpus] the notebook asks for 6 GPUs, and may have 4")
		e.denied(t, e.Client.Create(t.Context(), claims("none")), "[muster-counted-gpus] what it asks for is not known: what its pods claim: ResourceClaimTemplate none")
	})
	t.Run("an Experiment whose parallel trials do not fit its queue is refused with both numbers", func(t *testing.T) {
		e.Queue(t, "nlp", "katib", 32)
		e.eventuallyDenied(t, experiment("wide", 3), "[muster-katib-reach] 3 parallel trials of 16 GPUs are 48 GPUs, and queue katib reaches 32")
		e.Create(t, experiment("fits", 2))
	})
	t.Run("a namespace whose pods leave GPUs idle gets no further notebook with GPUs, until they work or are not heard of", func(t *testing.T) {
		e.Namespace(t, "hoards")
		further, small := in("hoards", notebook("further", 1)), in("hoards", notebook("small", 0))
		e.reportsNode(t, time.Now(), musterv1alpha1.GPUIdle)
		e.eventuallyDenied(t, further, "[muster-notebook-idle-gpus] the pods of namespace hoards leave 2 GPUs idle: stop what does not use its GPUs first (forgotten)")
		e.Create(t, small)
		e.Create(t, notebook("elsewhere", 1))
		e.reportsNode(t, time.Now(), musterv1alpha1.GPUActive)
		e.eventuallyAllowed(t, further)
		e.reportsNode(t, time.Now(), musterv1alpha1.GPUIdle)
		e.eventuallyDenied(t, further, "leave 2 GPUs idle")
		e.reportsNode(t, time.Now().Add(-time.Hour), musterv1alpha1.GPUIdle)
		testobject.Change(t, e.Client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hoards"}}, func(n *corev1.Namespace) { n.Labels["team"] = "nlp" })
		e.eventuallyAllowed(t, further)
	})
	t.Run("the group of an owner's pods takes no pod of another owner, until they have ended", func(t *testing.T) {
		a, b := e.owner(t, "a"), e.owner(t, "b")
		first := e.member("a-0", a, "kueue.x-k8s.io/pod-group-name", "train")
		e.Create(t, first)
		e.Create(t, e.member("a-1", a, "kueue.x-k8s.io/pod-group-name", "train"))
		says := "[muster-pod-groups] the pods of pod name the group train, which belongs to Job a by Pod/a-"
		e.denied(t, e.Client.Create(t.Context(), e.member("b-0", b, "kueue.x-k8s.io/pod-group-name", "train")), says)
		alone := e.member("alone", nil, "kueue.x-k8s.io/pod-group-name", "train")
		e.denied(t, e.Client.Create(t.Context(), alone.DeepCopy()), says)
		e.denied(t, e.Client.Create(t.Context(), withoutGPUs(alone.DeepCopy())), says)
		joins := e.member("joins", nil, "team", "nlp")
		e.Create(t, joins)
		joins.Labels["kueue.x-k8s.io/pod-group-name"] = "train"
		e.denied(t, e.Client.Update(t.Context(), joins), says)
		template := batchJob("names", 1)
		template.Spec.Template.Labels = map[string]string{"kueue.x-k8s.io/pod-group-name": "train"}
		template.Spec.Template.Spec.Containers[0].Image = "repo/x:v1"
		e.denied(t, e.Client.Create(t.Context(), template), "the pods of main name the group train, which belongs to Job a")
		e.Create(t, in("sandbox-1", e.member("elsewhere", nil, "kueue.x-k8s.io/pod-group-name", "train")))
		testobject.Change(t, e.Client, first, func(pod *corev1.Pod) { pod.Labels["team"] = "nlp" })
		for _, name := range []string{"a-0", "a-1"} {
			pod := &corev1.Pod{}
			if err := e.Client.Get(t.Context(), client.ObjectKey{Namespace: "nlp", Name: name}, pod); err != nil {
				t.Fatal(err)
			}
			pod.Status.Phase = corev1.PodFailed
			if err := e.Client.Status().Update(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		e.eventuallyAllowed(t, e.member("b-0", b, "kueue.x-k8s.io/pod-group-name", "train"))
	})
	t.Run("a PodGroup that a controller has takes only its pods, and one that nobody has takes all", func(t *testing.T) {
		a, b := e.owner(t, "c"), e.owner(t, "d")
		group := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": map[string]any{"namespace": "nlp", "name": "owned"}, "spec": map[string]any{"minMember": int64(2)},
		}}
		free := group.DeepCopy()
		free.SetName("free")
		group.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(a, schema.FromAPIVersionAndKind("batch/v1", "Job"))})
		e.Create(t, group)
		e.Create(t, free)
		e.Create(t, e.member("c-0", a, "scheduling.x-k8s.io/pod-group", "owned"))
		e.denied(t, e.Client.Create(t.Context(), withoutGPUs(e.member("d-0", b, "scheduling.x-k8s.io/pod-group", "owned"))), "the group owned, which belongs to Job c by PodGroup/owned")
		e.Create(t, e.member("c-1", a, "scheduling.x-k8s.io/pod-group", "free"))
		e.Create(t, e.member("d-1", b, "scheduling.x-k8s.io/pod-group", "free"))
	})
	t.Run("of a policy with an error the last good version is asked, and the status says where it is", func(t *testing.T) {
		e.policy(t, "no-x", namePolicy("x"))
		e.eventuallyDenied(t, barePod("x", "", "muster"), "[no-x] x is no name")
		e.policy(t, "no-x", strings.Replace(namePolicy("x"), "msg :=", "msg =:", 1))
		e.status(t, "no-x", func(p *musterv1alpha1.AdmissionPolicy) error {
			s := &p.Status
			compiled := apimeta.FindStatusCondition(s.Conditions, musterv1alpha1.ConditionCompiled)
			switch {
			case compiled == nil || compiled.Status != metav1.ConditionFalse || compiled.ObservedGeneration != 2:
				return fmt.Errorf("its conditions are %v", s.Conditions)
			case len(s.Errors) == 0 || s.Errors[0].File != "rego" || s.Errors[0].Row != 4 || s.Errors[0].Column == 0:
				return fmt.Errorf("its errors are %+v", s.Errors)
			case s.LastGoodGeneration != 1:
				return fmt.Errorf("generation %d serves", s.LastGoodGeneration)
			}
			return nil
		})
		e.denied(t, e.Client.Create(t.Context(), barePod("x", "", "muster")), "[no-x] x is no name")
		e.policy(t, "no-x", namePolicy("y"))
		e.eventuallyDenied(t, barePod("y", "", "muster"), "[no-x] y is no name")
		e.status(t, "no-x", func(p *musterv1alpha1.AdmissionPolicy) error {
			if !apimeta.IsStatusConditionTrue(p.Status.Conditions, musterv1alpha1.ConditionCompiled) || len(p.Status.Errors) > 0 {
				return fmt.Errorf("its status is %+v", p.Status)
			}
			if p.Status.Counts.Denied == 0 || len(p.Status.LastViolations) == 0 || p.Status.LastViolations[0].Name != "x" {
				return fmt.Errorf("its counts are %+v, its last violations %+v", p.Status.Counts, p.Status.LastViolations)
			}
			return nil
		})
	})
	t.Run("of a policy that divides by zero the last good version is asked", func(t *testing.T) {
		e.policy(t, "no-y", namePolicy("y"))
		e.eventuallyDenied(t, barePod("y", "", "muster"), "[no-y] y is no name")
		e.policy(t, "no-y", strings.Replace(namePolicy("y"), "msg :=", "1 / (count(input.request.name) - 1) > 0\n\tmsg :=", 1))
		e.status(t, "no-y", func(p *musterv1alpha1.AdmissionPolicy) error {
			e.denied(t, e.Client.Create(t.Context(), barePod("y", "", "muster")), "[no-y] y is no name")
			if p.Status.Counts.Failed == 0 || len(p.Status.Errors) == 0 || p.Status.Errors[0].Row != 4 {
				return fmt.Errorf("generation %d has the status %+v", p.Generation, p.Status)
			}
			return nil
		})
	})
	t.Run("a policy that does not end is quarantined, and all others answer as if it were not there", e.runaway)
	t.Run("a policy in the old language says so, and is asked", e.oldLanguage)
	t.Run("policies know which RuntimeDefaults there are, and of what generation", e.knownDefaults)
	t.Run("what exists is found, and goes on", func(t *testing.T) {
		pod := barePod("runs", "", "muster")
		pod.Spec.Containers[0].Image = "repo/x:v1"
		e.Create(t, pod)
		e.policy(t, "no-runs", namePolicy("runs"))
		e.status(t, "no-runs", func(p *musterv1alpha1.AdmissionPolicy) error {
			a := p.Status.Audit
			if a == nil || a.Violations != 1 || len(a.Found) != 1 || a.Found[0].Name != "runs" || a.Found[0].Message != "runs is no name" {
				return fmt.Errorf("its audit is %+v", a)
			}
			return nil
		})
		testobject.Change(t, e.Client, pod, func(pod *corev1.Pod) { pod.Labels = map[string]string{"team": "nlp"} })
	})
	t.Run("the policy of the guide warns, and refuses once it is patched", func(t *testing.T) {
		example := func(file string) *unstructured.Unstructured {
			content, err := os.ReadFile(filepath.Join("..", "..", "docs", "examples", "policies", file))
			if err != nil {
				t.Fatal(err)
			}
			return parsed(t, string(content))
		}
		owner, job := example("owner.yaml"), example("job.yaml")
		owner.SetNamespace("")
		job.SetNamespace("nlp")
		e.Create(t, owner)
		e.status(t, "owner", func(p *musterv1alpha1.AdmissionPolicy) error {
			if err := e.Client.Create(t.Context(), job.DeepCopy(), client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			if p.Status.Counts.Warned == 0 || p.Status.Counts.Denied > 0 {
				return fmt.Errorf("its counts are %+v", p.Status.Counts)
			}
			return nil
		})
		if err := e.Client.Patch(t.Context(), owner, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"enforcement":"deny"}}`))); err != nil {
			t.Fatal(err)
		}
		e.eventuallyDenied(t, job, "[owner] Job pretraining asks for 8 GPUs: say whose it is in the label example.com/owner")
	})
	t.Run("a ConfigMap with kube-mgmt's label is a policy while it is there", func(t *testing.T) {
		imported := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "muster-system", Name: "old", Labels: map[string]string{"openpolicyagent.org/policy": "rego"}},
			Data:       map[string]string{"main.rego": "package kubernetes.admission\n\ndeny[msg] {\n\tinput.request.object.metadata.name == \"imported\"\n\tmsg := \"no\"\n}\n"},
		}
		e.Create(t, imported)
		e.eventuallyDenied(t, barePod("imported", "", "muster"), "[configmap/old] no")
		if err := e.Client.Delete(t.Context(), imported); err != nil {
			t.Fatal(err)
		}
		testcluster.Eventually(t, "the policy to be gone", func(ctx context.Context) error {
			err := e.Client.Create(ctx, barePod("imported", "", "muster"), client.DryRunAll)
			if err != nil && strings.Contains(err.Error(), "configmap/old") {
				return err
			}
			return nil
		})
	})
	t.Run("without the webhook pods with GPUs are refused, and all others are created", func(t *testing.T) {
		e.stop()
		if err := e.Client.Create(t.Context(), barePod("late", "", "muster")); !apierrors.IsInternalError(err) {
			t.Errorf("a pod with GPUs: %v", err)
		}
		e.Create(t, withoutGPUs(barePod("late", "", "")))
		e.Create(t, in("kube-system", barePod("late", "", "")))
	})
}

// askPolicies registers the policies, and waits until the API server has them asked.
func (e *webhookEnv) askPolicies(t *testing.T) {
	t.Helper()
	registration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	readManifest(t, "base/webhook/registration/validating.yaml", registration)
	for i := range registration.Webhooks {
		e.point(&registration.Webhooks[i].ClientConfig)
	}
	e.Create(t, registration)
	probe := barePod("probe", "", "muster")
	probe.Spec.NodeName = "n"
	e.eventuallyDenied(t, probe, "[muster-node-name]")
}

// denied checks that the policies refused a request, in these words.
func (e *webhookEnv) denied(t *testing.T, err error, says string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), says) {
		t.Errorf("the error is %v, want a denial with %q", err, says)
	}
}

// eventuallyDenied waits until the creation of the object is refused in these words.
func (e *webhookEnv) eventuallyDenied(t *testing.T, object client.Object, says string) {
	t.Helper()
	testcluster.Eventually(t, "a denial with "+says, func(ctx context.Context) error {
		err := e.Client.Create(ctx, object.DeepCopyObject().(client.Object), client.DryRunAll)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), says) {
			return fmt.Errorf("the error is %v", err)
		}
		return nil
	})
}

// eventuallyAllowed waits until the creation of the object is refused no longer.
func (e *webhookEnv) eventuallyAllowed(t *testing.T, object client.Object) {
	t.Helper()
	testcluster.Eventually(t, object.GetName()+" to be let through", func(ctx context.Context) error {
		return e.Client.Create(ctx, object.DeepCopyObject().(client.Object), client.DryRunAll)
	})
}

// reportsNode writes what the agent of a node says: a pod of the namespace hoards holds
// two GPUs, and does this with them.
func (e *webhookEnv) reportsNode(t *testing.T, at time.Time, does musterv1alpha1.GPUVerdict) {
	t.Helper()
	status := musterv1alpha1.GPUNodeStatus{LastHeartbeat: metav1.NewTime(at), Summary: musterv1alpha1.GPUSummary{Devices: 2}}
	for _, uuid := range []string{"GPU-0", "GPU-1"} {
		status.Devices = append(status.Devices, musterv1alpha1.GPUDevice{
			UUID: uuid, Holders: []musterv1alpha1.GPUHolder{{Namespace: "hoards", Pod: "forgotten", Verdict: does}},
		})
	}
	objects, err := dynamic.NewForConfig(e.Config)
	if err != nil {
		t.Fatal(err)
	}
	if err := (publish.Applier{Client: objects}).Write(t.Context(), "node-1", status); err != nil {
		t.Fatal(err)
	}
}

// owner is a Job whose pods nobody makes.
func (e *webhookEnv) owner(t *testing.T, name string) *batchv1.Job {
	t.Helper()
	job := batchJob(name, 0)
	e.Create(t, job)
	return job
}

// member is a pod with a GPU, of a Job or of none, and with a label.
func (e *webhookEnv) member(name string, of *batchv1.Job, label, value string) *corev1.Pod {
	pod := barePod(name, "", "muster")
	pod.Spec.Containers[0].Image = "repo/x:v1"
	pod.Labels = map[string]string{label: value}
	if of != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(of, batchv1.SchemeGroupVersion.WithKind("Job"))}
	}
	return pod
}

// policy makes the Rego that of the AdmissionPolicy, about all objects that are sent.
func (e *webhookEnv) policy(t *testing.T, name, rego string) {
	t.Helper()
	object := &musterv1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); apierrors.IsNotFound(err) {
		object.Spec.Rego = rego
		e.Create(t, object)
		return
	}
	testobject.Change(t, e.Client, object, func(object *musterv1alpha1.AdmissionPolicy) { object.Spec.Rego = rego })
}

// status waits until the status of a policy is as it must be.
func (e *webhookEnv) status(t *testing.T, name string, must func(*musterv1alpha1.AdmissionPolicy) error) {
	t.Helper()
	testcluster.Eventually(t, "the status of "+name, func(ctx context.Context) error {
		object := &musterv1alpha1.AdmissionPolicy{}
		if err := e.Client.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
			return err
		}
		return must(object)
	})
}

func (e *webhookEnv) update(t *testing.T, object client.Object) {
	t.Helper()
	if err := e.Client.Update(t.Context(), object); err != nil {
		t.Fatalf("updating %s: %v", object.GetName(), err)
	}
}

func namePolicy(name string) string {
	return "package names\n\ndeny contains msg if {\n\tmsg := \"" + name + " is no name\"\n\tinput.request.name == \"" + name + "\"\n}\n"
}

func notebookMaximum(n int) string {
	return fmt.Sprintf("package p\n\nviolation contains {\"msg\": msg, \"details\": {\"key\": \"gpus\", \"value\": input.workload.gpus}} if {\n\tinput.workload.kind == \"Notebook\"\n\tinput.workload.gpus > %d\n\tmsg := sprintf(\"the notebook asks for %%d GPUs, and may have %d\", [input.workload.gpus])\n}\n", n, n)
}

func notebook(name string, gpus int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubeflow.org/v1", "kind": "Notebook", "metadata": map[string]any{"namespace": "nlp", "name": name},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
			"name": name, "image": "repo/notebook:v1", "resources": map[string]any{"limits": map[string]any{"nvidia.com/gpu": gpus}},
		}}}}},
	}}
}

func setGPUs(t *testing.T, notebook *unstructured.Unstructured, gpus int64) {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(notebook.Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	containers[0].(map[string]any)["resources"] = map[string]any{"limits": map[string]any{"nvidia.com/gpu": gpus}}
	if err := unstructured.SetNestedSlice(notebook.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
}

// experiment is an Experiment in the queue katib with this many parallel trials of 16
// GPUs each.
func experiment(name string, parallel int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "metadata": map[string]any{"namespace": "nlp", "name": name},
		"spec": map[string]any{"parallelTrialCount": parallel, "maxFailedTrialCount": int64(1), "trialTemplate": map[string]any{"trialSpec": map[string]any{
			"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"labels": map[string]any{"kueue.x-k8s.io/queue-name": "katib"}},
			"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"restartPolicy": "Never", "containers": []any{map[string]any{
				"name": "train", "image": "repo/x:v1", "resources": map[string]any{"limits": map[string]any{"nvidia.com/gpu": int64(16)}},
			}}}}},
		}}},
	}}
}

// runtimeWith is a TrainingRuntime of one node with this image.
func runtimeWith(name, image string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "metadata": map[string]any{"namespace": "nlp", "name": name},
		"spec": map[string]any{"mlPolicy": map[string]any{"numNodes": int64(1)}, "template": map[string]any{"spec": map[string]any{
			"replicatedJobs": []any{map[string]any{"name": "node", "template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
				"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{
					map[string]any{"name": "node", "image": image},
				}}}},
			}}},
		}}},
	}}
}

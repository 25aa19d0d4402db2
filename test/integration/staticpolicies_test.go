package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/internal/testobject"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/policy/facts"
	"github.com/muster-gpu/muster/policy/library"
	"github.com/muster-gpu/muster/policy/static"
)

// warned collects the policies that the API server names in warnings.
type warned struct {
	mu    sync.Mutex
	names map[string]bool
	texts []string
}

var policyInWarning = regexp.MustCompile(`\[(muster-[a-z0-9-]+)\]`)

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warned) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
	for _, found := range policyInWarning.FindAllStringSubmatch(text, -1) {
		w.names[found[1]] = true
	}
}

// take are the policies since the last time, sorted.
func (w *warned) take() ([]string, []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	names, texts := []string{}, w.texts
	for name := range w.names {
		names = append(names, name)
	}
	w.names, w.texts = map[string]bool{}, nil
	slices.Sort(names)
	return names, texts
}

// TestStaticPolicies has the same objects judged by the library in Rego, and by what is
// generated from it, which the API server asks.
func TestStaticPolicies(t *testing.T) {
	c := testcluster.StartBare(t)
	c.Namespace(t, "nlp")
	c.Namespace(t, "sandbox-1")
	for kind, apiVersion := range map[string]string{
		"JobSet": "jobset.x-k8s.io/v1alpha2", "TrainJob": "trainer.kubeflow.org/v1alpha1", "Notebook": "kubeflow.org/v1beta1", "Experiment": "kubeflow.org/v1beta1",
		"PyTorchJob": "kubeflow.org/v1", "RayCluster": "ray.io/v1", "RayJob": "ray.io/v1", "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
	} {
		c.AddKind(t, schema.FromAPIVersionAndKind(apiVersion, kind))
	}
	changes := map[string]configv1alpha1.LibraryPolicy{}
	all, err := library.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range all {
		changes[info.Name] = configv1alpha1.LibraryPolicy{Level: "deny", Exempt: configv1alpha1.LibraryExemptions{Namespaces: []string{"sandbox-*"}}}
	}
	policies, err := library.Configured(changes)
	if err != nil {
		t.Fatal(err)
	}
	engine := policy.New(policy.Options{Describer: facts.NewReader(nil, nil)})
	engine.SetPolicies(t.Context(), policies)
	for i := range policies {
		policies[i].Enforcement = policy.Warn // the API server names one only that refuses
	}
	objects, err := static.Generate(policies)
	if err != nil {
		t.Fatal(err)
	}
	generated := map[string]bool{}
	for _, object := range objects {
		generated[object.GetName()] = true
		c.Create(t, object)
	}
	said := &warned{names: map[string]bool{}}
	config := rest.CopyConfig(c.Config)
	config.WarningHandlerWithContext = said
	asks, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// try has the API server judge what would become of an object, of before if there is one.
	try := func(t *testing.T, before, after *unstructured.Unstructured) ([]string, []string) {
		t.Helper()
		said.take()
		after = after.DeepCopy()
		var err error
		if before == nil {
			err = asks.Create(t.Context(), after, client.DryRunAll)
		} else {
			after.SetResourceVersion(before.GetResourceVersion())
			err = asks.Update(t.Context(), after, client.DryRunAll)
		}
		if err != nil {
			t.Fatalf("%s %s: %v", after.GetKind(), after.GetName(), err)
		}
		return said.take()
	}
	// rego has the library judge it, as far as the others are generated.
	rego := func(t *testing.T, before, after *unstructured.Unstructured) []string {
		t.Helper()
		gvk := after.GroupVersionKind()
		r := &admissionv1.AdmissionRequest{
			UID: "u", Operation: admissionv1.Create, Namespace: after.GetNamespace(), Name: after.GetName(), UserInfo: authenticationv1.UserInfo{Username: "ann"},
			Kind: metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind},
		}
		var err error
		if r.Object.Raw, err = json.Marshal(after); err != nil {
			t.Fatal(err)
		}
		if before != nil {
			r.Operation = admissionv1.Update
			if r.OldObject.Raw, err = json.Marshal(before); err != nil {
				t.Fatal(err)
			}
		}
		decision, err := engine.Review(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if len(decision.Failures) > 0 {
			t.Errorf("policies failed: %+v", decision.Failures)
		}
		names := []string{}
		for _, d := range decision.Denials {
			if generated[d.Policy] && !slices.Contains(names, d.Policy) {
				names = append(names, d.Policy)
			}
		}
		slices.Sort(names)
		return names
	}
	untilAsked(t, generated, try)

	for _, tt := range judged {
		t.Run(tt.name, func(t *testing.T) {
			after := parsed(t, tt.after)
			var before *unstructured.Unstructured
			if tt.before != "" {
				before = parsed(t, tt.before)
				c.Create(t, before)
				t.Cleanup(func() {
					if err := c.Client.Delete(context.Background(), before); err != nil {
						t.Error(err)
					}
				})
			}
			want := []string{}
			for _, name := range tt.by {
				want = append(want, library.Prefix+name)
			}
			if diff := cmp.Diff(want, rego(t, before, after)); diff != "" {
				t.Errorf("in Rego (-want +got):\n%s", diff)
			}
			got, texts := try(t, before, after)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("in CEL (-want +got):\n%s\n%s", diff, strings.Join(texts, "\n"))
			}
		})
	}
	t.Run("pods without GPUs and without a queue are nobody's business, and nothing is in kube-system", func(t *testing.T) {
		pod := parsed(t, strings.Replace(withImage("repo/x:latest"), inQueue, "labels: {}", 1))
		system := parsed(t, notebookOf(8, ""))
		system.SetNamespace("kube-system")
		for _, object := range []*unstructured.Unstructured{pod, system} {
			if got, texts := try(t, nil, object); len(got) > 0 {
				t.Errorf("%s: %v\n%s", object.GetKind(), got, strings.Join(texts, "\n"))
			}
		}
	})
	t.Run("one that refuses refuses, and says why", func(t *testing.T) {
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "muster-notebook-gpus"}}
		testobject.Change(t, c.Client, binding, func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
		})
		testcluster.Eventually(t, "a denial", func(ctx context.Context) error {
			err := c.Client.Create(ctx, parsed(t, notebookOf(2, "")), client.DryRunAll)
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "[muster-notebook-gpus] the notebook asks for more than 1 GPU") || strings.Contains(err.Error(), "1 GPUs") {
				return fmt.Errorf("the error is %v", err)
			}
			return nil
		})
	})
}

// untilAsked waits until each of the policies has been heard of.
func untilAsked(t *testing.T, policies map[string]bool, try func(*testing.T, *unstructured.Unstructured, *unstructured.Unstructured) ([]string, []string)) {
	t.Helper()
	testcluster.Eventually(t, "all policies to be asked", func(context.Context) error {
		missing := make(map[string]bool, len(policies))
		for name := range policies {
			missing[name] = true
		}
		for _, probe := range []string{
			podOf("{name: c, image: x, resources: {limits: {nvidia.com/gpu: 1}}}", "nodeName: node-1"), strings.Replace(notebookOf(2, "resources: {requests: {nvidia.com/gpu: 1}}"), inQueue, "labels: {}", 1),
			"{apiVersion: kubeflow.org/v1beta1, kind: Experiment, metadata: {name: x}, spec: {}}",
			"{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: x}, spec: {runtimeRef: {name: torch}}}",
			"{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: x}, spec: {pytorchReplicaSpecs: {}}}",
		} {
			names, _ := try(t, nil, parsed(t, probe))
			for _, name := range names {
				delete(missing, name)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("not asked yet: %v", missing)
		}
		return nil
	})
}

// parsed is an object of the namespace nlp, if it names none.
func parsed(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	body, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(body); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	if u.GetNamespace() == "" {
		u.SetNamespace("nlp")
	}
	return u
}

const (
	pinnedImage = "repo/x@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	// inQueue is what is said of an object that is in a queue.
	inQueue      = "labels: {kueue.x-k8s.io/queue-name: q}"
	latest       = `{containers: [{name: c, image: "repo/x:latest", resources: {limits: {nvidia.com/gpu: 1}}}]}`
	oneGPU       = `{name: c, image: "` + pinnedImage + `", resources: {limits: {nvidia.com/gpu: 1}}}`
	noGPU        = `{name: c, image: "` + pinnedImage + `"}`
	notebookKind = "apiVersion: kubeflow.org/v1beta1\nkind: Notebook\n"
)

// notebookOf is a Notebook with this many GPUs and one more container, whose fields are
// given, if any are.
func notebookOf(gpus int, more string) string {
	second := ""
	if more != "" {
		second = `, {name: more, image: "` + pinnedImage + `", ` + more + "}"
	}
	return notebookKind + fmt.Sprintf(`metadata: {name: nb, %s}
spec: {template: {spec: {containers: [{name: nb, image: "%s", resources: {limits: {nvidia.com/gpu: %d}}}%s]}}}`, inQueue, pinnedImage, gpus, second)
}

// podOf is a pod in a queue with these containers and fields.
func podOf(containers, fields string) string {
	return "{apiVersion: v1, kind: Pod, metadata: {name: p, " + inQueue + "}, spec: {containers: [" + containers + "], " + fields + "}}"
}

// withImage is a pod without GPUs, and with this image.
func withImage(image string) string {
	return podOf(`{name: c, imagePullPolicy: Always, image: "`+image+`"}`, "")
}

// jobSetOf is a JobSet in a queue whose second job has a container with these resources.
func jobSetOf(resources string) string {
	return "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: js, " + inQueue + `}
spec: {replicatedJobs: [
  {name: a, template: {spec: {template: {spec: {containers: [` + noGPU + `]}}}}},
  {name: b, template: {spec: {template: {spec: {containers: [{name: c, image: "` + pinnedImage + `", resources: ` + resources + `}]}}}}}]}`
}

// judged are objects, and the policies that mind them.
var judged = []struct {
	name, before, after string
	by                  []string
}{
	{name: "a notebook that is well", after: notebookOf(1, "")},
	{name: "a notebook with too many GPUs", after: notebookOf(2, ""), by: []string{"notebook-gpus"}},
	{name: "a notebook with too many GPUs in two containers", after: notebookOf(1, "resources: {limits: {nvidia.com/gpu: 1}}"), by: []string{"notebook-gpus"}},
	{name: "a notebook with too many GPUs in an init container", by: []string{"notebook-gpus"},
		after: notebookKind + "metadata: {name: nb, " + inQueue + "}\nspec: {template: {spec: {containers: [" + noGPU + `], initContainers: [{name: i, image: "` + pinnedImage + `", resources: {limits: {nvidia.com/gpu: "4"}}}]}}}`},
	{name: "a notebook with too many GPUs in a sidecar", by: []string{"notebook-gpus"},
		after: notebookKind + "metadata: {name: nb, " + inQueue + "}\nspec: {template: {spec: {containers: [" + oneGPU + `], initContainers: [{name: i, image: "` + pinnedImage + `", restartPolicy: Always, resources: {limits: {nvidia.com/gpu: 1}}}]}}}`},
	{name: "a notebook with an init container that has the GPU before", after: notebookKind + "metadata: {name: nb, " + inQueue + "}\nspec: {template: {spec: {containers: [" + oneGPU + `], initContainers: [{name: i, image: "` + pinnedImage + `", resources: {limits: {nvidia.com/gpu: 1}}}]}}}`},
	{name: "a notebook with a part of a GPU", after: notebookOf(0, "resources: {limits: {nvidia.com/gpu: 500m}}"), by: []string{"gpu-limits"}},
	{name: "a notebook with a GPU and a part of one", after: notebookOf(1, "resources: {limits: {nvidia.com/gpu: 500m}}"), by: []string{"gpu-limits", "notebook-gpus"}},
	{name: "a label of an old notebook with too many GPUs", before: notebookOf(4, ""), after: strings.Replace(notebookOf(4, ""), "labels: {", "labels: {team: nlp, ", 1)},
	{name: "fewer GPUs of an old notebook", before: notebookOf(4, ""), after: notebookOf(2, "")},
	{name: "more GPUs of an old notebook", before: notebookOf(4, ""), after: notebookOf(8, ""), by: []string{"notebook-gpus"}},
	{name: "a notebook in an exempt namespace", after: strings.Replace(notebookOf(8, ""), "{name: nb, labels", "{name: nb, namespace: sandbox-1, labels", 1)},

	{name: "no queue", after: strings.Replace(notebookOf(1, ""), inQueue, "labels: {}", 1), by: []string{"queue-label"}},
	{name: "no queue and no GPUs", after: strings.Replace(notebookOf(0, ""), inQueue, "labels: {}", 1)},
	{name: "no queue and a slice of a GPU", after: strings.Replace(strings.Replace(notebookOf(1, ""), inQueue, "labels: {}", 1), "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", 1), by: []string{"queue-label"}},
	{name: "no queue and what is no GPU", after: strings.Replace(strings.Replace(notebookOf(1, ""), inQueue, "labels: {}", 1), "nvidia.com/gpu", "nvidia.com/gpumem", 1)},
	{name: "a queue that is taken away", before: notebookOf(1, ""), after: strings.Replace(notebookOf(1, ""), inQueue, "labels: {}", 1), by: []string{"queue-label"}},

	{name: "a request without a limit", after: jobSetOf("{requests: {nvidia.com/gpu: 1}}"), by: []string{"gpu-limits"}},
	{name: "a request below its limit", after: jobSetOf("{requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 2}}"), by: []string{"gpu-limits"}},
	{name: "a request like its limit", after: jobSetOf("{requests: {nvidia.com/gpu: 2}, limits: {nvidia.com/gpu: \"2\"}}")},
	{name: "a part of a GPU", after: jobSetOf("{limits: {nvidia.com/gpu: 500m}}"), by: []string{"gpu-limits"}},
	{name: "a whole number of thousandths", after: jobSetOf("{limits: {nvidia.com/gpu: 2000m}}")},
	{name: "a thousand GPUs", after: jobSetOf("{limits: {nvidia.com/gpu: 1k}}")},
	{name: "a part of a processor", after: jobSetOf("{requests: {cpu: 500m}}")},

	{name: "latest in a Job", after: "{apiVersion: batch/v1, kind: Job, metadata: {name: j, " + inQueue + "}, spec: {template: {spec: " + strings.Replace(latest, "{", "{restartPolicy: Never, ", 1) + "}}}", by: []string{"pinned-images"}},
	{name: "latest in a CronJob", after: "{apiVersion: batch/v1, kind: CronJob, metadata: {name: j, " + inQueue + "}, spec: {schedule: '0 0 * * *', jobTemplate: {spec: {template: {spec: " + strings.Replace(latest, "{", "{restartPolicy: Never, ", 1) + "}}}}}", by: []string{"pinned-images"}},
	{name: "latest in a Deployment", after: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, " + inQueue + "}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " + latest + "}}}", by: []string{"pinned-images"}},
	{name: "latest in a StatefulSet", after: "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: d, " + inQueue + "}, spec: {serviceName: d, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " + latest + "}}}", by: []string{"pinned-images"}},
	{name: "latest in a PyTorchJob", after: "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: j, " + inQueue + "}, spec: {pytorchReplicaSpecs: {Master: {template: {spec: " + latest + "}}}}}", by: []string{"pinned-images", "v1-kinds"}},
	{name: "latest in a RayCluster's workers", after: "{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: r, " + inQueue + "}, spec: {headGroupSpec: {template: {spec: {containers: [" + noGPU + "]}}}, workerGroupSpecs: [{groupName: w, replicas: 1, minReplicas: 0, maxReplicas: 1, template: {spec: " + latest + "}}]}}", by: []string{"pinned-images"}},
	{name: "latest in a RayJob's head", after: "{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: r, " + inQueue + "}, spec: {entrypoint: x, rayClusterSpec: {headGroupSpec: {template: {spec: " + latest + "}}}}}", by: []string{"pinned-images"}},
	{name: "latest in a LeaderWorkerSet", after: "{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: l, " + inQueue + "}, spec: {leaderWorkerTemplate: {size: 2, workerTemplate: {spec: " + latest + "}}}}", by: []string{"pinned-images"}},
	{name: "latest in an init container", after: podOf(noGPU, `initContainers: [{name: i, image: "repo/x:latest"}]`), by: []string{"pinned-images"}},
	{name: "no tag", after: withImage("repo/x"), by: []string{"pinned-images"}},
	{name: "a registry's port and no tag", after: withImage("registry:5000/x"), by: []string{"pinned-images"}},
	{name: "a tag and no digest", after: withImage("registry:5000/x:1"), by: []string{"pinned-images"}},
	{name: "a digest and the tag latest", after: withImage(strings.Replace(pinnedImage, "@", ":latest@", 1))},
	{name: "what looks like a digest", after: withImage(pinnedImage + "0"), by: []string{"pinned-images"}},
	{name: "an exempt repository", after: withImage("pytorch/pytorch:2.13.0")},
	{name: "an exempt repository without a tag", after: withImage("pytorch/pytorch")},
	{name: "a repository that begins like an exempt one", after: withImage("pytorch/pytorch-evil:2"), by: []string{"pinned-images"}},
	{name: "an exempt registry", after: withImage("kubeflow/y:latest")},
	{name: "an old image of latest, and a label", before: withImage("repo/x:latest"), after: strings.Replace(withImage("repo/x:latest"), "labels: {", "labels: {team: nlp, ", 1)},
	{name: "a new image of latest", before: withImage("repo/x:1"), after: withImage("repo/x:latest"), by: []string{"pinned-images"}},

	{name: "a node that a pod with GPUs names", after: podOf(oneGPU, "nodeName: node-1"), by: []string{"node-name"}},
	{name: "a node that a pod without GPUs names", after: podOf(noGPU, "nodeName: node-1")},
	{name: "a runtime without a version", after: "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: x, " + inQueue + "}, spec: {runtimeRef: {name: torch-distributed}}}", by: []string{"pinned-runtimes"}},
	{name: "a runtime with a version", after: "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: x, " + inQueue + "}, spec: {runtimeRef: {name: torch-distributed-v2.13.0}}}"},
	{name: "an Experiment that never fails", after: "{apiVersion: kubeflow.org/v1beta1, kind: Experiment, metadata: {name: x}, spec: {parallelTrialCount: 2}}", by: []string{"katib-failures"}},
	{name: "an Experiment that fails", after: "{apiVersion: kubeflow.org/v1beta1, kind: Experiment, metadata: {name: x}, spec: {maxFailedTrialCount: 0}}"},
}

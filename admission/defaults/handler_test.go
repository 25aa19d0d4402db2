package defaults

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

// known is a catalog of these RuntimeDefaults that has read all, over fake clients.
// Its cluster has the TrainJob nlp/llm on the runtime torch in queue q.
func known(t testing.TB, all ...*v1alpha1.RuntimeDefaults) (*Catalog, *dynamicfake.FakeDynamicClient) {
	t.Helper()
	objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{runtimeDefaults: "RuntimeDefaultsList"},
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
			"metadata": map[string]any{"namespace": "nlp", "name": "llm", "uid": "u1", "labels": map[string]any{"kueue.x-k8s.io/queue-name": "q"}},
			"spec":     map[string]any{"runtimeRef": map[string]any{"name": "torch"}},
		}})
	for _, d := range all {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: fields}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("RuntimeDefaults"))
		if err := objects.Tracker().Create(runtimeDefaults, u, ""); err != nil {
			t.Fatal(err)
		}
	}
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	reader := metadatafake.NewSimpleMetadataClient(scheme, &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: "nlp", Labels: map[string]string{"team": "nlp", "pod-security.kubernetes.io/enforce": "restricted"}},
	})
	client := fake.NewClientset(
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "usual"}, GlobalDefault: true},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 9},
	)
	catalog := NewCatalog(client, objects, reader)
	go catalog.Run(t.Context())
	if err := wait.PollUntilContextCancel(t.Context(), 1e6, true, func(context.Context) (bool, error) { return catalog.Ready() == nil, nil }); err != nil {
		t.Fatal(err)
	}
	return catalog, objects
}

func request(t testing.TB, kind schema.GroupKind, object string) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "r", Namespace: "nlp", Name: "llm", Operation: admissionv1.Create,
		Kind:   metav1.GroupVersionKind{Group: kind.Group, Version: "v1", Kind: kind.Kind},
		Object: runtime.RawExtension{Raw: asJSON(t, object)},
	}}
}

var (
	aJobSet = schema.GroupKind{Group: "jobset.x-k8s.io", Kind: "JobSet"}
	aPod    = schema.GroupKind{Kind: "Pod"}
)

// ofLLM is the JobSet of the TrainJob llm, or of one that had its name.
func ofLLM(uid string) string {
	return strings.Replace(torch("[]"), "metadata: {name: llm}",
		"metadata: {name: llm, ownerReferences: [{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, name: llm, uid: "+uid+", controller: true}]}", 1)
}

func TestHandle(t *testing.T) {
	const env = `containers: {env: [{name: A, value: b}]}}`
	pod := onePod
	for name, tc := range map[string]struct {
		spec    string
		request admission.Request
		change  func(*admission.Request)
		// patched says that something is added; refused is the message.
		patched bool
		refused string
		reads   int
	}{
		"a pod":                                     {spec: `{` + env, request: request(t, aPod, pod), patched: true},
		"a pod of another namespace":                {spec: `{match: {namespaceSelector: {matchLabels: {team: vision}}}, ` + env, request: request(t, aPod, pod)},
		"a pod of the selected namespace":           {spec: `{match: {namespaceSelector: {matchLabels: {team: nlp}}}, ` + env, request: request(t, aPod, pod), patched: true},
		"a pod that nothing controls":               {spec: `{match: {kinds: [Pod]}, ` + env, request: request(t, aPod, pod), patched: true},
		"a pod of a Job":                            {spec: `{match: {kinds: [Job]}, ` + env, request: request(t, aPod, strings.Replace(pod, "name: p", "name: p, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: j, uid: u, controller: true}]", 1)), patched: true},
		"a pod in a queue":                          {spec: `{match: {queues: [q]}, ` + env, request: request(t, aPod, strings.Replace(pod, "name: p", "name: p, labels: {kueue.x-k8s.io/queue-name: q}", 1)), patched: true},
		"a JobSet":                                  {spec: `{` + env, request: request(t, aJobSet, torch("[]")), patched: true},
		"a JobSet that is no TrainJob's":            {spec: `{match: {kinds: [TrainJob]}, ` + env, request: request(t, aJobSet, torch("[]"))},
		"a TrainJob's JobSet, by its kind":          {spec: `{match: {kinds: [TrainJob]}, ` + env, request: request(t, aJobSet, ofLLM("u1")), patched: true},
		"by the queue of the TrainJob":              {spec: `{match: {queues: [q]}, ` + env, request: request(t, aJobSet, ofLLM("u1")), patched: true, reads: 1},
		"by its runtime":                            {spec: `{match: {runtimes: [{kind: ClusterTrainingRuntime, name: torch}]}, ` + env, request: request(t, aJobSet, ofLLM("u1")), patched: true, reads: 1},
		"not by those of another one of its name":   {spec: `{match: {queues: [q]}, ` + env, request: request(t, aJobSet, ofLLM("u2")), reads: 1},
		"a JobSet that runs in another cluster":     {spec: `{` + env, request: request(t, aJobSet, strings.Replace(torch("[]"), "suspend: true", "managedBy: kueue.x-k8s.io/multikueue", 1))},
		"a JobSet that its own controller manages":  {spec: `{` + env, request: request(t, aJobSet, strings.Replace(torch("[]"), "suspend: true", "managedBy: jobset.sigs.k8s.io/jobset-controller", 1)), patched: true},
		"a pod of a JobSet":                         {spec: `{` + env, request: request(t, aPod, strings.Replace(pod, "name: p", "name: p, labels: {jobset.sigs.k8s.io/jobset-name: llm}, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: j, uid: u, controller: true}]", 1))},
		"a pod that was made for a node":            {spec: `{` + env, request: request(t, aPod, strings.Replace(pod, "spec: {", "spec: {nodeName: n, ", 1))},
		"a pod of an exempt namespace":              {spec: `{` + env, request: request(t, aPod, pod), change: func(r *admission.Request) { r.Namespace = "kube-system" }},
		"a subresource":                             {spec: `{` + env, request: request(t, aPod, pod), change: func(r *admission.Request) { r.SubResource = "status" }},
		"an update of a pod":                        {spec: `{` + env, request: request(t, aPod, pod), change: func(r *admission.Request) { r.Operation = admissionv1.Update }},
		"another kind":                              {spec: `{` + env, request: request(t, schema.GroupKind{Group: "batch", Kind: "Job"}, pod)},
		"an object that cannot be read":             {spec: `{` + env, request: request(t, aPod, `{spec: {containers: 7}}`)},
		"no object":                                 {spec: `{` + env, request: request(t, aPod, pod), change: func(r *admission.Request) { r.Object.Raw = nil }},
		"the cluster's default priority":            {spec: `{pod: {priorityClassName: high}}`, request: request(t, aPod, strings.Replace(pod, "spec: {", "spec: {priorityClassName: usual, ", 1)), patched: true},
		"what the namespace's level does not allow": {spec: `{containers: {capabilities: [IPC_LOCK]}}`, request: request(t, aPod, pod)},
		"what is required": {
			spec: `{class: required, ` + env, request: request(t, aPod, strings.Replace(pod, "{name: node,", "{name: node, env: [{name: A, value: c}],", 1)),
			refused: `RuntimeDefaults gpu: env A of container node must be "b", and is "c"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			catalog, objects := known(t, named(t, "gpu", tc.spec))
			if tc.change != nil {
				tc.change(&tc.request)
			}
			got, err := NewHandler(catalog, []string{"kube-system"}).Handle(t.Context(), tc.request)
			if err != nil {
				t.Fatal(err)
			}
			if got.Allowed != (tc.refused == "") || (len(got.Patches) > 0) != tc.patched {
				t.Errorf("allowed %v, patch %v", got.Allowed, got.Patches)
			}
			if tc.refused != "" && got.Result.Message != tc.refused {
				t.Errorf("refused with %q", got.Result.Message)
			}
			reads := 0
			for _, action := range objects.Actions() {
				if action.GetVerb() == "get" {
					reads++
				}
			}
			if reads != tc.reads {
				t.Errorf("%d reads, want %d", reads, tc.reads)
			}
		})
	}
}

func TestAnUpdateOfASuspendedJobSetPutsBackAndNoOtherUpdateDoes(t *testing.T) {
	d := named(t, "ib", fabric)
	old := stampJobSet(t, asJSON(t, torch("[]")), d)
	runs := func(raw []byte) []byte {
		return []byte(strings.Replace(string(raw), `"suspend":true`, `"suspend":false`, 1))
	}
	raw := asJSON(t, torch("[]"))
	// The RuntimeDefaults are others by now, and the job stays as it was created.
	catalog, _ := known(t, named(t, "ib", `{pod: {tolerations: [{key: changed}]}}`))
	for name, tc := range map[string]struct {
		old, now []byte
		want     int
	}{
		"suspended": {old, raw, 3}, "resumed": {old, runs(raw), 3}, "being suspended": {runs(old), raw, 3}, "running": {runs(old), runs(raw), 0},
		"an old one that cannot be read": {nil, raw, 0},
	} {
		t.Run(name, func(t *testing.T) {
			req := request(t, aJobSet, `{}`)
			req.Operation, req.Object.Raw, req.OldObject.Raw = admissionv1.Update, tc.now, tc.old
			got, err := NewHandler(catalog, nil).Handle(t.Context(), req)
			if err != nil || !got.Allowed || len(got.Patches) != tc.want {
				t.Fatalf("allowed %v, %d changes, want %d: %v (%v)", got.Allowed, len(got.Patches), tc.want, got.Patches, err)
			}
			if text, _ := json.Marshal(got.Patches); strings.Contains(string(text), "changed") {
				t.Errorf("what is wanted now is added: %s", text)
			}
		})
	}
}

func TestWhatIsNotKnownIsAFaultAndNoAnswer(t *testing.T) {
	needsOwner := named(t, "gpu", `{match: {queues: [q]}, containers: {env: [{name: A, value: b}]}}`)
	t.Run("before all is read", func(t *testing.T) {
		_, objects := known(t)
		if _, err := NewHandler(NewCatalog(fake.NewClientset(), objects, noMetadata()), nil).Handle(t.Context(), request(t, aPod, onePod)); err == nil {
			t.Error("answered")
		}
	})
	t.Run("a TrainJob that cannot be read", func(t *testing.T) {
		catalog, objects := known(t, needsOwner)
		objects.PrependReactor("get", "trainjobs", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("etcd is slow") })
		if _, err := NewHandler(catalog, nil).Handle(t.Context(), request(t, aJobSet, ofLLM("u1"))); err == nil || !strings.Contains(err.Error(), "TrainJob nlp/llm") {
			t.Errorf("answered: %v", err)
		}
	})
}

func noMetadata() *metadatafake.FakeMetadataClient {
	return metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
}

func TestTheStatusIsWrittenAndNotAgain(t *testing.T) {
	a, b := named(t, "a", `{containers: {env: [{name: A, value: x}]}}`), named(t, "b", `{containers: {env: [{name: A, value: y}]}}`)
	_, objects := known(t, a, b)
	var patches []string
	err := wait.PollUntilContextCancel(t.Context(), 1e6, true, func(context.Context) (bool, error) {
		patches = nil
		for _, action := range objects.Actions() {
			if p, ok := action.(clienttesting.PatchAction); ok {
				patches = append(patches, p.GetName()+" "+p.GetSubresource()+" "+string(p.GetPatch()))
			}
		}
		return len(patches) >= 2, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`a status {"status":{"missing":null,"observedGeneration":1,"overlaps":[{"with":"b","first":"a","fields":["env A"]}]}}`,
		`b status {"status":{"missing":null,"observedGeneration":1,"overlaps":[{"with":"a","first":"a","fields":["env A"]}]}}`,
	} {
		if !strings.Contains(strings.Join(patches, "\n"), want) {
			t.Errorf("no %s in %v", want, patches)
		}
	}
	a.Status = Status(a, []*v1alpha1.RuntimeDefaults{a, b}, Around{})
	b.Status = Status(b, []*v1alpha1.RuntimeDefaults{a, b}, Around{})
	catalog, objects := known(t, a, b)
	if err := catalog.report(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, action := range objects.Actions() {
		if action.GetVerb() == "patch" {
			t.Errorf("written again: %v", action)
		}
	}
}

func TestWhatIsReadOfRuntimeDefaultsIsWhatWasWritten(t *testing.T) {
	d := named(t, "gpu", `{class: required, weight: 3, match: {kinds: [Pod]}, containers: {sharedMemory: {sizeLimit: 1Gi, memoryPercent: 7}}}`)
	catalog, _ := known(t, d)
	got, err := yaml.Marshal(catalog.All()[0].Spec)
	if err != nil {
		t.Fatal(err)
	}
	want, err := yaml.Marshal(d.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

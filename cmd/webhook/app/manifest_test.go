package app

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	apiadmission "k8s.io/apiserver/pkg/admission"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
	"sigs.k8s.io/yaml"

	"github.com/muster-gpu/muster/admission/queueing"
	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/manifests"
)

// manifest decodes the first object of the kind from a file of the base;
// unknown fields fail the test.
func manifest[T any](t *testing.T, file, kind string) *T {
	t.Helper()
	content, err := manifests.FS.ReadFile("base/webhook/" + file)
	if err != nil {
		t.Fatal(err)
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			t.Fatalf("%s has no %s", file, kind)
		}
		if err != nil {
			t.Fatal(err)
		}
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(document, &meta); err != nil {
			t.Fatal(err)
		}
		if meta.Kind != kind {
			continue
		}
		object := new(T)
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			t.Fatal(err)
		}
		return object
	}
}

func TestTheRegistrationFitsTheProgram(t *testing.T) {
	config := configv1alpha1.DefaultWebhook()
	registration := manifest[admissionregistrationv1.MutatingWebhookConfiguration](t, "mutating.yaml", "MutatingWebhookConfiguration")
	if registration.Name != config.Webhook.MutatingConfigurationName {
		t.Errorf("name %s", registration.Name)
	}
	if len(registration.Webhooks) != 1 {
		t.Fatalf("%d webhooks", len(registration.Webhooks))
	}
	w := registration.Webhooks[0]
	service := w.ClientConfig.Service
	if service.Name != config.Webhook.ServiceName || service.Namespace != config.Webhook.SecretNamespace || *service.Path != queueing.Path {
		t.Errorf("service %s/%s%s", service.Namespace, service.Name, *service.Path)
	}
	if w.ClientConfig.CABundle != nil {
		t.Error("a caBundle in the manifest would be put back at every apply")
	}
	if *w.FailurePolicy != admissionregistrationv1.Ignore || *w.TimeoutSeconds > 5 || *w.SideEffects != admissionregistrationv1.SideEffectClassNone {
		t.Errorf("failurePolicy %s, timeoutSeconds %d, sideEffects %s", *w.FailurePolicy, *w.TimeoutSeconds, *w.SideEffects)
	}
	namespaces, err := metav1.LabelSelectorAsSelector(w.NamespaceSelector)
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range config.ExemptNamespaces {
		if namespaces.Matches(labels.Set{"kubernetes.io/metadata.name": namespace}) {
			t.Errorf("objects of the exempt namespace %s are sent", namespace)
		}
	}
	if !namespaces.Matches(labels.Set{"kubernetes.io/metadata.name": "nlp"}) {
		t.Error("objects of a team's namespace are not sent")
	}
}

// TestOnlyWhatMayChangeIsSent evaluates the match conditions with the API
// server's own code.
func TestOnlyWhatMayChangeIsSent(t *testing.T) {
	registration := manifest[admissionregistrationv1.MutatingWebhookConfiguration](t, "mutating.yaml", "MutatingWebhookConfiguration")
	compiler := celplugin.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	matcher := webhook.NewMutatingWebhookAccessor("u", registration.Name, &registration.Webhooks[0]).GetCompiledMatcher(compiler)

	trainJobs := schema.GroupVersionResource{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: "trainjobs"}
	jobSets := schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"}
	jobs := schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	queuedJobOf := func(apiVersion, kind string) string {
		return `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"q"},"ownerReferences":[{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","name":"x","uid":"u","controller":true}]},"spec":{}}`
	}
	owner := func(apiVersion, kind, controller string) string {
		return `{"metadata":{"ownerReferences":[{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","name":"x","uid":"u"` + controller + `}]},"spec":{}}`
	}
	tests := map[string]struct {
		resource schema.GroupVersionResource
		object   string
		want     bool
	}{
		"a TrainJob with a queue":                         {trainJobs, queuedTrainJob, true},
		"a TrainJob with other labels":                    {trainJobs, `{"metadata":{"labels":{"app":"x"}},"spec":{}}`, false},
		"a TrainJob without labels":                       {trainJobs, `{"metadata":{},"spec":{}}`, false},
		"a TrainJob with an empty queue name":             {trainJobs, `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":""}},"spec":{}}`, false},
		"a JobSet with a queue":                           {jobSets, queuedTrainJob, true},
		"a JobSet that a TrainJob controls":               {jobSets, owner("trainer.kubeflow.org/v1alpha1", "TrainJob", `,"controller":true`), true},
		"a JobSet that a TrainJob of a later API does":    {jobSets, owner("trainer.kubeflow.org/v1", "TrainJob", `,"controller":true`), true},
		"a JobSet that a TrainJob owns without control":   {jobSets, owner("trainer.kubeflow.org/v1alpha1", "TrainJob", ``), false},
		"a JobSet whose TrainJob says controller: false":  {jobSets, owner("trainer.kubeflow.org/v1alpha1", "TrainJob", `,"controller":false`), false},
		"a JobSet that another kind controls":             {jobSets, owner("example.com/v1", "TrainJob", `,"controller":true`), false},
		"a Job with a queue":                              {jobs, queuedTrainJob, true},
		"a Job without a queue":                           {jobs, `{"metadata":{"labels":{"app":"x"}},"spec":{}}`, false},
		"a queued Job of a CronJob":                       {jobs, queuedJobOf("batch/v1", "CronJob"), true},
		"a queued Job of a JobSet":                        {jobs, queuedJobOf("jobset.x-k8s.io/v1alpha2", "JobSet"), false},
		"a queued Job of another API's JobSet":            {jobs, queuedJobOf("example.com/v1", "JobSet"), true},
		"a Job that a TrainJob controls":                  {jobs, owner("trainer.kubeflow.org/v1alpha1", "TrainJob", `,"controller":true`), false},
		"a JobSet without labels and owner":               {jobSets, `{"metadata":{},"spec":{}}`, false},
		"a TrainJob that something controls, but unqueue": {trainJobs, owner("trainer.kubeflow.org/v1alpha1", "TrainJob", `,"controller":true`), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			kind := tc.resource.GroupVersion().WithKind(map[string]string{"trainjobs": "TrainJob", "jobsets": "JobSet", "jobs": "Job"}[tc.resource.Resource])
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(tc.object), &object.Object); err != nil {
				t.Fatal(err)
			}
			object.SetGroupVersionKind(kind)
			attributes := &apiadmission.VersionedAttributes{
				Attributes: apiadmission.NewAttributesRecord(object, nil, kind, "nlp", "llm", tc.resource, "",
					apiadmission.Create, &metav1.CreateOptions{}, false, nil),
				VersionedKind: kind, VersionedObject: apiadmission.NewLazyObject(object),
			}
			got := matcher.Match(t.Context(), attributes, nil, nil)
			if got.Error != nil {
				t.Fatal(got.Error)
			}
			if got.Matches != tc.want {
				t.Errorf("sent: %v, want %v", got.Matches, tc.want)
			}
		})
	}
}

// TestTheRolesAllowWhatTheProgramDoes asks the API server's RBAC code whether
// the manifests allow each call that the running webhook makes, and whether
// each thing that they allow is used.
func TestTheRolesAllowWhatTheProgramDoes(t *testing.T) {
	cluster := manifest[rbacv1.ClusterRole](t, "rbac.yaml", "ClusterRole").Rules
	local := manifest[rbacv1.Role](t, "rbac.yaml", "Role").Rules

	r := start(t, nil)
	caller := r.caller()
	if _, err := r.review(caller, queuedTrainJob); err != nil {
		t.Fatal(err)
	}
	if _, err := r.reviewOf(caller, metav1.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"}, `{"metadata":{"ownerReferences":[
		{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","name":"llm","uid":"u","controller":true}]},
		"spec":{"replicatedJobs":[{"template":{"spec":{"template":{"spec":{}}}}}]}}`); err != nil {
		t.Fatal(err)
	}
	// The watch starts beside the first look.
	deadline := time.After(30 * time.Second)
	for !slices.ContainsFunc(r.client.Actions(), func(a clienttesting.Action) bool { return a.GetVerb() == "watch" }) {
		select {
		case <-deadline:
			t.Fatal("the configuration is not watched")
		case <-time.After(5 * time.Millisecond):
		}
	}
	used := map[string]bool{}
	for _, action := range append(r.client.Actions(), r.reader.Actions()...) {
		attributes := authorizer.AttributesRecord{
			Verb: action.GetVerb(), APIGroup: action.GetResource().Group, Resource: action.GetResource().Resource,
			Namespace: action.GetNamespace(), ResourceRequest: true,
		}
		switch a := action.(type) {
		case clienttesting.GetAction: // patches too
			attributes.Name = a.GetName()
		case clienttesting.ListAction:
			// The API server takes the name from a field selector for it.
			attributes.Name, _ = a.GetListRestrictions().Fields.RequiresExactMatch("metadata.name")
		case clienttesting.WatchAction:
			attributes.Name, _ = a.GetWatchRestrictions().Fields.RequiresExactMatch("metadata.name")
		}
		used[attributes.Verb+" "+attributes.Resource] = true
		rules := cluster
		if attributes.Namespace == "muster-system" {
			rules = append(rules[:len(rules):len(rules)], local...)
		}
		if !rbac.RulesAllow(attributes, rules...) {
			t.Errorf("not allowed: %s %s %q in namespace %q", attributes.Verb, attributes.Resource, attributes.Name, attributes.Namespace)
		}
	}
	used["update secrets"] = true // at a renewal
	allowed := map[string]bool{}
	for _, rule := range append(cluster, local...) {
		for _, verb := range rule.Verbs {
			allowed[verb+" "+rule.Resources[0]] = true
		}
	}
	if diff := cmp.Diff(used, allowed); diff != "" {
		t.Errorf("verbs (-used +allowed):\n%s", diff)
	}
}

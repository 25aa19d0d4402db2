package app

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	apiadmission "k8s.io/apiserver/pkg/admission"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	objectpredicate "k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/object"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	clienttesting "k8s.io/client-go/testing"
	kubecorev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
	"sigs.k8s.io/yaml"

	"github.com/muster-gpu/muster/admission/defaults"
	"github.com/muster-gpu/muster/admission/queueing"
	"github.com/muster-gpu/muster/admission/validate"
	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	gpus "github.com/muster-gpu/muster/api/gpu"
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
	registration := manifest[admissionregistrationv1.MutatingWebhookConfiguration](t, "registration/mutating.yaml", "MutatingWebhookConfiguration")
	if registration.Name != config.Webhook.MutatingConfigurationName {
		t.Errorf("name %s", registration.Name)
	}
	for _, w := range registration.Webhooks {
		t.Run(w.Name, func(t *testing.T) {
			service, want := w.ClientConfig.Service, queueing.Path
			if strings.HasSuffix(w.Name, ".defaults.muster.dev") {
				want = defaults.Path
			}
			if service.Name != config.Webhook.ServiceName || service.Namespace != config.Webhook.SecretNamespace || *service.Path != want {
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
			if namespaces.Matches(labels.Set{"kubernetes.io/metadata.name": "nlp", "muster.dev/webhook": "ignore"}) {
				t.Error("objects of a namespace that is to be ignored are sent")
			}
			if !namespaces.Matches(labels.Set{"kubernetes.io/metadata.name": "nlp"}) {
				t.Error("objects of a team's namespace are not sent")
			}
		})
	}
}

// TestNoWildcardReachesTheWebhook reads what the registration says of pods and of
// updates, so that no slip in a wildcard can make it one that every object passes,
// and none that is stored already.
func TestNoWildcardReachesTheWebhook(t *testing.T) {
	registration := manifest[admissionregistrationv1.MutatingWebhookConfiguration](t, "registration/mutating.yaml", "MutatingWebhookConfiguration")
	var ofPods []admissionregistrationv1.MutatingWebhook
	for _, w := range registration.Webhooks {
		for _, rule := range w.Rules {
			for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.APIVersions} {
				if slices.ContainsFunc(list, func(s string) bool { return strings.ContainsAny(s, "*/") }) {
					t.Errorf("%s has a wildcard or a subresource: %v", w.Name, list)
				}
			}
			operations := []admissionregistrationv1.OperationType{admissionregistrationv1.Create}
			if w.Name == "jobsets.defaults.muster.dev" {
				operations = append(operations, admissionregistrationv1.Update)
			}
			if diff := cmp.Diff(operations, rule.Operations); diff != "" {
				t.Errorf("%s operations (-want +got):\n%s", w.Name, diff)
			}
			if slices.Contains(rule.APIGroups, "") || slices.Contains(rule.Resources, "pods") {
				ofPods = append(ofPods, w)
			}
		}
	}
	if len(ofPods) != 2 || ofPods[0].Name != "pods.queueing.muster.dev" || ofPods[1].Name != "pods.defaults.muster.dev" {
		t.Fatalf("%d webhooks are asked about pods: %v", len(ofPods), ofPods)
	}
	for _, w := range ofPods {
		if seconds := *w.TimeoutSeconds; seconds > 2 || len(w.Rules) != 1 {
			t.Errorf("%s that hangs delays a pod by %d s", w.Name, seconds)
		}
	}
	want := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: queueing.QueueLabel, Operator: metav1.LabelSelectorOpExists},
	}}
	if diff := cmp.Diff(want, ofPods[0].ObjectSelector); diff != "" {
		t.Errorf("objectSelector (-want +got):\n%s", diff)
	}
}

// sentTo lists the webhooks of the registration that the API server calls for
// a new object, found with its own code: rules, object selector, conditions. Only
// those whose names end in that are looked at, and it is cut off.
func sentTo(t *testing.T, ending string, resource schema.GroupVersionResource, content string) []string {
	t.Helper()
	return calledFor(t, ending, resource, apiadmission.Create, content, "")
}

// calledFor is sentTo for any operation; old is the object before an update.
func calledFor(t *testing.T, ending string, resource schema.GroupVersionResource, operation apiadmission.Operation, content, old string) []string {
	t.Helper()
	registration := manifest[admissionregistrationv1.MutatingWebhookConfiguration](t, "registration/mutating.yaml", "MutatingWebhookConfiguration")
	compiler := celplugin.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	gvk := resource.GroupVersion().WithKind(kinds[resource])
	object := readObject(t, gvk, content)
	attributes := &apiadmission.VersionedAttributes{VersionedKind: gvk, VersionedObject: apiadmission.NewLazyObject(object)}
	if operation == apiadmission.Update {
		before := readObject(t, gvk, old)
		attributes.VersionedOldObject = apiadmission.NewLazyObject(before)
		attributes.Attributes = apiadmission.NewAttributesRecord(object, before, gvk, "nlp", "llm", resource, "", operation, &metav1.UpdateOptions{}, false, nil)
	} else {
		attributes.Attributes = apiadmission.NewAttributesRecord(object, nil, gvk, "nlp", "llm", resource, "", operation, &metav1.CreateOptions{}, false, nil)
	}
	names := []string{}
	for i := range registration.Webhooks {
		w := &registration.Webhooks[i]
		if !strings.HasSuffix(w.Name, ending) {
			continue
		}
		if w.ObjectSelector == nil {
			w.ObjectSelector = &metav1.LabelSelector{} // the API server's default
		}
		accessor := webhook.NewMutatingWebhookAccessor("u", registration.Name, w)
		ruled := slices.ContainsFunc(w.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
			m := rules.Matcher{Rule: rule, Attr: attributes}
			return m.Matches()
		})
		if !ruled {
			continue
		}
		if selected, err := (&objectpredicate.Matcher{}).MatchObjectSelector(accessor, attributes); err != nil {
			t.Fatal(err)
		} else if !selected {
			continue
		}
		got := accessor.GetCompiledMatcher(compiler).Match(t.Context(), attributes, nil, nil)
		if got.Error != nil {
			t.Fatalf("%s: %v", w.Name, got.Error)
		}
		if got.Matches {
			names = append(names, strings.TrimSuffix(w.Name, ending))
		}
	}
	return names
}

// readObject reads an object as webhooks get it: a pod has the API server's defaults.
func readObject(t *testing.T, gvk schema.GroupVersionKind, content string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(content), &object.Object); err != nil {
		t.Fatal(err)
	}
	if gvk == corev1.SchemeGroupVersion.WithKind("Pod") {
		pod := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod); err != nil {
			t.Fatal(err)
		}
		kubecorev1.SetObjectDefaults_Pod(pod)
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
		if err != nil {
			t.Fatal(err)
		}
		object.Object = fields
	}
	object.SetGroupVersionKind(gvk)
	return object
}

var admissionPolicies = schema.GroupVersionResource{Group: "muster.dev", Version: "v1alpha1", Resource: "admissionpolicies"}

var (
	trainJobs   = schema.GroupVersionResource{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: "trainjobs"}
	jobSets     = schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"}
	jobs        = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	pyTorch     = schema.GroupVersionResource{Group: "kubeflow.org", Version: "v1", Resource: "pytorchjobs"}
	mpi         = schema.GroupVersionResource{Group: "kubeflow.org", Version: "v2beta1", Resource: "mpijobs"}
	notebooks   = schema.GroupVersionResource{Group: "kubeflow.org", Version: "v1", Resource: "notebooks"}
	cronJobs    = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	workerSets  = schema.GroupVersionResource{Group: "leaderworkerset.x-k8s.io", Version: "v1", Resource: "leaderworkersets"}
	kinds       = map[schema.GroupVersionResource]string{
		cronJobs: "CronJob", deployments: "Deployment", workerSets: "LeaderWorkerSet",
		trainJobs: "TrainJob", jobSets: "JobSet", jobs: "Job", pods: "Pod", pyTorch: "PyTorchJob", mpi: "MPIJob", notebooks: "Notebook",
	}
)

func TestOnlyWhatMayChangeIsSent(t *testing.T) {
	const (
		queued    = ""          // queueing.muster.dev
		ofNoQueue = "defaults." // defaults.queueing.muster.dev
		ofPods    = "pods."     // pods.queueing.muster.dev
		training  = "training." // training.queueing.muster.dev
	)
	const plain = `{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1"}}},{"name":"d"}]}}`
	asks := func(resource string) string {
		return `{"spec":{"containers":[{"name":"c"},{"name":"d","resources":{"limits":{"cpu":"1","` + resource + `":"1"}}}]}}`
	}
	owned := func(meta, apiVersion, kind, controller, spec string) string {
		return `{"metadata":{` + meta + `"ownerReferences":[{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","name":"x","uid":"u"` + controller + `}]},"spec":{` + spec + `}}`
	}
	const controls, named = `,"controller":true`, `"labels":{"kueue.x-k8s.io/queue-name":"q"},`
	job := func(template string) string { return `"template":` + template }
	jobSet := func(template string) string {
		return `"replicatedJobs":[{"template":{"spec":{"template":` + plain + `}}},{"template":{"spec":{"template":` + template + `}}}]`
	}
	gpu := asks("nvidia.com/gpu")
	const labelled = `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"q"}},"spec":`
	tests := map[string]struct {
		resource schema.GroupVersionResource
		object   string
		want     []string
	}{
		"a TrainJob with a queue":                {trainJobs, queuedTrainJob, []string{queued}},
		"a TrainJob with other labels":           {trainJobs, `{"metadata":{"labels":{"app":"x"}},"spec":{}}`, []string{ofNoQueue}},
		"a TrainJob without labels":              {trainJobs, `{"metadata":{},"spec":{}}`, []string{ofNoQueue}},
		"a TrainJob with an empty queue name":    {trainJobs, `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":""}},"spec":{}}`, []string{ofNoQueue}},
		"a TrainJob that a TrainJob controls":    {trainJobs, owned("", "trainer.kubeflow.org/v1alpha1", "TrainJob", controls, ""), nil},
		"a JobSet with a queue":                  {jobSets, queuedTrainJob, []string{queued}},
		"a JobSet without labels and owner":      {jobSets, `{"metadata":{},"spec":{}}`, nil},
		"a JobSet with GPUs":                     {jobSets, `{"metadata":{},"spec":{` + jobSet(gpu) + `}}`, []string{ofNoQueue}},
		"a JobSet without GPUs":                  {jobSets, `{"metadata":{},"spec":{` + jobSet(plain) + `}}`, nil},
		"a JobSet that a TrainJob controls":      {jobSets, owned("", "trainer.kubeflow.org/v1alpha1", "TrainJob", controls, jobSet(gpu)), []string{queued}},
		"a JobSet that a later API's does":       {jobSets, owned("", "trainer.kubeflow.org/v1", "TrainJob", controls, ""), []string{queued}},
		"a JobSet that a TrainJob only owns":     {jobSets, owned("", "trainer.kubeflow.org/v1alpha1", "TrainJob", "", jobSet(gpu)), []string{ofNoQueue}},
		"a JobSet whose TrainJob does not":       {jobSets, owned("", "trainer.kubeflow.org/v1alpha1", "TrainJob", `,"controller":false`, ""), nil},
		"a JobSet that another kind controls":    {jobSets, owned("", "example.com/v1", "TrainJob", controls, jobSet(gpu)), []string{ofNoQueue}},
		"a Job with a queue":                     {jobs, labelled + `{` + job(gpu) + `}}`, []string{queued}},
		"a Job of no queue and no GPUs":          {jobs, `{"metadata":{"labels":{"app":"x"}},"spec":{` + job(plain) + `}}`, nil},
		"a Job with GPUs":                        {jobs, `{"metadata":{"labels":{"app":"x"}},"spec":{` + job(gpu) + `}}`, []string{ofNoQueue}},
		"a Job whose init container asks for it": {jobs, `{"metadata":{},"spec":{"template":{"spec":{"initContainers":[{"resources":{"limits":{"nvidia.com/gpu":1}}}],"containers":[{"name":"c"}]}}}}`, []string{ofNoQueue}},
		"a queued Job of a CronJob":              {jobs, owned(named, "batch/v1", "CronJob", controls, job(gpu)), []string{queued}},
		"a Job of a CronJob, with GPUs":          {jobs, owned("", "batch/v1", "CronJob", controls, job(gpu)), []string{ofNoQueue}},
		"a queued Job of a JobSet":               {jobs, owned(named, "jobset.x-k8s.io/v1alpha2", "JobSet", controls, job(gpu)), nil},
		"a Job of a JobSet, with GPUs":           {jobs, owned("", "jobset.x-k8s.io/v1alpha2", "JobSet", controls, job(gpu)), nil},
		"a queued Job of another API's JobSet":   {jobs, owned(named, "example.com/v1", "JobSet", controls, job(plain)), []string{queued}},
		"a queued Job of an MPIJob":              {jobs, owned(named, "kubeflow.org/v2beta1", "MPIJob", controls, job(gpu)), nil},
		"a Job of an MPIJob, with GPUs":          {jobs, owned("", "kubeflow.org/v2beta1", "MPIJob", controls, job(gpu)), nil},
		"a PyTorchJob":                           {pyTorch, `{"metadata":{},"spec":{}}`, []string{training}},
		"a queued MPIJob":                        {mpi, queuedTrainJob, []string{training}},
		"a Notebook":                             {notebooks, queuedTrainJob, nil},
		"a pod with a queue":                     {pods, labelled + `{"schedulerName":"default-scheduler"}}`, []string{ofPods}},
		"a pod with a queue and no scheduler":    {pods, labelled + `{}}`, []string{ofPods}},
		"a pod with an empty queue name":         {pods, `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":""}},"spec":{}}`, nil},
		"a pod of a queued job":                  {pods, labelled + `{"schedulerName":"muster"}}`, nil},
		"a queued pod that was made for a node":  {pods, labelled + `{"schedulerName":"default-scheduler","nodeName":"n0"}}`, nil},
		"a pod with GPUs":                        {pods, `{"metadata":{"labels":{"app":"x"}},` + gpu[1:], nil},
		"a pod without labels":                   {pods, `{"metadata":{},"spec":{}}`, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := sentTo(t, "queueing.muster.dev", tc.resource, tc.object)
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("sent to (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("the names of GPUs are those that Muster knows", func(t *testing.T) {
		names := []string{"cpu", "nvidia.com/gpumem", "nvidia.com/migx", "example.com/nvidia.com/mig-1g"}
		for _, name := range gpus.Names() {
			names = append(names, strings.Replace(name, "*", "1g.10gb", 1))
		}
		for _, name := range names {
			var want []string
			if gpus.Is(corev1.ResourceName(name)) {
				want = []string{ofNoQueue}
			}
			got := sentTo(t, "queueing.muster.dev", jobs, `{"metadata":{},"spec":{`+job(asks(name))+`}}`)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("a Job that asks for %s is sent to (-want +got):\n%s", name, diff)
			}
		}
	})
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
	if err := r.objects.Tracker().Create(runtimeDefaults, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "muster.dev/v1alpha1", "kind": "RuntimeDefaults", "metadata": map[string]any{"name": "gpu", "generation": int64(1)},
		"spec": map[string]any{"match": map[string]any{"queues": []any{"q"}}},
	}}, ""); err != nil {
		t.Fatal(err)
	}
	becomes := func(what string, done func(clienttesting.Action) bool) {
		t.Helper()
		deadline := time.After(30 * time.Second)
		for !slices.ContainsFunc(slices.Concat(r.client.Actions(), r.objects.Actions()), done) {
			select {
			case <-deadline:
				t.Fatal(what)
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	becomes("no status is written", func(a clienttesting.Action) bool { return a.GetSubresource() == "status" })
	if err := r.objects.Tracker().Create(admissionPolicies, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "muster.dev/v1alpha1", "kind": "AdmissionPolicy", "metadata": map[string]any{"name": "p", "generation": int64(1)},
		"spec": map[string]any{"rego": "package p\ndeny contains \"no\" if input.request.name == \"x\""},
	}}, ""); err != nil {
		t.Fatal(err)
	}
	becomes("no status of a policy is written", func(a clienttesting.Action) bool {
		return a.GetSubresource() == "status" && a.GetResource() == admissionPolicies
	})
	for _, kind := range []string{"ClusterTrainingRuntime", "TrainingRuntime"} {
		if _, err := r.reviewAt(caller, validate.Path, metav1.GroupVersionKind{Group: "trainer.kubeflow.org", Version: "v1alpha1", Kind: "TrainJob"},
			`{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","metadata":{},"spec":{"runtimeRef":{"name":"torch","kind":"`+kind+`"}}}`); err != nil {
			t.Fatal(err)
		}
	}
	for apiVersion, owners := range map[string]string{
		"v1": "Pod", "jobset.x-k8s.io/v1alpha2": "JobSet", "batch/v1": "Job CronJob", "apps/v1": "ReplicaSet Deployment StatefulSet DaemonSet",
		"kubeflow.org/v1": "PyTorchJob TFJob XGBoostJob PaddleJob JAXJob MPIJob Notebook Experiment Trial",
		"ray.io/v1":       "RayCluster RayJob RayService", "leaderworkerset.x-k8s.io/v1": "LeaderWorkerSet", "argoproj.io/v1alpha1": "Workflow",
	} {
		for _, kind := range strings.Fields(owners) {
			if _, err := r.reviewAt(caller, validate.Path, metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
				`{"apiVersion":"v1","kind":"Pod","metadata":{"ownerReferences":[{"apiVersion":"`+apiVersion+`","kind":"`+kind+`","name":"x","uid":"u","controller":true}]},"spec":{"containers":[]}}`); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, around := range []string{
		`"metadata":{"labels":{"scheduling.x-k8s.io/pod-group":"g"}},"spec":{"containers":[]}`,
		`"metadata":{},"spec":{"containers":[],"schedulingGroup":{"podGroupName":"g"}}`,
		`"metadata":{},"spec":{"containers":[],"resourceClaims":[{"name":"g","resourceClaimTemplateName":"g"}]}`,
		`"metadata":{},"spec":{"containers":[],"resourceClaims":[{"name":"g","resourceClaimName":"g"}]}`,
	} {
		if _, err := r.reviewAt(caller, validate.Path, metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, `{"apiVersion":"v1","kind":"Pod",`+around+`}`); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{queueing.Path, defaults.Path} {
		if _, err := r.reviewAt(caller, path, metav1.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"}, `{"metadata":{"ownerReferences":[
			{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","name":"llm","uid":"u","controller":true}]},
			"spec":{"replicatedJobs":[{"template":{"spec":{"template":{"spec":{}}}}}]}}`); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.review(caller, `{"metadata":{},"spec":{}}`); err != nil {
		t.Fatal(err)
	}
	// The watch starts beside the first look.
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations", "admissionpolicies", "configmaps", "localqueues", "clusterqueues", "cohorts", "gpunodes"} {
		becomes(resource+" are not watched", func(a clienttesting.Action) bool {
			return a.GetVerb() == "watch" && a.GetResource().Resource == resource
		})
	}
	becomes("nothing is audited", func(a clienttesting.Action) bool {
		return a.GetVerb() == "list" && a.GetResource().Resource == "rayclusters"
	})
	used := map[string]bool{}
	for _, action := range slices.Concat(r.client.Actions(), r.reader.Actions(), r.objects.Actions()) {
		attributes := authorizer.AttributesRecord{
			Verb: action.GetVerb(), APIGroup: action.GetResource().Group, Resource: action.GetResource().Resource,
			Subresource: action.GetSubresource(), Namespace: action.GetNamespace(), ResourceRequest: true,
		}
		switch a := action.(type) {
		case clienttesting.GetAction: // patches too
			attributes.Name = a.GetName()
		case clienttesting.ListAction:
			// The API server takes the name from a field selector for it.
			attributes.Name, _ = a.GetListRestrictions().Fields.RequiresExactMatch("metadata.name")
		case clienttesting.WatchAction:
			attributes.Name, _ = a.GetWatchRestrictions().Fields.RequiresExactMatch("metadata.name")
		case clienttesting.UpdateAction:
			attributes.Name = a.GetObject().(metav1.Object).GetName()
		}
		used[strings.TrimSuffix(attributes.Verb+" "+attributes.Resource+"/"+attributes.Subresource, "/")] = true
		rules := cluster
		if attributes.Namespace == "muster-system" {
			rules = append(rules[:len(rules):len(rules)], local...)
		}
		if !rbac.RulesAllow(attributes, rules...) {
			t.Errorf("not allowed: %s %s %q in namespace %q", attributes.Verb, attributes.Resource, attributes.Name, attributes.Namespace)
		}
	}
	used["update secrets"], used["update leases"] = true, true // at a renewal
	allowed := map[string]bool{}
	for _, rule := range append(cluster, local...) {
		for _, verb := range rule.Verbs {
			for _, resource := range rule.Resources {
				allowed[verb+" "+resource] = true
			}
		}
	}
	if diff := cmp.Diff(used, allowed); diff != "" {
		t.Errorf("verbs (-used +allowed):\n%s", diff)
	}
}

package app

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apiadmission "k8s.io/apiserver/pkg/admission"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/muster-gpu/muster/admission/audit"
	"github.com/muster-gpu/muster/admission/validate"
	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	gpus "github.com/muster-gpu/muster/api/gpu"
)

func validatingRegistration(t *testing.T) *admissionregistrationv1.ValidatingWebhookConfiguration {
	t.Helper()
	return manifest[admissionregistrationv1.ValidatingWebhookConfiguration](t, "registration/validating.yaml", "ValidatingWebhookConfiguration")
}

func TestTheRegistrationOfPoliciesFitsTheProgram(t *testing.T) {
	config := configv1alpha1.DefaultWebhook()
	registration := validatingRegistration(t)
	if registration.Name != config.Webhook.ValidatingConfigurationName {
		t.Errorf("name %s", registration.Name)
	}
	for _, w := range registration.Webhooks {
		t.Run(w.Name, func(t *testing.T) {
			service := w.ClientConfig.Service
			if service.Name != config.Webhook.ServiceName || service.Namespace != config.Webhook.SecretNamespace || *service.Path != validate.Path {
				t.Errorf("service %s/%s%s", service.Namespace, service.Name, *service.Path)
			}
			if w.ClientConfig.CABundle != nil {
				t.Error("a caBundle in the manifest would be put back at every apply")
			}
			if *w.FailurePolicy != admissionregistrationv1.Fail || *w.TimeoutSeconds != 3 || *w.SideEffects != admissionregistrationv1.SideEffectClassNone {
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
			for _, rule := range w.Rules {
				for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.APIVersions} {
					if slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, "*") }) {
						t.Errorf("a wildcard: %v", list)
					}
				}
				if slices.Contains(rule.Operations, admissionregistrationv1.Delete) || slices.Contains(rule.Operations, admissionregistrationv1.OperationAll) {
					t.Error("what is deleted is asked about, and could be kept from going")
				}
			}
		})
	}
}

func TestWhatIsAuditedIsWhatIsAskedAbout(t *testing.T) {
	asked, audited := sets.New[string](), sets.New[string]()
	for _, w := range validatingRegistration(t).Webhooks {
		for _, rule := range w.Rules {
			for _, resource := range rule.Resources {
				if name, sub, _ := strings.Cut(resource, "/"); sub == "" {
					asked.Insert(rule.APIGroups[0] + "/" + name)
				}
			}
		}
	}
	for _, resource := range audit.Resources() {
		audited.Insert(resource.Group + "/" + resource.Resource)
	}
	if diff := cmp.Diff(sets.List(asked), sets.List(audited)); diff != "" {
		t.Errorf("resources (-asked +audited):\n%s", diff)
	}
}

// reviewed are the webhooks of the registration that the API server calls, found with its
// own code; old is empty for a new object.
func reviewed(t *testing.T, resource schema.GroupVersionResource, subresource, content, old string, by user.Info) []string {
	t.Helper()
	registration := validatingRegistration(t)
	compiler := celplugin.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	gvk := resource.GroupVersion().WithKind(kinds[resource])
	object := readObject(t, gvk, content)
	attributes := &apiadmission.VersionedAttributes{VersionedKind: gvk, VersionedObject: apiadmission.NewLazyObject(object)}
	if old != "" {
		before := readObject(t, gvk, old)
		attributes.VersionedOldObject = apiadmission.NewLazyObject(before)
		attributes.Attributes = apiadmission.NewAttributesRecord(object, before, gvk, "nlp", "llm", resource, subresource, apiadmission.Update, &metav1.UpdateOptions{}, false, by)
	} else {
		attributes.Attributes = apiadmission.NewAttributesRecord(object, nil, gvk, "nlp", "llm", resource, subresource, apiadmission.Create, &metav1.CreateOptions{}, false, by)
	}
	var names []string
	for i := range registration.Webhooks {
		w := &registration.Webhooks[i]
		accessor := webhook.NewValidatingWebhookAccessor("u", registration.Name, w)
		if !slices.ContainsFunc(w.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
			m := rules.Matcher{Rule: rule, Attr: attributes}
			return m.Matches()
		}) {
			continue
		}
		got := accessor.GetCompiledMatcher(compiler).Match(t.Context(), attributes, nil, nil)
		if got.Error != nil {
			t.Fatalf("%s: %v", w.Name, got.Error)
		}
		if got.Matches {
			names = append(names, strings.TrimSuffix(w.Name, ".policies.muster.dev"))
		}
	}
	return names
}

func TestPoliciesAreAskedAboutGPUsAndQueuesAlone(t *testing.T) {
	const pod, workload, template = "pods", "workloads", "templates"
	asks := func(resources string) string {
		return `{"containers":[{"name":"c"},{"name":"d","image":"a","resources":` + resources + `}]}`
	}
	gpu, plain := asks(`{"limits":{"nvidia.com/gpu":"1"}}`), asks(`{"limits":{"cpu":"1"}}`)
	of := func(meta, spec string) string { return `{"metadata":{` + meta + `},"spec":` + spec + `}` }
	const followed = `"ownerReferences":[{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","name":"x","uid":"u","controller":true}]`
	const queued = `"labels":{"kueue.x-k8s.io/queue-name":"q"}`
	job := func(spec string) string { return `{"template":{"spec":` + spec + `}}` }
	scheduler := &user.DefaultInfo{Name: "system:serviceaccount:muster-system:muster-scheduler"}
	kubelet := &user.DefaultInfo{Name: "system:node:n", Groups: []string{"system:nodes"}}
	tests := map[string]struct {
		resource    schema.GroupVersionResource
		subresource string
		object, old string
		by          user.Info
		want        []string
	}{
		"a pod without GPUs":                          {resource: pods, object: of("", plain)},
		"a pod with GPUs as its limit":                {resource: pods, object: of("", gpu), want: []string{pod}},
		"as its request":                              {resource: pods, object: of("", asks(`{"requests":{"amd.com/gpu":1}}`)), want: []string{pod}},
		"a pod with a claim":                          {resource: pods, object: of("", asks(`{"claims":[{"name":"x"}]}`)), want: []string{pod}},
		"a pod with devices as a resource":            {resource: pods, object: of("", asks(`{"limits":{"deviceclass.resource.kubernetes.io/g":1}}`)), want: []string{pod}},
		"a pod whose init container asks":             {resource: pods, object: of("", `{"containers":[{"name":"c"}],"initContainers":[{"name":"i","resources":{"limits":{"nvidia.com/gpu":1}}}]}`), want: []string{pod}},
		"a queued pod without GPUs":                   {resource: pods, object: of(queued, plain), want: []string{pod}},
		"a static pod that a kubelet reports":         {resource: pods, object: of("", gpu), by: kubelet},
		"a pod that only loses its finalizer":         {resource: pods, object: of("", gpu), old: of(`"finalizers":["x"]`, gpu)},
		"a pod whose label changes":                   {resource: pods, object: of(`"labels":{"a":"b"}`, gpu), old: of("", gpu), want: []string{pod}},
		"a pod whose annotation goes":                 {resource: pods, object: of("", gpu), old: of(`"annotations":{"a":"b"}`, gpu), want: []string{pod}},
		"a pod that gets another image":               {resource: pods, object: of("", gpu), old: of("", strings.Replace(gpu, `"a"`, `"b"`, 1)), want: []string{pod}},
		"a pod whose gates the scheduler takes":       {resource: pods, object: of("", gpu), old: of("", `{"schedulingGates":[],`+gpu[1:]), by: scheduler},
		"a container that looks into a pod with GPUs": {resource: pods, subresource: "ephemeralcontainers", object: of("", `{"ephemeralContainers":[{"name":"e"}],`+gpu[1:]), old: of("", gpu), want: []string{pod}},
		"into one without":                            {resource: pods, subresource: "ephemeralcontainers", object: of("", `{"ephemeralContainers":[{"name":"e"}],`+plain[1:]), old: of("", plain)},
		"the status of a pod with GPUs":               {resource: pods, subresource: "status", object: of("", gpu), old: of("", gpu)},
		"a TrainJob":                                  {resource: trainJobs, object: of("", `{}`), want: []string{workload}},
		"one that the scheduler resumes":              {resource: trainJobs, object: of("", `{"suspend":false}`), old: of("", `{"suspend":true}`), by: scheduler},
		"one that is resumed by somebody else":        {resource: trainJobs, object: of("", `{"suspend":false}`), old: of("", `{"suspend":true}`), want: []string{workload}},
		"one whose status alone changes":              {resource: trainJobs, object: `{"metadata":{},"spec":{},"status":{"a":1}}`, old: of("", `{}`)},
		"a JobSet":                                    {resource: jobSets, object: of("", `{}`), want: []string{workload}},
		"a JobSet of a TrainJob":                      {resource: jobSets, object: of(followed, `{}`), want: []string{workload}},
		"one that the Trainer stops":                  {resource: jobSets, object: of(followed, `{"suspend":true}`), old: of(followed, `{}`)},
		"one that the Trainer starts":                 {resource: jobSets, object: of(followed, `{"suspend":false}`), old: of(followed, `{"suspend":true}`)},
		"one that somebody stops":                     {resource: jobSets, object: of("", `{"suspend":true}`), old: of("", `{}`)},
		"one that nobody's TrainJob starts":           {resource: jobSets, object: of("", `{"suspend":false}`), old: of("", `{"suspend":true}`), want: []string{workload}},
		"one that somebody says is a TrainJob's":      {resource: jobSets, object: of(followed, `{"suspend":false}`), old: of("", `{"suspend":true}`), want: []string{workload}},
		"a Notebook":                                  {resource: notebooks, object: of("", `{}`), want: []string{workload}},
		"a PyTorchJob":                                {resource: pyTorch, object: of("", `{}`), want: []string{workload}},
		"a Job without GPUs":                          {resource: jobs, object: of("", job(plain))},
		"a Job with GPUs":                             {resource: jobs, object: of("", job(gpu)), want: []string{template}},
		"a queued Job":                                {resource: jobs, object: of(queued, job(plain)), want: []string{template}},
		"a Job of a JobSet":                           {resource: jobs, object: of(`"ownerReferences":[{"apiVersion":"jobset.x-k8s.io/v1alpha2","kind":"JobSet","name":"x","uid":"u","controller":true}]`, job(gpu))},
		"a CronJob with GPUs":                         {resource: cronJobs, object: of("", `{"jobTemplate":{"spec":`+job(gpu)+`}}`), want: []string{template}},
		"a Deployment with GPUs":                      {resource: deployments, object: of("", job(gpu)), want: []string{template}},
		"a Deployment without":                        {resource: deployments, object: of("", job(plain))},
		"a Deployment with fewer replicas":            {resource: deployments, object: of("", `{"replicas":1,`+job(gpu)[1:]), old: of("", `{"replicas":2,`+job(gpu)[1:])},
		"one with more":                               {resource: deployments, object: of("", `{"replicas":2,`+job(gpu)[1:]), old: of("", `{"replicas":1,`+job(gpu)[1:]), want: []string{template}},
		"one with fewer, of another image":            {resource: deployments, object: of("", `{"replicas":1,`+job(strings.Replace(gpu, `"a"`, `"b"`, 1))[1:]), old: of("", `{"replicas":2,`+job(gpu)[1:]), want: []string{template}},
		"one with fewer, and another label":           {resource: deployments, object: of(`"labels":{"a":"b"}`, `{"replicas":1,`+job(gpu)[1:]), old: of("", `{"replicas":2,`+job(gpu)[1:]), want: []string{template}},
		"one with fewer, and a field less":            {resource: deployments, object: of("", `{"replicas":1,`+job(gpu)[1:]), old: of("", `{"paused":true,"replicas":2,`+job(gpu)[1:]), want: []string{template}},
		"one with fewer, as kubectl applies it":       {resource: deployments, object: of(`"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"1"}`, `{"replicas":1,`+job(gpu)[1:]), old: of(`"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"2"}`, `{"replicas":2,`+job(gpu)[1:])},
		"a Deployment whose annotation changes":       {resource: deployments, object: of(`"annotations":{"a":"1"}`, job(gpu)), old: of(`"annotations":{"a":"2"}`, job(gpu)), want: []string{template}},
		"a Deployment whose annotation goes":          {resource: deployments, object: of("", job(gpu)), old: of(`"annotations":{"a":"2"}`, job(gpu)), want: []string{template}},
		"a Job with less parallelism":                 {resource: jobs, object: of(queued, `{"parallelism":1,`+job(gpu)[1:]), old: of(queued, `{"parallelism":2,`+job(gpu)[1:])},
		"a Job that is stopped":                       {resource: jobs, object: of(queued, `{"suspend":true,`+job(gpu)[1:]), old: of(queued, `{"suspend":false,`+job(gpu)[1:])},
		"a Job that is started":                       {resource: jobs, object: of(queued, `{"suspend":false,`+job(gpu)[1:]), old: of(queued, `{"suspend":true,`+job(gpu)[1:]), want: []string{template}},
		"a TrainJob that somebody stops":              {resource: trainJobs, object: of("", `{"suspend":true}`), old: of("", `{"suspend":false}`)},
		"a TrainJob that has no suspend any more":     {resource: trainJobs, object: of("", `{}`), old: of("", `{"suspend":true}`), want: []string{workload}},
		"a LeaderWorkerSet whose leaders ask":         {resource: workerSets, object: of("", `{"leaderWorkerTemplate":{"leaderTemplate":{"spec":`+gpu+`},"workerTemplate":{"spec":`+plain+`}}}`), want: []string{template}},
		"one whose workers do":                        {resource: workerSets, object: of("", `{"leaderWorkerTemplate":{"workerTemplate":{"spec":`+gpu+`}}}`), want: []string{template}},
		"one where none do":                           {resource: workerSets, object: of("", `{"leaderWorkerTemplate":{"workerTemplate":{"spec":`+plain+`}}}`)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			by := tc.by
			if by == nil {
				by = &user.DefaultInfo{Name: "alice"}
			}
			got := reviewed(t, tc.resource, tc.subresource, tc.object, tc.old, by)
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
				want = []string{pod, template}
			}
			spec, by := asks(`{"limits":{"`+name+`":1}}`), &user.DefaultInfo{Name: "alice"}
			got := append(reviewed(t, pods, "", of("", spec), "", by), reviewed(t, jobs, "", of("", job(spec)), "", by)...)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("a pod and a Job that ask for %s are sent to (-want +got):\n%s", name, diff)
			}
		}
	})
}

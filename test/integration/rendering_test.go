package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/invariants"
	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/rendering"
	"github.com/muster-gpu/muster/workload"
)

// schedulerUser is who the scheduler is in a cluster; the policy is for it.
const schedulerUser = "system:serviceaccount:muster-system:muster-scheduler"

// TestRendering runs its scenarios against a scheduler that is who the manifests
// say, behind the policy of the manifests.
func TestRendering(t *testing.T) {
	cluster := testcluster.Start(t)
	watcher, err := invariants.Start(t.Context(), cluster.Config, invariants.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Stop)
	kubeconfig, scheduler := asScheduler(t, cluster)
	fence(t, cluster, scheduler)
	for i, s := range renderings {
		t.Run(s.name, func(t *testing.T) {
			e := &env{Cluster: cluster, namespace: fmt.Sprintf("rendered-%d", i), jobs: cluster.RunJobSets(t)}
			e.config = configv1alpha1.DefaultScheduler()
			e.config.ClientConnection.Kubeconfig = kubeconfig
			e.config.LeaderElection.LeaderElect = false
			e.config.SecureServing.Port = 0
			e.config.Admission.Requeue.BackoffBase.Duration = time.Second
			if s.configure != nil {
				s.configure(e.config)
			}
			cluster.Namespace(t, e.namespace)
			t.Cleanup(func() { e.holds(t, watcher) })
			e.start(t)
			t.Cleanup(func() { e.stop() })
			t.Cleanup(func() { e.dump(t) })
			s.run(t, e)
		})
	}
	t.Run("a pod rendered locally is the one that the API server makes", func(t *testing.T) {
		rendersAlike(t, cluster, scheduler)
	})
}

func renderLocally(c *configv1alpha1.SchedulerConfiguration) {
	c.Admission.Rendering = configv1alpha1.RenderingLocal
}

var renderings = []scenario{
	{name: "a job whose pods get their CPU request from a LimitRange waits for CPU, and runs when there is enough", run: limitRangeScenario},
	{name: "the same with local rendering", configure: renderLocally, run: limitRangeScenario},
	{name: "a job waits for the overhead of its RuntimeClass, on the nodes that the class selects", run: overheadScenario},
	{name: "the same with local rendering", configure: renderLocally, run: overheadScenario},
	{name: "a sidecar that a policy injects has room before the job is admitted", run: func(t *testing.T, e *env) {
		e.Node(t, "small", 2)
		e.fill(t, "small", 63)
		e.Queue(t, e.namespace, "team", 8)
		e.inject(t, "proxy", "1")
		js := e.job("two", "team", 2, 1)
		e.Create(t, js)
		e.pending(t, js, "NoPlacement", "Insufficient cpu")
		e.Node(t, "big", 8)
		e.runs(t, js, 2)
		e.noEvent(t, js, "PodsDiffer")
	}},
	{name: "pods with a sidecar that nobody foresaw are planned anew, all of them before one is let in", configure: renderLocally, run: func(t *testing.T, e *env) {
		e.Node(t, "small", 2)
		e.fill(t, "small", 63)
		e.Node(t, "big", 8)
		e.Queue(t, e.namespace, "team", 8)
		e.inject(t, "proxy", "1")
		js := e.job("two", "team", 2, 1)
		e.Create(t, js)
		e.runs(t, js, 2)
		e.event(t, js, "Admitted", "on small from queue team")
		e.event(t, js, "PodsDiffer", "pods of set node are not what was planned: they request 1 more cpu (injected: proxy)")
		e.plannedOn(t, js, "big", "big")
	}},
	{name: "pods that need more than is there anywhere are released whole", configure: func(c *configv1alpha1.SchedulerConfiguration) {
		renderLocally(c)
		c.Admission.StartTimeout.Duration = 3 * time.Second
	}, run: func(t *testing.T, e *env) {
		e.Node(t, "small", 2)
		e.fill(t, "small", 63)
		e.Queue(t, e.namespace, "team", 8)
		e.inject(t, "proxy", "1")
		js := e.job("two", "team", 2, 1)
		e.Create(t, js)
		e.event(t, js, "PodsDiffer", "they request 1 more cpu")
		e.condition(t, js, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByPodsReadyTimeout, "none of 2 pods came onto their nodes")
	}},
	{name: "a dry run that is refused stops nobody: a ResourceQuota is full", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 8)
		quota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "none"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
		}
		e.Create(t, quota)
		js := e.job("two", "team", 2, 1)
		e.Create(t, js)
		e.condition(t, js, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "admitted: ")
		if err := e.Client.Delete(t.Context(), quota); err != nil {
			t.Fatal(err)
		}
		e.runs(t, js, 2)
	}},
	{name: "a job whose pods name a RuntimeClass that does not exist says so, and runs when it does", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 8)
		js := e.job("one", "team", 1, 1)
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.RuntimeClassName = new("later")
		e.Create(t, js)
		e.pending(t, js, "Misconfigured", `pod set "node": RuntimeClass later, which its pods name, does not exist`)
		e.Create(t, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Handler: "runc"})
		e.runs(t, js, 1)
	}},
	{name: "without the policy pods are rendered locally, and with it by dry runs again", run: func(t *testing.T, e *env) {
		e.Node(t, "small", 2)
		e.fill(t, "small", 63)
		e.Node(t, "big", 8)
		e.Queue(t, e.namespace, "team", 8)
		e.inject(t, "proxy", "1")
		binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: rendering.FenceName}}
		if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(binding), binding); err != nil {
			t.Fatal(err)
		}
		if err := e.Client.Delete(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
		e.restart(t)
		js := e.job("before", "team", 2, 1)
		e.Create(t, js)
		e.runs(t, js, 2)
		e.event(t, js, "PodsDiffer", "they request 1 more cpu")
		binding.ObjectMeta = metav1.ObjectMeta{Name: binding.Name, Labels: binding.Labels}
		if err := e.Client.Create(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
		e.restart(t)
		js = e.job("after", "team", 2, 1)
		e.Create(t, js)
		e.runs(t, js, 2)
		e.noEvent(t, js, "PodsDiffer")
	}},
}

func limitRangeScenario(t *testing.T, e *env) {
	e.Node(t, "node-0", 8)
	filler := e.fill(t, "node-0", 32)
	e.queueWithCPU(t, "team")
	e.Create(t, &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "defaults"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10")},
		}}},
	})
	js := e.job("four", "team", 4, 1)
	e.Create(t, js)
	e.pending(t, js, "NoPlacement", "Insufficient cpu")
	if err := e.Client.Delete(t.Context(), filler, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	e.runs(t, js, 4)
	e.charged(t, js, "40")
}

func overheadScenario(t *testing.T, e *env) {
	class := e.namespace + "-vm"
	e.Create(t, &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Handler: "kata",
		Overhead:   &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10")}},
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"vm": "yes"}},
	})
	e.label(t, e.Node(t, "node-0", 8), "vm", "yes")
	e.fill(t, "node-0", 32)
	e.Node(t, "other", 8)
	e.queueWithCPU(t, "team")
	js := e.job("four", "team", 4, 1)
	js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.RuntimeClassName = &class
	e.Create(t, js)
	e.pending(t, js, "NoPlacement", "Insufficient cpu")
	e.label(t, e.Node(t, "node-1", 8), "vm", "yes")
	e.runs(t, js, 4)
	e.charged(t, js, "40")
	e.noEvent(t, js, "PodsDiffer")
}

// queueWithCPU creates a LocalQueue whose ClusterQueue has quota of 8 GPUs and
// of 100 CPUs.
func (e *env) queueWithCPU(t *testing.T, name string) {
	t.Helper()
	full := e.namespace + "-" + name
	e.Create(t, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: full}})
	e.Create(t, &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: full},
		Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{testcluster.GPU, corev1.ResourceCPU},
				Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(full), Resources: []kueue.ResourceQuota{
					{Name: testcluster.GPU, NominalQuota: resource.MustParse("8")},
					{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse("100")},
				}}},
			}},
		},
	})
	e.Create(t, &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(full)},
	})
}

// charged checks how many CPUs a JobSet is charged for.
func (e *env) charged(t *testing.T, js *jobset.JobSet, cpus string) {
	t.Helper()
	wl, err := e.workload(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	if got := wl.Status.Admission.PodSetAssignments[0].ResourceUsage[corev1.ResourceCPU]; got.Cmp(resource.MustParse(cpus)) != 0 {
		t.Errorf("%s is charged for %s CPUs, want %s", js.Name, got.String(), cpus)
	}
}

// fill puts a pod that Muster does not manage, with that many CPUs, on a node.
func (e *env) fill(t *testing.T, node string, cpus int64) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: e.namespace + "-fills-" + node},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "x", Image: "example.com/x",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI)}},
		}}},
	}
	e.Create(t, pod)
	return pod
}

func (e *env) label(t *testing.T, node *corev1.Node, key, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	if err := e.Client.Patch(t.Context(), node, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// inject has a policy put a container into every pod of the namespace, and
// returns when it does.
func (e *env) inject(t *testing.T, name, cpu string) {
	t.Helper()
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: e.namespace + "-inject"},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			FailurePolicy:      new(admissionv1.Fail),
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: e.namespace}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{Expression: fmt.Sprintf(
					`[JSONPatch{op: "add", path: "/spec/containers/-", value: {"name": dyn(%q), "image": dyn("example.com/x"), "resources": dyn({"requests": {"cpu": %q}})}}]`, name, cpu)},
			}},
		},
	}
	e.Create(t, policy)
	e.Create(t, &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy.Name},
	})
	testcluster.Eventually(t, "the sidecar to be injected", func(ctx context.Context) error {
		pod := probe(e.namespace)
		if err := e.Client.Create(ctx, pod, client.DryRunAll); err != nil {
			return err
		}
		if len(pod.Spec.Containers) != 2 {
			return fmt.Errorf("the pod has %d containers", len(pod.Spec.Containers))
		}
		return nil
	})
}

// probe is a small pod.
func probe(namespace string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "probe-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "example.com/x"}}},
	}
}

// noEvent fails the test if a JobSet has an event of that reason.
func (e *env) noEvent(t *testing.T, js *jobset.JobSet, why string) {
	t.Helper()
	var list corev1.EventList
	if err := e.Client.List(t.Context(), &list, client.InNamespace(js.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, ev := range list.Items {
		if ev.InvolvedObject.UID == js.UID && ev.Reason == why {
			t.Errorf("%s has the event %s: %s", js.Name, why, ev.Message)
		}
	}
}

// plannedOn checks which nodes a JobSet's Workload names.
func (e *env) plannedOn(t *testing.T, js *jobset.JobSet, want ...string) {
	t.Helper()
	wl, err := e.workload(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	got, err := workload.DecodeNodes(wl.Status.Admission.PodSetAssignments[0].TopologyAssignment)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes of %s (-want +got):\n%s", js.Name, diff)
	}
}

// asScheduler is a kubeconfig, and a client, of an administrator who says to be
// the scheduler.
func asScheduler(t *testing.T, c *testcluster.Cluster) (kubeconfig string, as client.Client) {
	t.Helper()
	groups := []string{"system:masters", "system:authenticated"}
	k, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range k.AuthInfos {
		info.Impersonate, info.ImpersonateGroups = schedulerUser, groups
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*k, kubeconfig); err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: schedulerUser, Groups: groups}
	as, err = client.New(config, client.Options{Scheme: c.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig, as
}

// fence applies the policy of the manifests, and returns when it denies the
// scheduler a pod and allows it a dry run.
func fence(t *testing.T, c *testcluster.Cluster, scheduler client.Client) {
	t.Helper()
	for _, object := range manifest(t, "base/rendering/policy.yaml") {
		c.Create(t, object)
	}
	testcluster.Eventually(t, "the scheduler to be denied a pod", func(ctx context.Context) error {
		pod := probe("default")
		if err := scheduler.Create(ctx, pod); err == nil {
			return c.Client.Delete(ctx, pod)
		} else if !apierrors.IsForbidden(err) {
			return err
		}
		return nil
	})
	if err := scheduler.Create(t.Context(), probe("default"), client.DryRunAll); err != nil {
		t.Fatalf("a dry run is denied: %v", err)
	}
}

// rendersAlike compares both renderings of pods to which nobody injects
// anything.
func rendersAlike(t *testing.T, c *testcluster.Cluster, scheduler client.Client) {
	const namespace = "alike"
	c.Namespace(t, namespace)
	quantities := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	c.Create(t, &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "defaults"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Default: quantities("2", "2Gi"), DefaultRequest: quantities("500m", "1Gi"),
		}}},
	})
	c.Create(t, &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "alike"}, Handler: "kata",
		Overhead:   &nodev1.Overhead{PodFixed: quantities("250m", "120Mi")},
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"vm": "yes"}, Tolerations: []corev1.Toleration{{Key: "vm", Operator: corev1.TolerationOpExists}}},
	})
	c.Create(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "alike-default"}, Value: 7, GlobalDefault: true})
	c.Create(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "alike-high"}, Value: 1000, PreemptionPolicy: new(corev1.PreemptNever)})
	testcluster.Eventually(t, "pods to get the default priority", func(ctx context.Context) error {
		pod := probe(namespace)
		if err := c.Client.Create(ctx, pod, client.DryRunAll); err != nil {
			return err
		}
		if *pod.Spec.Priority != 7 {
			return fmt.Errorf("the priority is %d", *pod.Spec.Priority)
		}
		return nil
	})

	for name, change := range map[string]func(*corev1.PodSpec){
		"nothing asked": func(*corev1.PodSpec) {},
		"limits alone": func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Limits = corev1.ResourceList{testcluster.GPU: resource.MustParse("1"), corev1.ResourceCPU: resource.MustParse("4")}
		},
		"a request alone": func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")}
		},
		"an init container and a sidecar": func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{
				{Name: "init", Image: "example.com/x"},
				{Name: "sidecar", Image: "example.com/x", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
			}
		},
		"a RuntimeClass": func(s *corev1.PodSpec) {
			s.RuntimeClassName, s.NodeSelector = new("alike"), map[string]string{"zone": "a"}
		},
		"a PriorityClass": func(s *corev1.PodSpec) { s.PriorityClassName = "alike-high" },
		"tolerations of its own": func(s *corev1.PodSpec) {
			s.Tolerations = []corev1.Toleration{
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(5))},
				{Key: "gpu", Value: "a", Effect: corev1.TaintEffectNoSchedule},
			}
		},
		"host network, volumes, affinity and spread": func(s *corev1.PodSpec) {
			s.HostNetwork = true
			s.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080}}
			s.Volumes = []corev1.Volume{
				{Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
				{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
					Spec: corev1.PersistentVolumeClaimSpec{
						AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
						Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
					},
				}}}},
			}
			s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}, TopologyKey: corev1.LabelHostname},
			}}}
			s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			js := testcluster.Job(namespace, "x", "team", 1, 0)
			template := js.Spec.ReplicatedJobs[0].Template.Spec.Template
			template.Labels = map[string]string{"app": "x"}
			change(&template.Spec)
			renderer := rendering.NewRenderer(c.Client, scheduler, clock.RealClock{}, true)
			job := &workload.Job{PodSets: []workload.PodSet{{Name: "node", Count: 1, Template: template}}}
			job.Owner.Namespace = namespace
			no, err := renderer.Render(t.Context(), job)
			if no != nil || err != nil {
				t.Fatal(no, err)
			}
			got := job.PodSets[0].Rendered
			if got.Placed == got.Charged {
				t.Fatal("no dry run was made")
			}
			if diff := cmp.Diff(got.Placed, got.Charged); diff != "" {
				t.Errorf("the local rendering is another than the API server's (-server +local):\n%s", diff)
			}
			if differences := rendering.Difference(&got.Charged.Spec, rendering.Asked(got.Placed)); len(differences) > 0 {
				t.Errorf("they count as different: %v", differences)
			}
		})
	}
}

package manifests_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/kustomization"
	"github.com/muster-gpu/muster/manifests"
)

const namespace = "muster-system"

// overlay is what "kubectl apply -k" sends.
type overlay []*resource.Resource

// TestOverlays renders each overlay, which takes a second, once.
func TestOverlays(t *testing.T) {
	entries, err := fs.ReadDir(manifests.FS, "overlays")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]overlay{}
	for _, entry := range entries {
		resources, err := kustomization.Build("overlays/"+entry.Name(), map[string]fs.FS{"": manifests.FS}, nil)
		if err != nil {
			t.Fatal(err)
		}
		all[entry.Name()] = resources.Resources()
	}
	for name, o := range all {
		t.Run(name+": what its pods need is in it", func(t *testing.T) { hasWhatItsPodsNeed(t, o) })
		t.Run(name+": one apply is enough", func(t *testing.T) { needsOneApply(t, o) })
		t.Run(name+": one replica is ready while others are replaced or drained", func(t *testing.T) { keepsAReplica(t, o) })
		t.Run(name+": network policies let in what a pod serves", func(t *testing.T) { isLetIn(t, o) })
		t.Run(name+": the scheduler's Deployment fits the program", func(t *testing.T) { fitsTheScheduler(t, o) })
	}
	t.Run("where Kueue decides its definitions are left alone", func(t *testing.T) { leavesKueueAlone(t, all["kueue"], all["default"]) })
	t.Run("without the webhook nobody is to ask it", func(t *testing.T) { asksNoWebhook(t, all["no-webhook"]) })
	t.Run("ha has more replicas", func(t *testing.T) {
		few, more := every[appsv1.Deployment](t, all["default"], "Deployment"), every[appsv1.Deployment](t, all["ha"], "Deployment")
		for who, d := range more {
			if *d.Spec.Replicas <= *few[who].Spec.Replicas {
				t.Errorf("%s has %d", who, *d.Spec.Replicas)
			}
		}
	})
}

// every is each object of a kind, by name. Unknown fields fail the test.
func every[T any](t *testing.T, o overlay, kind string) map[string]*T {
	t.Helper()
	all := map[string]*T{}
	for _, r := range o {
		if r.GetKind() != kind {
			continue
		}
		content, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		object := new(T)
		if err := yaml.UnmarshalStrict(content, object); err != nil {
			t.Fatalf("%s %s: %v", kind, r.GetName(), err)
		}
		all[r.GetName()] = object
	}
	return all
}

// pods are the templates of all pods, by the name of what makes them.
func pods(t *testing.T, o overlay) map[string]corev1.PodTemplateSpec {
	t.Helper()
	all := map[string]corev1.PodTemplateSpec{}
	for name, d := range every[appsv1.Deployment](t, o, "Deployment") {
		all[name] = d.Spec.Template
	}
	for name, d := range every[appsv1.DaemonSet](t, o, "DaemonSet") {
		all[name] = d.Spec.Template
	}
	return all
}

func hasWhatItsPodsNeed(t *testing.T, o overlay) {
	accounts := every[corev1.ServiceAccount](t, o, "ServiceAccount")
	files := every[corev1.ConfigMap](t, o, "ConfigMap")
	quota := every[corev1.ResourceQuota](t, o, "ResourceQuota")["muster-critical-pods"]
	for who, pod := range pods(t, o) {
		if accounts[pod.Spec.ServiceAccountName] == nil {
			t.Errorf("%s has the service account %q, which is not there", who, pod.Spec.ServiceAccountName)
		}
		for _, volume := range pod.Spec.Volumes {
			if from := volume.ConfigMap; from != nil && files[from.Name] == nil {
				t.Errorf("%s mounts %s, which is not there", who, from.Name)
			} else if from != nil {
				delete(files, from.Name)
			}
		}
		if !slices.Contains(quota.Spec.ScopeSelector.MatchExpressions[0].Values, pod.Spec.PriorityClassName) {
			t.Errorf("%s has the priority %q, which the quota does not allow", who, pod.Spec.PriorityClassName)
		}
		if image := pod.Spec.Containers[0].Image; image != who {
			t.Errorf("an overlay cannot call the image of %s, which is %s, by its name", who, image)
		}
	}
	for file := range files {
		t.Errorf("nobody mounts %s", file)
	}
	for _, r := range o {
		if ns := r.GetNamespace(); ns != "" && ns != namespace && ns != metav1.NamespaceSystem {
			t.Errorf("%s %s is in namespace %s", r.GetKind(), r.GetName(), ns)
		}
	}
}

// needsOneApply: kubectl refuses an object whose definition is only just sent with it, and
// applies the rest.
func needsOneApply(t *testing.T, o overlay) {
	for _, r := range o {
		if group := r.GetGvk().Group; strings.HasSuffix(group, "muster.dev") || strings.HasSuffix(group, "kueue.x-k8s.io") {
			t.Errorf("there is the %s %s", r.GetKind(), r.GetName())
		}
	}
}

func keepsAReplica(t *testing.T, o overlay) {
	budgets := every[policyv1.PodDisruptionBudget](t, o, "PodDisruptionBudget")
	for who, d := range every[appsv1.Deployment](t, o, "Deployment") {
		if d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 0 {
			t.Errorf("a roll-out of %s takes a replica away before the next one is ready", who)
		}
		budget := budgets[who]
		if replicas := int(*d.Spec.Replicas); replicas == 1 {
			if budget != nil {
				t.Errorf("no node can be drained of %s, which has one replica", who)
			}
			continue
		} else if budget == nil {
			t.Errorf("%s has no budget", who)
			continue
		} else if least := budget.Spec.MinAvailable; least != nil && (least.IntValue() < 1 || least.IntValue() >= replicas) {
			t.Errorf("%d of %d replicas of %s are kept", least.IntValue(), replicas, who)
		} else if most := budget.Spec.MaxUnavailable; most != nil && (most.IntValue() < 1 || most.IntValue() >= replicas) {
			t.Errorf("%d of %d replicas of %s may be missing", most.IntValue(), replicas, who)
		}
		selectors := []*metav1.LabelSelector{budget.Spec.Selector}
		for _, spread := range d.Spec.Template.Spec.TopologySpreadConstraints {
			selectors = append(selectors, spread.LabelSelector)
		}
		if len(selectors) < 2 {
			t.Errorf("the replicas of %s are not spread", who)
		}
		for _, selector := range selectors {
			if !selects(t, *selector, d.Spec.Template) {
				t.Errorf("%s of %s does not select its pods", metav1.FormatLabelSelector(selector), who)
			}
		}
	}
}

func selects(t *testing.T, selector metav1.LabelSelector, pod corev1.PodTemplateSpec) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(labels.Set(pod.Labels))
}

// isLetIn: metrics come from namespaces with a label, and
// reviews from anywhere; probes need no policy.
func isLetIn(t *testing.T, o overlay) {
	open := map[string][]string{"muster-webhook": {"webhook"}}
	fromMonitoring := map[string][]string{"muster-scheduler": {"serving"}, "muster-webhook": {"metrics"}, "muster-gpu-agent": {"metrics"}}
	policies := every[networkingv1.NetworkPolicy](t, o, "NetworkPolicy")
	all := pods(t, o)
	if len(policies) != len(all) {
		t.Errorf("%d policies are about %d kinds of pods", len(policies), len(all))
	}
	for who, pod := range all {
		policy := policies[who]
		if policy == nil || !selects(t, policy.Spec.PodSelector, pod) {
			t.Errorf("no policy is about %s", who)
			continue
		}
		ports := map[string]bool{}
		for _, p := range pod.Spec.Containers[0].Ports {
			ports[p.Name] = true
		}
		var opened, monitored []string
		for _, rule := range policy.Spec.Ingress {
			for _, p := range rule.Ports {
				if !ports[p.Port.StrVal] {
					t.Errorf("%s has no port %s", who, p.Port.StrVal)
				}
				if len(rule.From) == 0 {
					opened = append(opened, p.Port.StrVal)
				} else {
					monitored = append(monitored, p.Port.StrVal)
				}
			}
		}
		if !slices.Equal(opened, open[who]) || !slices.Equal(monitored, fromMonitoring[who]) {
			t.Errorf("%s is open at %v, and at %v to some", who, opened, monitored)
		}
		if len(policy.Spec.PolicyTypes) != 2 || len(policy.Spec.Egress) == 0 {
			t.Errorf("%s may call %v", who, policy.Spec.Egress)
		}
	}
}

func leavesKueueAlone(t *testing.T, o, byDefault overlay) {
	for _, r := range o {
		if r.GetKind() == "CustomResourceDefinition" && strings.HasSuffix(r.GetName(), "kueue.x-k8s.io") {
			t.Errorf("%s is sent", r.GetName())
		}
	}
	if got := configured(t, o).Quota.Provider; got != configv1alpha1.ProviderKueue {
		t.Errorf("%q decides quota", got)
	}
	if got := configured(t, byDefault).Quota.Provider; got != configv1alpha1.ProviderNative {
		t.Errorf("in the default %q decides quota", got)
	}
}

// configured is what the scheduler of an overlay reads.
func configured(t *testing.T, o overlay) *configv1alpha1.SchedulerConfiguration {
	t.Helper()
	for name, file := range every[corev1.ConfigMap](t, o, "ConfigMap") {
		if !strings.HasPrefix(name, "muster-scheduler-config-") {
			continue
		}
		path := filepath.Join(t.TempDir(), "scheduler.yaml")
		if err := os.WriteFile(path, []byte(file.Data["scheduler.yaml"]), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := configv1alpha1.LoadScheduler(path)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Fatal("the scheduler has no configuration")
	return nil
}

func asksNoWebhook(t *testing.T, o overlay) {
	for _, r := range o {
		content, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(content), "name: muster-webhook") {
			t.Errorf("%s %s names it", r.GetKind(), r.GetName())
		}
		if r.GetKind() != "CustomResourceDefinition" || !strings.HasSuffix(r.GetName(), "kueue.x-k8s.io") {
			continue
		}
		var crd definition
		if err := yaml.Unmarshal(content, &crd); err != nil {
			t.Fatal(err)
		}
		if crd.Spec.Conversion != nil {
			t.Errorf("%s is converted by %v", r.GetName(), crd.Spec.Conversion)
		}
		// What differs between the versions cannot be served in both.
		converted := slices.Contains([]string{"clusterqueues", "cohorts", "localqueues", "workloads"}, strings.TrimSuffix(r.GetName(), ".kueue.x-k8s.io"))
		if old := crd.Spec.Versions[0]; old.Name != "v1beta1" || old.Served == converted {
			t.Errorf("%s of %s is served: %v", old.Name, r.GetName(), old.Served)
		}
	}
}

func fitsTheScheduler(t *testing.T, o overlay) {
	c := configured(t, o)
	pod := pods(t, o)["muster-scheduler"]
	container := pod.Spec.Containers[0]
	if got := container.Ports[0].ContainerPort; got != c.SecureServing.Port {
		t.Errorf("the pod's port is %d, the program's %d", got, c.SecureServing.Port)
	}
	for what, probe := range map[string]*corev1.Probe{"ready": container.ReadinessProbe, "live": container.LivenessProbe, "started": container.StartupProbe} {
		if get := probe.HTTPGet; get.Port.StrVal != container.Ports[0].Name || get.Scheme != corev1.URISchemeHTTPS {
			t.Errorf("whether it is %s is asked by %s at %s", what, get.Scheme, get.Port.StrVal)
		}
	}
	if !slices.Contains(container.Args, "--config=/etc/muster/scheduler.yaml") || container.VolumeMounts[0].MountPath != "/etc/muster" {
		t.Errorf("it reads %v", container.Args)
	}
	// While the scheduler is away nobody is placed by it, itself included.
	if slices.Contains(c.Profiles, pod.Spec.SchedulerName) {
		t.Errorf("it is to place itself, as %s", pod.Spec.SchedulerName)
	}
	if !c.LeaderElection.LeaderElect || c.LeaderElection.ResourceNamespace != namespace {
		t.Errorf("it leads by %+v", c.LeaderElection)
	}
	role := every[rbacv1.Role](t, o, "Role")["muster-scheduler"]
	if !slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.ResourceNames, c.LeaderElection.ResourceName) && slices.Contains(r.Verbs, "update")
	}) {
		t.Errorf("it may not renew its Lease %s", c.LeaderElection.ResourceName)
	}
}

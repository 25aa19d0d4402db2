package app

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/placement/islands"
	"github.com/muster-gpu/muster/plugins/coscheduling"
	"github.com/muster-gpu/muster/plugins/gpudevices"
	"github.com/muster-gpu/muster/plugins/gputopology"
)

func config(profiles ...string) *configv1alpha1.SchedulerConfiguration {
	c := configv1alpha1.DefaultScheduler()
	c.Profiles = profiles
	return c
}

// loaded is c as the kube-scheduler reads it, through the pipe that New gives it.
func loaded(t *testing.T, c *configv1alpha1.SchedulerConfiguration) *schedulerapi.KubeSchedulerConfiguration {
	t.Helper()
	pipe, err := configPipe(c)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	got, err := options.LoadConfigFromFile(klog.Logger{}, fmt.Sprintf("/proc/self/fd/%d", pipe.Fd()))
	if err != nil {
		t.Fatalf("the scheduler does not take its configuration: %v", err)
	}
	return got
}

func names(s schedulerapi.PluginSet) []string {
	var out []string
	for _, p := range s.Enabled {
		out = append(out, p.Name)
	}
	return out
}

func TestEveryProfileHasTheGangPluginFirstAndNoPreemptionOfSinglePods(t *testing.T) {
	got := loaded(t, config("muster", "default-scheduler"))
	var served []string
	for _, p := range got.Profiles {
		served = append(served, p.SchedulerName)
		enabled := names(p.Plugins.MultiPoint)
		if len(enabled) == 0 || !slices.Contains(enabled, coscheduling.Name) {
			t.Errorf("profile %s has no gang plugin among %q", p.SchedulerName, enabled)
		}
		if !slices.ContainsFunc(p.Plugins.MultiPoint.Enabled, func(p schedulerapi.Plugin) bool {
			return p.Name == gputopology.Name && p.Weight == gputopology.Weight
		}) {
			t.Errorf("profile %s does not rank nodes by GPUs: %v", p.SchedulerName, p.Plugins.MultiPoint.Enabled)
		}
		if slices.Contains(enabled, "DefaultPreemption") {
			t.Errorf("profile %s preempts single pods", p.SchedulerName)
		}
		if post := names(p.Plugins.PostFilter); len(post) > 0 {
			t.Errorf("profile %s has the PostFilter plugins %q", p.SchedulerName, post)
		}
		if !slices.Contains(enabled, "NodeResourcesFit") {
			t.Errorf("profile %s lost the scheduler's default plugins: %q", p.SchedulerName, enabled)
		}
	}
	if diff := cmp.Diff([]string{"muster", "default-scheduler"}, served); diff != "" {
		t.Errorf("profiles (-want +got):\n%s", diff)
	}
}

func TestTheSchedulerGetsTheClientAndTheLeaseOfTheConfiguration(t *testing.T) {
	c := config("muster")
	c.ClientConnection.Kubeconfig, c.ClientConnection.QPS, c.ClientConnection.Burst = "/etc/kubeconfig", 123, 456
	c.LeaderElection.ResourceName, c.LeaderElection.ResourceNamespace = "a-lease", "a-namespace"
	got := loaded(t, c)
	if diff := cmp.Diff([]any{"/etc/kubeconfig", float32(123), int32(456)},
		[]any{got.ClientConnection.Kubeconfig, got.ClientConnection.QPS, got.ClientConnection.Burst}); diff != "" {
		t.Errorf("client (-want +got):\n%s", diff)
	}
	l := got.LeaderElection
	if diff := cmp.Diff([]any{true, "leases", "a-lease", "a-namespace", c.LeaderElection.LeaseDuration},
		[]any{l.LeaderElect, l.ResourceLock, l.ResourceName, l.ResourceNamespace, l.LeaseDuration}); diff != "" {
		t.Errorf("lease (-want +got):\n%s", diff)
	}
}

func TestConfigurationThatWouldFillThePipeIsRefusedInsteadOfHanging(t *testing.T) {
	var many []string
	for i := range 400 {
		many = append(many, strings.Repeat("x", 60)+fmt.Sprint(i))
	}
	_, err := configPipe(config(many...))
	if err == nil || !strings.Contains(err.Error(), "400 profiles is too large") {
		t.Errorf("the error is %v", err)
	}
}

func TestConfigurationUpToTheBoundIsWrittenWhole(t *testing.T) {
	var many []string
	for i := range 80 {
		many = append(many, fmt.Sprintf("scheduler-%d", i))
	}
	pipe, err := configPipe(config(many...))
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	data, err := io.ReadAll(pipe)
	if err != nil || !strings.Contains(string(data), "scheduler-79") {
		t.Errorf("%d bytes were read (%v)", len(data), err)
	}
}

func TestTheConfigurationHasTheWordsOfIslands(t *testing.T) {
	words := []islands.Arrangement{configv1alpha1.ArrangedSwitch, configv1alpha1.ArrangedCubeMesh, configv1alpha1.ArrangedBridges, configv1alpha1.ArrangedPairs, configv1alpha1.ArrangedAlike}
	if diff := cmp.Diff(islands.Arrangements(), words); diff != "" {
		t.Errorf("arrangements (-want +got):\n%s", diff)
	}
	if configv1alpha1.IslandsAnnotation != placement.EnforceAnnotation || configv1alpha1.IslandsPredict != placement.Predict || configv1alpha1.IslandsDRA != placement.EnforceDRA {
		t.Error("who chooses has another name in the configuration")
	}
	if got := arranged([]configv1alpha1.ProductIslands{{Product: "A", Arrangement: configv1alpha1.ArrangedBridges}}); got["A"] != islands.Bridges {
		t.Errorf("A is arranged %q", got["A"])
	}
}

func TestPodsAreBoundWithTheirGPUsFirst(t *testing.T) {
	for _, p := range loaded(t, config("muster")).Profiles {
		if got := names(p.Plugins.Bind); len(got) == 0 || got[0] != gputopology.Name {
			t.Errorf("profile %s binds with %q", p.SchedulerName, got)
		}
	}
}

func TestWithIslandsEnforcedByClaimsDevicesAreGivenByMuster(t *testing.T) {
	for enforcement, want := range map[string]string{configv1alpha1.IslandsDRA: gpudevices.Name, configv1alpha1.IslandsPredict: "DynamicResources"} {
		c := config("muster")
		c.Islands.Enforcement = enforcement
		for _, p := range loaded(t, c).Profiles {
			var got []string
			for _, name := range names(p.Plugins.MultiPoint) {
				if name == gpudevices.Name || name == "DynamicResources" {
					got = append(got, name)
				}
			}
			if diff := cmp.Diff([]string{want}, got); diff != "" {
				t.Errorf("%s: who gives devices (-want +got):\n%s", enforcement, diff)
			}
		}
	}
}

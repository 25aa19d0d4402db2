package app

import (
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentbaseconfig "k8s.io/component-base/config/v1alpha1"
	kubeschedulerv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/plugins/coscheduling"
	"github.com/muster-gpu/muster/plugins/gpudevices"
	"github.com/muster-gpu/muster/plugins/gputopology"
)

// devicesWeight is that of DynamicResources in the kube-scheduler's default profile.
const devicesWeight int32 = 2

// upstream is the kube-scheduler's own configuration for c: its default
// plugins with the gang plugin first, the ranking of nodes by GPUs, and without the preemption of single
// pods, which would break gangs.
func upstream(c *configv1alpha1.SchedulerConfiguration) *kubeschedulerv1.KubeSchedulerConfiguration {
	out := &kubeschedulerv1.KubeSchedulerConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: kubeschedulerv1.SchemeGroupVersion.String(), Kind: "KubeSchedulerConfiguration"},
		ClientConnection: componentbaseconfig.ClientConnectionConfiguration{
			Kubeconfig: c.ClientConnection.Kubeconfig,
			QPS:        c.ClientConnection.QPS,
			Burst:      c.ClientConnection.Burst,
		},
		LeaderElection: componentbaseconfig.LeaderElectionConfiguration{
			LeaderElect:       &c.LeaderElection.LeaderElect,
			LeaseDuration:     c.LeaderElection.LeaseDuration,
			RenewDeadline:     c.LeaderElection.RenewDeadline,
			RetryPeriod:       c.LeaderElection.RetryPeriod,
			ResourceLock:      "leases",
			ResourceName:      c.LeaderElection.ResourceName,
			ResourceNamespace: c.LeaderElection.ResourceNamespace,
		},
	}
	multiPoint := kubeschedulerv1.PluginSet{
		Enabled:  []kubeschedulerv1.Plugin{{Name: coscheduling.Name}, {Name: gputopology.Name, Weight: new(int32(gputopology.Weight))}},
		Disabled: []kubeschedulerv1.Plugin{{Name: "DefaultPreemption"}},
	}
	if c.Islands.Enforcement == configv1alpha1.IslandsDRA {
		multiPoint.Enabled = append(multiPoint.Enabled, kubeschedulerv1.Plugin{Name: gpudevices.Name, Weight: new(devicesWeight)})
		multiPoint.Disabled = append(multiPoint.Disabled, kubeschedulerv1.Plugin{Name: "DynamicResources"})
	}
	for _, name := range c.Profiles {
		out.Profiles = append(out.Profiles, kubeschedulerv1.KubeSchedulerProfile{
			SchedulerName: &name,
			Plugins: &kubeschedulerv1.Plugins{
				MultiPoint: multiPoint,
				// Before the plugin that binds without a word of GPUs.
				Bind: kubeschedulerv1.PluginSet{Enabled: []kubeschedulerv1.Plugin{{Name: gputopology.Name}}},
			},
		})
	}
	return out
}

// configPipe holds the upstream configuration for the one reader that wants a
// file, without a writable file system.
func configPipe(c *configv1alpha1.SchedulerConfiguration) (*os.File, error) {
	data, err := yaml.Marshal(upstream(c))
	if err != nil {
		return nil, fmt.Errorf("writing the scheduler's configuration: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("writing the scheduler's configuration: %w", err)
	}
	defer w.Close()
	// A pipe takes 64 KiB before a write waits for the reader.
	if len(data) > 60<<10 {
		r.Close()
		return nil, fmt.Errorf("the configuration of %d profiles is too large", len(c.Profiles))
	}
	if _, err := w.Write(data); err != nil {
		r.Close()
		return nil, fmt.Errorf("writing the scheduler's configuration: %w", err)
	}
	return r, nil
}

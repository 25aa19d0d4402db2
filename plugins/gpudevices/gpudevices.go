package gpudevices

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/muster-gpu/muster/placement"
)

// Name is the name of the plugin in profiles, metrics and logs.
const Name = placement.GPUDevices

// Plugin is DynamicResources with slices in an order that depends on the pod.
type Plugin struct {
	*dynamicresources.DynamicResources
	// order is nil where there are no devices.
	order *placement.DeviceOrder
}

var _ fwk.PreFilterPlugin = &Plugin{}
var _ fwk.FilterPlugin = &Plugin{}
var _ fwk.ReservePlugin = &Plugin{}
var _ fwk.PreBindPlugin = &Plugin{}

// Factory returns the plugin's constructor. The mix has the islands of nodes.
func Factory(mix *placement.Mix) frameworkruntime.PluginFactory {
	return func(ctx context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		defaults, err := latest.Default()
		if err != nil {
			return nil, fmt.Errorf("reading the default arguments of plugins: %w", err)
		}
		var args runtime.Object
		for _, p := range defaults.Profiles[0].PluginConfig {
			if p.Name == dynamicresources.Name {
				args = p.Args
			}
		}
		p := &Plugin{}
		if manager := h.SharedDRAManager(); manager != nil {
			p.order = placement.NewDeviceOrder(manager, mix)
			h = handle{h, p.order}
		}
		built, err := dynamicresources.New(ctx, args, h, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
		if err != nil {
			return nil, fmt.Errorf("building DynamicResources: %w", err)
		}
		inner, ok := built.(*dynamicresources.DynamicResources)
		if !ok {
			return nil, fmt.Errorf("DynamicResources has type %T", built)
		}
		p.DynamicResources = inner
		return p, nil
	}
}

// Name returns the name of the plugin.
func (*Plugin) Name() string { return Name }

// PreFilter has the slices in the pod's order while they are read. All pods of a
// profile come here one after the other.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if p.order != nil {
		defer p.order.Begin(pod)()
	}
	return p.DynamicResources.PreFilter(ctx, state, pod, nodes)
}

// handle shows plugins other devices.
type handle struct {
	fwk.Handle
	devices fwk.SharedDRAManager
}

func (h handle) SharedDRAManager() fwk.SharedDRAManager { return h.devices }

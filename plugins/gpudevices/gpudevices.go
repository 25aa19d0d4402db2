package gpudevices

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/placement"
)

// Name is the name of the plugin in profiles, metrics and logs.
const Name = placement.GPUDevices

// Plugin is DynamicResources with slices in an order that depends on the pod.
type Plugin struct {
	*dynamicresources.DynamicResources
	slices  *orderedSlices
	manager fwk.SharedDRAManager
	mix     *placement.Mix
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
		manager := h.SharedDRAManager()
		p := &Plugin{manager: manager, mix: mix}
		if manager != nil {
			p.slices = &orderedSlices{ResourceSliceLister: manager.ResourceSlices(), claims: manager.ResourceClaims(), mix: mix}
			h = handle{h, devices{manager, p.slices}}
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
	if islands := p.mix.Islands(); p.slices != nil && islands != nil {
		p.slices.gpus = p.gpus(pod, islands)
		defer func() { p.slices.gpus = 0 }()
	}
	return p.DynamicResources.PreFilter(ctx, state, pod, nodes)
}

// gpus is how many GPUs are still to be allocated for the pod.
func (p *Plugin) gpus(pod *v1.Pod, islands *placement.Islands) (n int) {
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			continue
		}
		claim, err := p.manager.ResourceClaims().Get(pod.Namespace, *name)
		if err != nil || claim.Status.Allocation != nil {
			continue
		}
		n += int(islands.ClaimedGPUs(&claim.Spec))
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	if quantity, ok := requests[gpu.NVIDIA]; ok && p.manager.DeviceClassResolver().GetDeviceClass(gpu.NVIDIA) != nil {
		n += int(quantity.Value())
	}
	return n
}

// handle shows plugins other devices.
type handle struct {
	fwk.Handle
	devices fwk.SharedDRAManager
}

func (h handle) SharedDRAManager() fwk.SharedDRAManager { return h.devices }

// devices are those of the scheduler, in another order.
type devices struct {
	fwk.SharedDRAManager
	slices *orderedSlices
}

func (d devices) ResourceSlices() fwk.ResourceSliceLister { return d.slices }

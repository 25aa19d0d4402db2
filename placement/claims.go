package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumerestrictions"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumezone"
)

// claims finds out which volumes and devices the claims of hypothetical pods
// get. It has in-tree plugins of its own, which see the API server's objects
// with those of the trial laid over them, so that neither the scheduler's
// plugins nor the API server learn of a trial.
type claims struct {
	plugins   []claimPlugin
	nodes     fwk.NodeInfoLister
	volumes   *volumes
	devices   *devices
	classes   storagelisters.StorageClassLister
	csiNodes  storagelisters.CSINodeLister
	templates resourcelisters.ResourceClaimTemplateLister
	// journal is how to undo what the trial has done, last to first, and writes counts what
	// was done and undone.
	journal []func()
	writes  int
}

// claimPlugin is a plugin that looks at claims.
type claimPlugin interface {
	fwk.PreFilterPlugin
	fwk.FilterPlugin
}

// newClaims builds the plugins. Its informers are those of the handle's
// factory, which must not be started before.
func newClaims(ctx context.Context, h fwk.Handle, mix *Mix) (*claims, error) {
	fts := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	defaults, err := latest.Default()
	if err != nil {
		return nil, fmt.Errorf("reading the default arguments of plugins: %w", err)
	}
	// Of the arguments only time-outs and scores differ from profile to profile.
	args := map[string]runtime.Object{}
	for _, p := range defaults.Profiles[0].PluginConfig {
		args[p.Name] = p.Args
	}
	factory := h.SharedInformerFactory()
	c := &claims{
		nodes:    h.SnapshotSharedLister().NodeInfos(),
		volumes:  newVolumes(factory),
		classes:  factory.Storage().V1().StorageClasses().Lister(),
		csiNodes: factory.Storage().V1().CSINodes().Lister(),
	}
	handle := planningHandle{Handle: h, factory: c.volumes}
	build := []func() (fwk.Plugin, error){
		func() (fwk.Plugin, error) { return volumerestrictions.New(ctx, nil, handle, fts) },
		func() (fwk.Plugin, error) { return nodevolumelimits.NewCSI(ctx, nil, handle, fts) },
		func() (fwk.Plugin, error) { return c.newVolumeBinding(ctx, args[names.VolumeBinding], handle, fts) },
		func() (fwk.Plugin, error) { return volumezone.New(ctx, nil, handle, fts) },
	}
	if fts.EnableDynamicResourceAllocation && h.SharedDRAManager() != nil {
		c.templates = factory.Resource().V1().ResourceClaimTemplates().Lister()
		c.devices = newDevices(h.SharedDRAManager(), c.nodes, fts.EnableDRAConsumableCapacity, mix)
		c.devices.tracker.record = c.record
		handle.devices = c.devices.order
		build = append(build, func() (fwk.Plugin, error) {
			return dynamicresources.New(ctx, args[names.DynamicResources], handle, fts)
		})
	}
	for _, b := range build {
		built, err := b()
		if err != nil {
			return nil, fmt.Errorf("building the plugins that plan claims: %w", err)
		}
		plugin, ok := built.(claimPlugin)
		if !ok {
			return nil, fmt.Errorf("building the plugins that plan claims: %s has no Filter", built.Name())
		}
		c.plugins = append(c.plugins, plugin)
	}
	return c, nil
}

func (c *claims) newVolumeBinding(ctx context.Context, args runtime.Object, h fwk.Handle, fts feature.Features) (fwk.Plugin, error) {
	built, err := volumebinding.New(ctx, args, h, fts)
	if err != nil {
		return nil, err
	}
	plugin, ok := built.(*volumebinding.VolumeBinding)
	if !ok {
		return nil, fmt.Errorf("VolumeBinding has type %T", built)
	}
	plugin.Binder = &provisioner{plugin.Binder, c}
	return plugin, nil
}

// usesClaims tells whether the pod mounts volume claims or claims devices.
func usesClaims(pod *v1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || slices.ContainsFunc(pod.Spec.Volumes, isClaim)
}

func isClaim(v v1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }

// withoutClaims is the pod for the plugins that do not look at claims.
func withoutClaims(pod *v1.Pod) *v1.Pod {
	bare := *pod
	bare.Spec.ResourceClaims = nil
	bare.Spec.Volumes = slices.DeleteFunc(slices.Clone(pod.Spec.Volumes), isClaim)
	return &bare
}

// claimant is a pod whose claims are being planned.
type claimant struct {
	pod *v1.Pod
	// mark is the length of the journal before the pod.
	mark  int
	state fwk.CycleState
	asked []claimPlugin
	// seen is how much had been written when the state was made.
	seen int
}

// claimant runs PreFilter for the pod, which must be a copy. A status that is
// no success is a refusal of all nodes, or an error.
func (c *claims) claimant(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo) (*claimant, *fwk.Status) {
	s := &claimant{pod: pod, mark: len(c.journal), state: framework.NewCycleState()}
	MarkPlanning(s.state)
	if status := c.makeClaims(pod); !status.IsSuccess() {
		return s, status
	}
	if c.devices != nil {
		defer c.devices.order.Begin(pod)()
	}
	for _, plugin := range c.plugins {
		// These plugins look at claims alone and name no nodes.
		_, status := plugin.PreFilter(ctx, s.state, pod, nodes)
		switch {
		case status.IsSkip():
		case status.IsSuccess():
			s.asked = append(s.asked, plugin)
		default:
			return s, status.WithPlugin(plugin.Name())
		}
	}
	s.seen = c.writes
	return s, nil
}

// filter asks whether the pod's claims can be met on the node.
func (s *claimant) filter(ctx context.Context, node fwk.NodeInfo) *fwk.Status {
	for _, plugin := range s.asked {
		if status := plugin.Filter(ctx, s.state, s.pod, node); !status.IsSuccess() {
			return status.WithPlugin(plugin.Name())
		}
	}
	return nil
}

// reserve gives the pod the volumes and devices that filter found on the node.
func (c *claims) reserve(ctx context.Context, s *claimant, node string) error {
	for _, plugin := range s.asked {
		reserving, ok := plugin.(fwk.ReservePlugin)
		if !ok {
			continue
		}
		if plugin.Name() != names.DynamicResources {
			// It may call the API server for a pod that is being bound; what it
			// would undo in memory is in the journal.
			undo := context.WithoutCancel(ctx)
			c.record(func() { reserving.Unreserve(undo, s.state, s.pod, node) })
		}
		if status := reserving.Reserve(ctx, s.state, s.pod, node); !status.IsSuccess() {
			return fmt.Errorf("reserving claims on node %s: %w", node, status.AsError())
		}
	}
	return nil
}

func (c *claims) record(undo func()) {
	c.journal = append(c.journal, undo)
	c.writes++
}

func (c *claims) lay(o *overlay, key string, object any) { c.record(o.lay(key, object)) }

// rollBack undoes what was done since the journal had the length mark.
func (c *claims) rollBack(mark int) {
	for len(c.journal) > mark {
		last := len(c.journal) - 1
		undo := c.journal[last]
		c.journal = c.journal[:last]
		c.writes++
		undo()
	}
}

// settle gives the pods that are on nodes, but not bound yet, what they will
// take there: holds, and pods whose volumes are not written yet. One that finds
// nothing left is passed over; it will be planned anew when it comes.
func (c *claims) settle(ctx context.Context, nodes []fwk.NodeInfo) error {
	for _, node := range nodes {
		if node.Node() == nil {
			continue
		}
		for _, info := range node.GetPods() {
			if !c.isOpen(info.GetPod()) && !c.awaitsDevices(info.GetPod(), node) {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			pod := *info.GetPod()
			s, status := c.claimant(ctx, &pod, nodes)
			if status.IsSuccess() {
				s.asked = slices.DeleteFunc(s.asked, func(p claimPlugin) bool {
					return p.Name() == names.NodeVolumeLimits || p.Name() == names.VolumeRestrictions
				})
				status = s.filter(ctx, node)
			}
			if !status.IsSuccess() || c.reserve(ctx, s, node.Node().Name) != nil {
				c.rollBack(s.mark)
			}
		}
	}
	return nil
}

// isOpen tells whether a claim of the pod has no volume or devices yet.
func (c *claims) isOpen(pod *v1.Pod) bool {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		name := ""
		switch {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = ephemeral.VolumeClaimName(pod, v)
		default:
			continue
		}
		if claim, ok := c.volumes.claim(pod.Namespace, name); !ok || claim.Spec.VolumeName == "" {
			return true
		}
	}
	if c.devices == nil {
		return false
	}
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if errors.Is(err, resourceclaim.ErrClaimNotFound) {
			return true
		}
		if err != nil || name == nil {
			continue
		}
		if claim, err := c.devices.tracker.Get(pod.Namespace, *name); err == nil && claim.Status.Allocation == nil {
			return true
		}
	}
	return false
}

// nearKeys are the labels of the nodes that can reach the same volume or
// devices, where the pod has claims that others share and that are still open.
func (c *claims) nearKeys(pod *v1.Pod) []string {
	keys := sets.New[string]()
	for i := range pod.Spec.Volumes {
		source := pod.Spec.Volumes[i].PersistentVolumeClaim
		if source == nil {
			continue
		}
		claim, ok := c.volumes.claim(pod.Namespace, source.ClaimName)
		if !ok || claim.Spec.VolumeName != "" {
			continue
		}
		if !isShared(claim) {
			keys.Insert(v1.LabelHostname)
		}
		c.volumeKeys(volume.GetPersistentVolumeClaimClass(claim), keys)
	}
	if c.devices != nil {
		for _, r := range pod.Spec.ResourceClaims {
			if r.ResourceClaimName == nil {
				continue
			}
			if claim, err := c.devices.tracker.Get(pod.Namespace, *r.ResourceClaimName); err == nil && claim.Status.Allocation == nil {
				keys.Insert(v1.LabelHostname)
			}
		}
	}
	return sets.List(keys)
}

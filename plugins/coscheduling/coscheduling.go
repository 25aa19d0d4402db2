package coscheduling

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/scheduling"
)

// Name is the name of the plugin in profiles, metrics and logs.
const Name = scheduling.PluginName

const (
	// ErrReasonNotPlanned is for nodes that are not the pod's own.
	ErrReasonNotPlanned = "node(s) not planned for this pod of its gang"
	// ErrReasonNoSlot is for pods whose job gives them no place now.
	ErrReasonNoSlot = "pod has no slot in its gang now"
)

// Slots is what the plugin asks of the Ledger.
type Slots interface {
	MayEnter(pod *v1.Pod) (bool, string)
	NodeFor(pod *v1.Pod) (node string, managed bool)
	Reserve(pod *v1.Pod) (wait bool, release []types.UID)
	GiveBack(pod *v1.Pod, replan bool) (managed bool)
}

// Plugin gates, steers and starts the pods of gangs.
type Plugin struct {
	slots   Slots
	handle  fwk.Handle
	barrier time.Duration
}

var _ fwk.PreEnqueuePlugin = &Plugin{}
var _ fwk.EnqueueExtensions = &Plugin{}
var _ fwk.PreFilterPlugin = &Plugin{}
var _ fwk.FilterPlugin = &Plugin{}
var _ fwk.ReservePlugin = &Plugin{}
var _ fwk.PermitPlugin = &Plugin{}
var _ fwk.SignPlugin = &Plugin{}

// Factory returns the plugin's constructor. All profiles share slots. barrier
// bounds how long a pod waits at Permit for its start group.
func Factory(slots Slots, barrier time.Duration) frameworkruntime.PluginFactory {
	return func(_ context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		return &Plugin{slots: slots, handle: h, barrier: barrier}, nil
	}
}

// Name returns the name of the plugin.
func (*Plugin) Name() string { return Name }

// PreEnqueue lets a pod into the queue once its job is admitted and its start
// group is complete. A pod that is held gets no Unschedulable condition.
func (p *Plugin) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	if ok, why := p.slots.MayEnter(pod); !ok {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
	}
	return nil
}

// EventsToRegister registers none: exact pods are activated instead.
func (*Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) { return nil, nil }

// steer is the planned node, kept for Filter.
type steer struct{ node string }

// Clone returns the same value: it is never written to.
func (s steer) Clone() fwk.StateData { return s }

const stateKey fwk.StateKey = "PreFilter" + Name

// PreFilter narrows the search to the planned node.
func (p *Plugin) PreFilter(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if placement.IsPlanning(state) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	node, managed := p.slots.NodeFor(pod)
	switch {
	case !managed:
		return nil, fwk.NewStatus(fwk.Skip)
	case node == "":
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonNoSlot)
	}
	state.Write(stateKey, steer{node})
	return &fwk.PreFilterResult{NodeNames: sets.New(node)}, nil
}

// PreFilterExtensions returns none.
func (*Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter enforces the planned node where the result of PreFilter is not asked:
// a nominated node is tried first.
func (*Plugin) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil
	}
	if s, ok := data.(steer); ok && s.node != node.Node().Name {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonNotPlanned)
	}
	return nil
}

// Reserve does nothing: Permit, which follows at once, tells the Ledger.
func (*Plugin) Reserve(context.Context, fwk.CycleState, *v1.Pod, string) *fwk.Status { return nil }

// Unreserve has the slot held again, before the scheduler frees its room.
func (p *Plugin) Unreserve(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	p.slots.GiveBack(pod, false)
}

// Permit makes a pod wait until all of its start group have their nodes; the
// last one lets them go. A pod on whose claim others depend goes on at once:
// they get their nodes only when it has got its volume or devices.
func (p *Plugin) Permit(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) (*fwk.Status, time.Duration) {
	wait, release := p.slots.Reserve(pod)
	if wait && placement.SharesOpenClaim(p.handle, pod) {
		return nil, 0
	}
	if wait {
		return fwk.NewStatus(fwk.Wait), p.barrier
	}
	for _, uid := range release {
		if w := p.handle.GetWaitingPod(uid); w != nil {
			w.Allow(Name)
		}
	}
	return nil, 0
}

// SignPod refuses to batch pods that Muster steers.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if _, managed := p.slots.NodeFor(pod); managed {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	return nil, nil
}

package gputopology

import (
	"context"
	"fmt"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/muster-gpu/muster/placement"
)

// Name is the name of the plugin in profiles, metrics and logs.
const Name = "GPUTopology"

// Weight is that of the plugin's scores in profiles. With maxStep, what lies
// between two ranks is mostly more than the kube-scheduler's own wish for emptier
// nodes, and always less than a preference for nodes of the pod's own.
const Weight = 6

// Slots is what the plugin asks of the Ledger.
type Slots interface {
	NodeFor(pod *v1.Pod) (node string, managed bool)
}

// Plugin ranks nodes for pods that have no slot, and writes on all pods which GPUs they
// are to get, where the configuration says so.
type Plugin struct {
	handle fwk.Handle
	slots  Slots
	mix    *placement.Mix
	// binding has room for as many bindings as are sent at a time.
	binding chan struct{}
}

var _ fwk.PreScorePlugin = &Plugin{}
var _ fwk.ScorePlugin = &Plugin{}
var _ fwk.ScoreExtensions = &Plugin{}
var _ fwk.ReservePlugin = &Plugin{}
var _ fwk.BindPlugin = &Plugin{}
var _ fwk.PostBindPlugin = &Plugin{}
var _ fwk.SignPlugin = &Plugin{}

// bindings is how many bindings are sent at a time: a thousand in a second, where each
// takes 30 ms. A scheduler finds nodes faster than that, and an API server that is sent
// all at once refuses some, which then come a second or more after the rest of their
// gang.
const bindings = 32

// Factory returns the plugin's constructor. All profiles share slots, the mix
// that gangs are planned with, and how many bindings are sent at a time.
func Factory(slots Slots, mix *placement.Mix) frameworkruntime.PluginFactory {
	binding := make(chan struct{}, bindings)
	return func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		return &Plugin{handle: handle, slots: slots, mix: mix, binding: binding}, nil
	}
}

// Name returns the name of the plugin.
func (*Plugin) Name() string { return Name }

// scoring is the pod's demand with the mix of the moment, kept for Score.
type scoring struct{ *placement.Fit }

// Clone returns the same value: it is never written to.
func (s scoring) Clone() fwk.StateData { return s }

const stateKey fwk.StateKey = "PreScore" + Name

// PreScore has a pod left alone that has a slot, and one without GPUs where no
// node has any.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	if _, managed := p.slots.NodeFor(pod); managed {
		return fwk.NewStatus(fwk.Skip)
	}
	fit, err := p.mix.Fit(pod)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("reading what pod %s/%s asks for: %w", pod.Namespace, pod.Name, err))
	}
	if !slices.ContainsFunc(nodes, fit.HasGPUs) {
		return fwk.NewStatus(fwk.Skip)
	}
	state.Write(stateKey, scoring{fit})
	return nil
}

const (
	// grain is below what difference nodes are as good, in millionths of a GPU.
	grain = 10_000
	// mostGrowth bounds the difference by which nodes are told apart, in grains.
	mostGrowth = 1 << 18
	// mostGPUs bounds the GPUs by which nodes are told apart that are as good.
	mostGPUs = 1 << 10
	// best is the score of the best node.
	best = math.MaxInt64
	// maxStep bounds how far ranks are from each other, of MaxScore.
	maxStep = fwk.MaxScore / 4
)

// Score is larger for better nodes. NormalizeScore makes ranks of it: only the
// order counts.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	data, err := state.Read(stateKey)
	if err != nil {
		return 0, fwk.AsStatus(fmt.Errorf("reading the state of PreScore: %w", err))
	}
	fit, ok := data.(scoring)
	if !ok {
		return 0, fwk.AsStatus(fmt.Errorf("the state of PreScore is a %T", data))
	}
	if fit.GPUs() == 0 && !fit.HasGPUs(node) {
		return best, nil
	}
	score, gpus := fit.On(node)
	return -cost(score, gpus), nil
}

// cost has the order of scores, and of equal ones that of their free GPUs.
func cost(score placement.Score, gpus int64) int64 {
	growth := int64(0)
	if !score.Exact {
		growth = 1 + min(max(score.Growth/grain+mostGrowth/2, 0), mostGrowth-2)
	}
	c := int64(score.Link)
	c = c*mostGrowth + growth
	c = c<<3 + int64(score.Sure)
	// Of each kind of links at most fifteen count.
	for kind := 3; kind >= 0; kind-- {
		c = c<<4 + int64(min(score.Breaks>>(8*kind)&0xff, 15))
	}
	return c*mostGPUs + min(gpus, mostGPUs-1)
}

// ScoreExtensions returns the plugin itself.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore makes ranks of the scores, evenly spread: the best has the
// highest.
func (*Plugin) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *v1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	ranks := make([]int64, len(scores))
	for i := range scores {
		ranks[i] = scores[i].Score
	}
	slices.Sort(ranks)
	ranks = slices.Compact(ranks)
	last := int64(len(ranks) - 1)
	for i := range scores {
		at, _ := slices.BinarySearch(ranks, scores[i].Score)
		behind := last - int64(at)
		scores[i].Score = fwk.MaxScore - min(behind*maxStep, behind*fwk.MaxScore/max(last, 1))
	}
	return nil
}

// PostBind has the mix know what pods ask for that no job accounts for.
func (p *Plugin) PostBind(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	if _, managed := p.slots.NodeFor(pod); !managed {
		p.mix.Observe(placement.Gang{Classes: []placement.Class{{Name: pod.Name, Pod: pod, Count: 1}}})
	}
}

// SignPod refuses to batch pods with GPUs: where one goes changes where the next
// one should. Of other pods nothing counts that is not signed anyway.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if fit, err := p.mix.Fit(pod); err != nil || fit.GPUs() > 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	return nil, nil
}

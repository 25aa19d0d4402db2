package placement

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-gpu/muster/api/reason"
)

// Planner plans gangs. It keeps nothing between plans but the mix of requests,
// and what follows from it for nodes that do not change.
type Planner struct {
	// isGPU says which extended resources are GPUs.
	isGPU func(v1.ResourceName) bool
	// claims plans volumes and devices; nil if it was not prepared to.
	claims *claims
	mix    *Mix
	scores scores
}

// NewPlanner returns a Planner that counts the resources for which isGPU is
// true as GPUs.
func NewPlanner(isGPU func(v1.ResourceName) bool) *Planner {
	return &Planner{isGPU: isGPU, mix: newMix(isGPU)}
}

// UseIslands has pods go where their GPUs are close to each other. It must be called
// before anything is planned.
func (p *Planner) UseIslands(i *Islands) { p.mix.islands = i }

// Mix is what was asked for lately; the caller observes it.
func (p *Planner) Mix() *Mix { return p.mix }

// PlanClaims has the planner plan volume claims and resource claims as well,
// by the objects that the handle's informers have; without it a gang with
// claims is an error. It must be called before the informers start, and any
// profile's handle serves.
func (p *Planner) PlanClaims(ctx context.Context, handle fwk.Handle) (err error) {
	p.claims, err = newClaims(ctx, handle, p.mix)
	return err
}

// Plan finds a node for every pod of the gang on the snapshot, or says why
// there is none. Exactly one of the three results is set, except that a gang
// without pods has an Assignment of nothing.
//
// It must run on the scheduler's scheduling goroutine, and snap must be the
// snapshot that fw's plugins read, refreshed by the caller; it is left exactly
// as it was, also on error, panic and cancellation. Errors are those of
// plugins, of gangs that cannot be read (no prototype, a prototype that has a
// node, a negative count), ctx's own and ErrStopped, which are looked for between
// nodes and between pods.
func (p *Planner) Plan(ctx context.Context, fw framework.Framework, snap *cache.Snapshot, gang Gang) (_ Assignment, _ *reason.Reason, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("planning gang %s: %w", gang.Name, err)
		}
	}()
	if fw.SnapshotSharedLister() != fwk.SharedLister(snap) {
		return nil, nil, fmt.Errorf("profile %s does not read the snapshot to plan on", fw.ProfileName())
	}
	nodes, err := snap.List()
	if err != nil {
		return nil, nil, fmt.Errorf("listing the snapshot's nodes: %w", err)
	}
	t := p.newTrial(ctx, fw, snap, nodes)
	t.stop = gang.Stop
	defer func() { err = errors.Join(err, t.end()) }()
	if err := t.begin(ctx, gang); err != nil {
		return nil, nil, err
	}
	return t.plan(ctx, gang)
}

// hypotheticalPods is what a trial changes of the snapshot.
type hypotheticalPods interface {
	AssumePod(*framework.PodInfo) error
	ForgetPod(klog.Logger, *v1.Pod) error
}

var _ hypotheticalPods = &cache.Snapshot{}

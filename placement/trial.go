package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-gpu/muster/api/gpu"
)

// trial is one attempt to place a gang: the pods placed so far are in the
// snapshot, where every plugin sees them, until they are forgotten.
type trial struct {
	fw   framework.Framework
	pods hypotheticalPods
	// nodes are those of the snapshot, with what is counted of their devices, and
	// bareNodes the same as the plugins know them.
	nodes, bareNodes []fwk.NodeInfo

	logger klog.Logger
	isGPU  func(v1.ResourceName) bool
	claims *claims
	stop   func() bool
	scores *scores
	// islands may be nil.
	islands *Islands

	assumed []assumedPod
	// moves counts the pods that were placed and those that were taken back.
	moves int
	// minding: some class minds, see classSearch.minds.
	minding bool
	// variation is that of the try that is being made.
	variation *variation
	effort
	// progress is that of the first try; others have none to go on from. untried says
	// what is left, once it has cost enough.
	progress *Progress
	untried  string
}

func (p *Planner) newTrial(ctx context.Context, fw framework.Framework, snap hypotheticalPods, nodes []fwk.NodeInfo) *trial {
	p.scores.begin(p.mix.now(), len(nodes))
	return &trial{fw: fw, pods: snap, nodes: nodes, bareNodes: nodes, logger: klog.FromContext(ctx), isGPU: p.isGPU, claims: p.claims, scores: &p.scores, islands: p.mix.islands}
}

// goesOn is the error of a trial that must end.
func (t *trial) goesOn(ctx context.Context) error {
	if t.stop != nil && t.stop() {
		return ErrStopped
	}
	return ctx.Err()
}

var errNoClaims = errors.New("its pods have volume or resource claims, which are not planned here")

// begin gives pods that hold nodes what they claim there, if the gang has
// claims too.
func (t *trial) begin(ctx context.Context, gang Gang) error {
	if !slices.ContainsFunc(gang.Classes, func(c Class) bool { return c.Pod != nil && c.Count > 0 && t.claims.usedBy(c.Pod) }) {
		return nil
	}
	if t.claims == nil {
		return errNoClaims
	}
	if err := t.claims.settle(ctx, t.nodes); err != nil {
		return err
	}
	if t.claims.devices == nil || t.islands == nil || !slices.ContainsFunc(gang.Classes, t.wantsDevices) {
		return nil
	}
	if err := t.showDevices(); err != nil {
		return fmt.Errorf("counting devices: %w", err)
	}
	return nil
}

// wantsDevices tells whether pods of the class may get GPUs as devices.
func (t *trial) wantsDevices(c Class) bool {
	return c.Pod != nil && c.Count > 0 && (t.claims.gpusOf(c.Pod, t.islands) > 0 || slices.Contains(t.claims.extended(c.Pod), gpu.NVIDIA))
}

// end takes back everything.
func (t *trial) end() error {
	err := t.forget(0)
	if t.claims != nil {
		t.claims.rollBack(0)
		if t.claims.devices != nil {
			t.claims.devices.tracker.pools = nil
		}
	}
	return err
}

// assumedPod is a pod in the snapshot, and the claimant that it was if claims
// were planned for it.
type assumedPod struct {
	*v1.Pod
	claimant *claimant
}

// hypothetical is the next pod of the class, without a node. It is a shallow
// copy: only the name and the UID differ between the pods of a class, and
// nobody writes to the rest.
func (t *trial) hypothetical(s *classSearch) *v1.Pod {
	pod := *s.prototype.Pod
	number := strconv.Itoa(len(t.assumed))
	// Not the name of a hold, or of a pod that its controller makes.
	pod.Name = pod.Name + "-plan-" + number
	pod.UID = types.UID(s.uidPrefix + number)
	return &pod
}

// assume puts one more pod of the class on the node.
func (t *trial) assume(s *classSearch, node fwk.NodeInfo) (*framework.PodInfo, error) {
	assumed := assumedPod{t.hypothetical(s), s.next}
	if s.next != nil {
		assumed.Status.ResourceClaimStatuses = s.next.pod.Status.ResourceClaimStatuses
		s.next = nil
	}
	assumed.Spec.NodeName = node.Node().Name
	info := *s.prototype
	info.Pod = assumed.Pod
	if err := t.pods.AssumePod(&info); err != nil {
		return nil, fmt.Errorf("assuming a pod on node %s: %w", assumed.Spec.NodeName, err)
	}
	t.assumed = append(t.assumed, assumed)
	t.moves++
	return &info, nil
}

// forget takes back all pods but the first keep, last in, first out: the
// snapshot relies on that order, and claims do.
func (t *trial) forget(keep int) error {
	var errs []error
	for len(t.assumed) > keep {
		last := len(t.assumed) - 1
		pod := t.assumed[last]
		if err := t.pods.ForgetPod(t.logger, pod.Pod); err != nil {
			errs = append(errs, fmt.Errorf("forgetting a hypothetical pod: %w", err))
		}
		if pod.claimant != nil {
			t.claims.rollBack(pod.claimant.mark)
		}
		t.assumed = t.assumed[:last]
		t.moves++
	}
	return errors.Join(errs...)
}

// groupEqual puts equal names next to each other, by first appearance.
func groupEqual(names []string) []string {
	count := make(map[string]int)
	for _, name := range names {
		count[name]++
	}
	grouped := make([]string, 0, len(names))
	for _, name := range names {
		for ; count[name] > 0; count[name]-- {
			grouped = append(grouped, name)
		}
	}
	return grouped
}

package placement

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-gpu/muster/api/reason"
)

// trial is one attempt to place a gang: the pods placed so far are in the
// snapshot, where every plugin sees them, until they are forgotten.
type trial struct {
	fw     framework.Framework
	pods   hypotheticalPods
	nodes  []fwk.NodeInfo
	logger klog.Logger
	isGPU  func(v1.ResourceName) bool

	assumed []*v1.Pod
}

// plan places the classes in turn, each on what the earlier ones left.
func (t *trial) plan(ctx context.Context, gang Gang) (Assignment, *reason.Reason, error) {
	searches := make([]*classSearch, len(gang.Classes))
	for i := range gang.Classes {
		s, err := t.newClassSearch(&gang, i)
		if err != nil {
			return nil, nil, err
		}
		searches[i] = s
	}
	result := make(Assignment, len(searches))
	for _, i := range planOrder(searches) {
		s := searches[i]
		if err := s.run(ctx); err != nil {
			return nil, nil, fmt.Errorf("placing pod set %s: %w", s.class.Name, err)
		}
		if len(s.chosen) < s.class.Count {
			why, err := s.whyNot(ctx, searches)
			if err != nil {
				return nil, nil, fmt.Errorf("diagnosing pod set %s: %w", s.class.Name, err)
			}
			return nil, why, nil
		}
		result[i] = groupEqual(s.chosen)
	}
	return result, nil, nil
}

// assume puts one more pod of the class on the node.
func (t *trial) assume(s *classSearch, node fwk.NodeInfo) (*framework.PodInfo, error) {
	// A shallow copy: only the name, the UID and the node differ between the
	// pods of a class, and nobody writes to the rest.
	pod := *s.prototype.Pod
	number := strconv.Itoa(len(t.assumed))
	pod.Name = pod.Name + "-" + number
	pod.UID = types.UID(s.uidPrefix + number)
	pod.Spec.NodeName = node.Node().Name
	info := *s.prototype
	info.Pod = &pod
	if err := t.pods.AssumePod(&info); err != nil {
		return nil, fmt.Errorf("assuming a pod on node %s: %w", pod.Spec.NodeName, err)
	}
	t.assumed = append(t.assumed, &pod)
	return &info, nil
}

// forget takes back all pods but the first keep, last in, first out: the
// snapshot relies on that order.
func (t *trial) forget(keep int) error {
	var errs []error
	for len(t.assumed) > keep {
		last := len(t.assumed) - 1
		if err := t.pods.ForgetPod(t.logger, t.assumed[last]); err != nil {
			errs = append(errs, fmt.Errorf("forgetting a hypothetical pod: %w", err))
		}
		t.assumed = t.assumed[:last]
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

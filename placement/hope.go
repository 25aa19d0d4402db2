package placement

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Hopeless says that some class of the gang has too few GPUs on the snapshot
// even if freed more became free, of the kind and where the gang would like it
// best: then no plan is worth a try. It costs one look at every node.
func (p *Planner) Hopeless(snap *cache.Snapshot, gang Gang, freed int64) (bool, error) {
	for _, class := range gang.Classes {
		if class.Count == 0 {
			continue
		}
		info, err := framework.NewPodInfo(class.Pod)
		if err != nil {
			return false, fmt.Errorf("reading the prototype pod of pod set %s: %w", class.Name, err)
		}
		selector := labels.SelectorFromSet(class.Pod.Spec.NodeSelector)
		for _, s := range p.claims.demandOf(info.CalculateResource().Resource, p.isGPU).scalars {
			if !s.gpu || s.device {
				continue
			}
			need, have := int64(class.Count)*s.quantity, freed
			err := eachNode(snap, selector, func(node fwk.NodeInfo) bool {
				have += max(0, node.GetAllocatable().GetScalarResources()[s.name]-node.GetRequested().GetScalarResources()[s.name])
				return have < need
			})
			if err != nil || have < need {
				return err == nil, err
			}
		}
	}
	return false, nil
}

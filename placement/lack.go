package placement

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Bite is what one pod takes of a GPU resource, and from which nodes. It can
// be a map key.
type Bite struct {
	Resource v1.ResourceName
	// PerPod is above zero.
	PerPod int64
	// Selector is the pod's node selector, as labels.Set prints it.
	Selector string
}

// Lack is a class that cannot be placed before more GPUs are free: Pods pods
// of the Bite are wanted, and Room finds fewer.
type Lack struct {
	Bite
	Pods int
}

// Lack finds a class of the gang for which the free GPUs of all nodes that its
// node selector allows are too few, whatever else these nodes have and
// whatever pods run there. While that is so there is no plan: pods take whole
// bites of a node, so the sum of the bites that fit bounds their number.
func (p *Planner) Lack(snap *cache.Snapshot, gang Gang) (Lack, bool, error) {
	for _, class := range gang.Classes {
		if class.Count == 0 {
			continue
		}
		info, err := framework.NewPodInfo(class.Pod)
		if err != nil {
			return Lack{}, false, fmt.Errorf("reading the prototype pod of pod set %s: %w", class.Name, err)
		}
		d := demandOf(info.CalculateResource().Resource, p.isGPU)
		for _, s := range d.scalars {
			if !s.gpu {
				continue
			}
			lack := Lack{Bite{Resource: s.name, PerPod: s.quantity, Selector: labels.Set(class.Pod.Spec.NodeSelector).String()}, class.Count}
			room, err := Room(snap, lack.Bite)
			if err != nil {
				return Lack{}, false, err
			}
			if room < class.Count {
				return lack, true, nil
			}
		}
	}
	return Lack{}, false, nil
}

// Room is how many pods the free GPUs hold, if nothing but them and the node
// selector counts. Nodes do not count twice, and pods that are about to leave
// still count as there.
func Room(snap *cache.Snapshot, b Bite) (int, error) {
	nodes, err := snap.List()
	if err != nil {
		return 0, fmt.Errorf("listing the snapshot's nodes: %w", err)
	}
	selector, err := labels.ConvertSelectorToLabelsMap(b.Selector)
	if err != nil {
		// What is no selector of labels selects no node, for the plugins too.
		// They say so; here it must not hide a node.
		selector = nil
	}
	match := labels.SelectorFromValidatedSet(selector)
	var room int64
	for _, node := range nodes {
		free := node.GetAllocatable().GetScalarResources()[b.Resource] - node.GetRequested().GetScalarResources()[b.Resource]
		if free >= b.PerPod && node.Node() != nil && match.Matches(labels.Set(node.Node().Labels)) {
			room += free / b.PerPod
		}
	}
	return int(room), nil
}

package placement

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Lack is a class of which Pods pods are wanted, and for fewer there is room:
// added up over all nodes that its node selector allows, and whatever else
// stands against it. While that is so there is no plan, because each node
// takes no more pods than it has room for. It costs little to look whether a
// Lack lasts.
type Lack struct {
	Pods int
	// Bite has a Resource if that GPU resource alone is too little. Then only
	// more free GPUs can end the Lack.
	Bite Bite

	demand   demand
	selector labels.Selector
}

// Bite is what one pod takes of a GPU resource, and from which nodes. It can
// be a map key.
type Bite struct {
	Resource v1.ResourceName
	PerPod   int64
	// Selector is the pod's node selector, as labels.Set prints it.
	Selector string
}

// Lack finds a class of the gang for which there are too few resources, nil
// where there is none.
func (p *Planner) Lack(snap *cache.Snapshot, gang Gang) (*Lack, error) {
	var found *Lack
	for _, class := range gang.Classes {
		if class.Count == 0 {
			continue
		}
		info, err := framework.NewPodInfo(class.Pod)
		if err != nil {
			return nil, fmt.Errorf("reading the prototype pod of pod set %s: %w", class.Name, err)
		}
		l := Lack{
			Pods:     class.Count,
			demand:   p.claims.demandOf(info.CalculateResource().Resource, p.isGPU),
			selector: labels.SelectorFromSet(class.Pod.Spec.NodeSelector),
		}
		for _, s := range l.demand.scalars {
			if !s.gpu || s.device {
				continue
			}
			bite := Bite{Resource: s.name, PerPod: s.quantity, Selector: labels.Set(class.Pod.Spec.NodeSelector).String()}
			room, err := bite.Room(snap)
			if err != nil {
				return nil, err
			}
			if room < l.Pods {
				l.Bite = bite
				return &l, nil
			}
		}
		lasts, err := l.Lasts(snap)
		if err != nil {
			return nil, err
		}
		if lasts && found == nil {
			found = &l
		}
	}
	return found, nil
}

// Lasts says that there is still too little room on the snapshot.
func (l *Lack) Lasts(snap *cache.Snapshot) (bool, error) {
	room := 0
	err := eachNode(snap, l.selector, func(node fwk.NodeInfo) bool {
		room += l.demand.room(node.GetAllocatable(), node.GetRequested(), len(node.GetPods()), l.Pods)
		return room < l.Pods
	})
	return room < l.Pods, err
}

// Room is how many pods the free GPUs hold, if nothing but them and the node
// selector counts.
func (b Bite) Room(snap *cache.Snapshot) (int, error) {
	selector, err := labels.ConvertSelectorToLabelsMap(b.Selector)
	if err != nil {
		// A node selector that is none matches no node. That is for the plugins
		// to say; here it must not hide a node.
		selector = nil
	}
	var room int64
	err = eachNode(snap, labels.SelectorFromValidatedSet(selector), func(node fwk.NodeInfo) bool {
		free := node.GetAllocatable().GetScalarResources()[b.Resource] - node.GetRequested().GetScalarResources()[b.Resource]
		room += max(free, 0) / b.PerPod
		return true
	})
	return int(room), err
}

// eachNode calls do for the nodes that the selector allows, until it says no.
func eachNode(snap *cache.Snapshot, selector labels.Selector, do func(fwk.NodeInfo) bool) error {
	nodes, err := snap.List()
	if err != nil {
		return fmt.Errorf("listing the snapshot's nodes: %w", err)
	}
	for _, node := range nodes {
		if node.Node() != nil && selector.Matches(labels.Set(node.Node().Labels)) && !do(node) {
			return nil
		}
	}
	return nil
}

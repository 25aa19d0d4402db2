package workload

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Claimed is the devices that pods get through claims (dynamic resource allocation),
// as resources of quota.
type Claimed struct {
	// PerPod is what each pod claims for itself.
	PerPod corev1.ResourceList
	// Shared is what all pods of the set claim together, beside. What several sets
	// share is the first one's that has pods.
	Shared corev1.ResourceList
	// Renamed are the resources of quota for others that pods request, which stand
	// for devices.
	Renamed map[corev1.ResourceName]corev1.ResourceName
}

// with is a list of requests with what each pod claims. The list is the caller's to
// change.
func (c *Claimed) with(requests corev1.ResourceList) corev1.ResourceList {
	for from, to := range c.Renamed {
		if quantity, ok := requests[from]; ok {
			delete(requests, from)
			addTo(requests, to, quantity)
		}
	}
	for name, quantity := range c.PerPod {
		addTo(requests, name, quantity)
	}
	return requests
}

func addTo(list corev1.ResourceList, name corev1.ResourceName, more resource.Quantity) {
	sum := list[name]
	sum.Add(more)
	list[name] = sum
}

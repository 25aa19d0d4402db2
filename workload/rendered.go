package workload

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-gpu/muster/api/gpu"
)

// Rendered is a pod template as pods made of it will be. Neither pod has a
// node, a status or what only the kubelet reads. They may be shared between
// jobs, so nobody changes them.
type Rendered struct {
	// Charged is the pod as the API server's own admission makes it: with the
	// requests of LimitRanges, the overhead of its RuntimeClass, its priority
	// and the default tolerations. It is what the job is charged for.
	Charged *corev1.Pod
	// Placed is the pod as it will be created, with what webhooks and policies
	// inject. It is what the nodes must take. Where nobody was asked, it is
	// Charged.
	Placed *corev1.Pod
}

// PerPod is what one pod of the set is charged: the requests of the rendered
// pod, or those of the template before it is rendered, and what it claims for itself.
func (p *PodSet) PerPod() corev1.ResourceList { return p.Claimed.with(p.requests()) }

func (p *PodSet) requests() corev1.ResourceList {
	return Requests(&corev1.PodTemplateSpec{Spec: *p.ChargedSpec()})
}

// AdvertisedGPUs is how many GPUs one pod of the set needs that its node advertises:
// without those that it claims, and those of resources behind which there may be devices.
func (p *PodSet) AdvertisedGPUs(isDevice func(corev1.ResourceName) bool) int64 {
	requests := p.requests()
	maps.DeleteFunc(requests, func(name corev1.ResourceName, _ resource.Quantity) bool { return isDevice(name) })
	return GPUs(requests)
}

// GPUs is how many GPUs all pods of the set are charged for together.
func (p *PodSet) GPUs() int64 {
	_, all := p.CountGPUs()
	return all
}

// CountGPUs is how many GPUs each pod of the set is charged for, and how many all are
// together with what they share.
func (p *PodSet) CountGPUs() (perPod, all int64) {
	counts := func(name corev1.ResourceName) bool {
		_, renamed := p.Claimed.Renamed[name]
		return renamed || gpu.Is(name)
	}
	perPod = GPUs(p.Claimed.with(requestsOf(p.ChargedSpec(), counts)))
	if p.Count == 0 {
		return perPod, 0
	}
	return perPod, int64(p.Count)*perPod + GPUs(p.Claimed.Shared)
}

// ChargedSpec is what quota looks at: Rendered.Charged's spec, or the
// template's before it is rendered. It must not be changed.
func (p *PodSet) ChargedSpec() *corev1.PodSpec {
	if p.Rendered == nil {
		return &p.Template.Spec
	}
	return &p.Rendered.Charged.Spec
}

// PlacedTemplate is what nodes are looked for: Rendered.Placed, or the template
// before it is rendered. What it points to must not be changed.
func (p *PodSet) PlacedTemplate() corev1.PodTemplateSpec {
	if p.Rendered == nil {
		return p.Template
	}
	return corev1.PodTemplateSpec{ObjectMeta: p.Rendered.Placed.ObjectMeta, Spec: p.Rendered.Placed.Spec}
}

package gputopology

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"
)

// Reserve chooses the GPUs that the pod gets on its node. Where it is not known which
// are free, the node chooses.
func (p *Plugin) Reserve(_ context.Context, _ fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	islands := p.mix.Islands()
	if islands == nil {
		return nil
	}
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(node)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("reading node %s: %w", node, err))
	}
	islands.Choose(pod, info)
	return nil
}

// Unreserve gives the GPUs up.
func (p *Plugin) Unreserve(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	if islands := p.mix.Islands(); islands != nil {
		islands.Forget(pod.UID)
	}
}

// Bind binds a pod on which there is something to write, in the same request. Other
// pods are the next plugin's.
func (p *Plugin) Bind(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	islands := p.mix.Islands()
	if islands == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	object, err := p.handle.SharedInformerFactory().Core().V1().Nodes().Lister().Get(node)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("reading node %s: %w", node, err))
	}
	annotations := islands.Annotations(pod, object)
	if annotations == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	klog.FromContext(ctx).V(3).Info("Binding a pod with its GPUs", "pod", klog.KObj(pod), "node", node, "annotations", annotations)
	binding := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Annotations: annotations},
		Target:     v1.ObjectReference{Kind: "Node", Name: node},
	}
	if err := schedutil.BindPod(ctx, p.handle.ClientSet(), binding); err != nil {
		return fwk.AsStatus(err)
	}
	return nil
}

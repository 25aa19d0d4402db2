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

// Bind binds a pod, and writes its GPUs on it in the same request where they are
// chosen. Where the scheduler makes its calls asynchronously (SchedulerAsyncAPICalls),
// it goes through their queue, so that what was to be said of the pod before is not said
// after it is bound.
func (p *Plugin) Bind(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	annotations := p.annotations(ctx, pod, node)
	select {
	case p.binding <- struct{}{}:
		defer func() { <-p.binding }()
	case <-ctx.Done():
		return fwk.AsStatus(context.Cause(ctx))
	}
	binding := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Annotations: annotations},
		Target:     v1.ObjectReference{Kind: "Node", Name: node},
	}
	if err := p.send(ctx, binding); err != nil {
		return fwk.AsStatus(err)
	}
	return nil
}

func (p *Plugin) send(ctx context.Context, binding *v1.Binding) error {
	calls := p.handle.APICacher()
	if calls == nil {
		return schedutil.BindPod(ctx, p.handle.ClientSet(), binding)
	}
	sent, err := calls.BindPod(binding)
	if err != nil {
		return err
	}
	return calls.WaitOnFinish(ctx, sent)
}

// annotations are what is written on a pod that is bound; nil where the node chooses
// its GPUs.
func (p *Plugin) annotations(ctx context.Context, pod *v1.Pod, node string) map[string]string {
	islands := p.mix.Islands()
	if islands == nil {
		return nil
	}
	annotations := islands.Annotations(pod)
	if annotations != nil {
		klog.FromContext(ctx).V(3).Info("Binding a pod with its GPUs", "pod", klog.KObj(pod), "node", node, "annotations", annotations)
	}
	return annotations
}

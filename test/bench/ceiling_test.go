package bench

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// ceilingWorkers are how many bindings are sent at a time, one number after the
// other: what the API server does at most is the best of them.
var ceilingWorkers = []int{8, 16, 32}

// ceiling has all pods of a load bound by nobody who would decide anything: each
// worker takes the next pod, whose node is known, and sends its binding as a
// scheduler does; or the next gang, whose Workload it writes before it does so for the
// pods of the gang one after the other. The figures are those of the fastest number of
// workers.
func (r *gangRun) ceiling(ctx context.Context) (*gangFigures, error) {
	config := rest.CopyConfig(r.cluster.Config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	nodes := &corev1.NodeList{}
	if err := r.cluster.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("listing the nodes: %w", err)
	}
	var best *gangFigures
	for _, workers := range ceilingWorkers {
		b := &binder{gangRun: r, client: k, prefix: fmt.Sprintf("w%d", workers)}
		for i := range nodes.Items {
			b.nodes = append(b.nodes, nodes.Items[i].Name)
		}
		if err := r.submit(ctx, b.prefix); err != nil {
			return nil, err
		}
		f, err := r.measure(ctx, func(ctx context.Context) error {
			if r.workloads {
				return inParallel(ctx, workers, r.load.gangs, b.bindGang)
			}
			return inParallel(ctx, workers, r.load.pods(), b.bind)
		})
		if err != nil {
			return nil, err
		}
		fmt.Printf("  %s, %s, %d workers: %.0f pods/s\n", r.name, r.load, workers, f.perSecond())
		if best == nil || f.perSecond() > best.perSecond() {
			best = f
		}
	}
	return best, nil
}

// binder binds pods without deciding anything.
type binder struct {
	*gangRun
	client kubernetes.Interface
	// prefix is that of the gangs' names, nodes are the names of all nodes.
	prefix string
	nodes  []string
}

// nodeOf is the node of the i-th pod of all.
func (b *binder) nodeOf(i int) string { return b.nodes[i/8] }

// bind binds the i-th pod.
func (b *binder) bind(ctx context.Context, i int) error {
	pod := b.load.pod(b.prefix, i/b.load.size, i%b.load.size, b.scheduler)
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: b.nodeOf(i)},
	}
	if err := b.client.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("binding pod %s: %w", pod.Name, err)
	}
	if !b.events {
		return nil
	}
	if _, err := b.client.EventsV1().Events(pod.Namespace).Create(ctx, scheduled(pod, binding.Target.Name), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("writing the event of pod %s: %w", pod.Name, err)
	}
	return nil
}

// bindGang writes the Workload of a gang and binds its pods.
func (b *binder) bindGang(ctx context.Context, gang int) error {
	first := gang * b.load.size
	var nodes []string
	for i := range b.load.size {
		nodes = append(nodes, b.nodeOf(first+i))
	}
	wl := b.load.workload(b.prefix, gang, b.scheduler)
	if err := b.cluster.Create(ctx, wl); err != nil {
		return fmt.Errorf("writing the Workload of gang %d: %w", gang, err)
	}
	admit(wl, nodes)
	if err := b.cluster.Status().Update(ctx, wl); err != nil {
		return fmt.Errorf("writing the admission of gang %d: %w", gang, err)
	}
	for i := range b.load.size {
		if err := b.bind(ctx, first+i); err != nil {
			return err
		}
	}
	return nil
}

// workload is that of a gang, as Muster writes it.
func (l gangLoad) workload(prefix string, gang int, scheduler string) *kueue.Workload {
	key := types.NamespacedName{Namespace: gangTeam, Name: gangName(prefix, gang)}
	job := &workload.Job{Owner: workload.GroupOwner(workload.PodGroupGVK, key), Queue: gangTeam}
	for i := range l.size {
		pod := l.pod(prefix, gang, i, scheduler)
		pod.UID = types.UID(pod.Name)
		job.Pods = append(job.Pods, pod)
	}
	template := corev1.PodTemplateSpec{ObjectMeta: job.Pods[0].ObjectMeta, Spec: job.Pods[0].Spec}
	job.PodSets = []workload.PodSet{{Name: workload.RoleOf(job.Pods[0]), Count: int32(l.size), Template: template}}
	return workload.NewWorkload(job, 0, nil)
}

// admit has a Workload say that its pods are admitted, each of one GPU on its node.
func admit(wl *kueue.Workload, nodes []string) {
	set := &wl.Spec.PodSets[0]
	wl.Status.Admission = &kueue.Admission{ClusterQueue: gangTeam, PodSetAssignments: []kueue.PodSetAssignment{{
		Name: set.Name, Count: &set.Count,
		Flavors:            map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: flavor},
		ResourceUsage:      corev1.ResourceList{gpu: *resource.NewQuantity(int64(set.Count), resource.DecimalSI)},
		TopologyAssignment: workload.EncodeNodes(nodes),
	}}}
	for _, kind := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind, Message: "admitted: it fits"})
	}
}

// scheduled is the event that a kube-scheduler writes about a pod.
func scheduled(pod *corev1.Pod, node string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name + ".scheduled"},
		EventTime:  metav1.NowMicro(), ReportingController: "nobody", ReportingInstance: "nobody",
		Type: corev1.EventTypeNormal, Reason: "Scheduled", Action: "Binding",
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name},
		Note:      fmt.Sprintf("Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, node),
	}
}

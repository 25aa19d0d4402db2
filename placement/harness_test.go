package placement

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

const gpuResource = v1.ResourceName("nvidia.com/gpu")

func isGPU(name v1.ResourceName) bool { return name == gpuResource }

// cluster is a real scheduler of the default profile that never runs: its
// cache, and the framework with all default plugins over its snapshot.
type cluster struct {
	ctx     context.Context
	sched   *scheduler.Scheduler
	fw      framework.Framework
	snap    *cache.Snapshot
	planner *Planner
	client  *fake.Clientset
	factory informers.SharedInformerFactory
	// zonal: see scene. version counts the objects written.
	zonal   bool
	version int
}

func newCluster(tb testing.TB, nodes []*v1.Node, running ...*v1.Pod) *cluster {
	tb.Helper()
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	tb.Cleanup(cancel)
	return newClusterIn(ctx, tb, nodes, running...)
}

// fataler is what both testing and rapid offer.
type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

func newClusterIn(ctx context.Context, tb fataler, nodes []*v1.Node, running ...*v1.Pod) *cluster {
	tb.Helper()
	return newClusterOf(ctx, tb, nil, nodes, running)
}

// newClusterOf is a cluster whose API server has the objects; without any its
// informers do not run.
func newClusterOf(ctx context.Context, tb fataler, objects []runtime.Object, nodes []*v1.Node, running []*v1.Pod) *cluster {
	tb.Helper()
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	sched, err := scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster))
	if err != nil {
		tb.Fatalf("building the scheduler: %v", err)
	}
	fw := sched.Profiles[v1.DefaultSchedulerName]
	planner := NewPlanner(isGPU)
	if err := planner.PlanClaims(ctx, fw); err != nil {
		tb.Fatalf("building the planner: %v", err)
	}
	if len(objects) > 0 {
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		c := &cluster{fw: fw}
		for _, object := range objects {
			// What keeps objects besides the informers hears of them later.
			switch o := object.(type) {
			case *resourceapi.ResourceClaim:
				c.await(tb, func() bool { _, ok := c.deviceClaim(o.Namespace, o.Name); return ok })
			case *resourceapi.ResourceSlice:
				c.await(tb, func() bool {
					slices, err := fw.SharedDRAManager().ResourceSlices().ListWithDeviceTaintRules()
					return err == nil && len(slices) == count[*resourceapi.ResourceSlice](objects)
				})
			}
		}
	}
	logger := klog.FromContext(ctx)
	for _, node := range nodes {
		sched.Cache.AddNode(logger, node)
	}
	for _, pod := range running {
		if err := sched.Cache.AddPod(logger, pod); err != nil {
			tb.Fatalf("adding pod %s: %v", pod.Name, err)
		}
	}
	snap := fw.SnapshotSharedLister().(*cache.Snapshot)
	if err := sched.Cache.UpdateSnapshot(logger, snap); err != nil {
		tb.Fatalf("taking the snapshot: %v", err)
	}
	return &cluster{ctx: ctx, sched: sched, fw: fw, snap: snap, planner: planner, client: client, factory: factory}
}

// seen is a job of one pod.
func seen(gpus int, options ...podOption) Gang {
	return gangOf(class(makePod("seen", gpus, options...), 1))
}

// count counts the objects of one type.
func count[T runtime.Object](objects []runtime.Object) (n int) {
	for _, o := range objects {
		if _, ok := o.(T); ok {
			n++
		}
	}
	return n
}

// await waits until an informer's handlers have done their part.
func (c *cluster) await(tb fataler, done func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("an informer has not delivered within a minute")
		}
	}
}

// deviceClaim is a ResourceClaim as the scheduler's plugins see it.
func (c *cluster) deviceClaim(namespace, name string) (*resourceapi.ResourceClaim, bool) {
	claim, err := c.fw.SharedDRAManager().ResourceClaims().Get(namespace, name)
	return claim, err == nil
}

// dump renders all that plugins can read of the snapshot. Counts of zero are
// left out: a map with a zero says the same as a map without.
func (c *cluster) dump(tb fataler) string {
	tb.Helper()
	var b strings.Builder
	nodes, err := c.snap.List()
	if err != nil {
		tb.Fatalf("listing nodes: %v", err)
	}
	for _, n := range nodes {
		fmt.Fprintf(&b, "%s generation %d pods %s\n", n.Node().Name, n.GetGeneration(), podNames(n.GetPods()))
		fmt.Fprintf(&b, "  requested %s non-zero %s allocatable %s\n", resources(n.GetRequested()), resources(n.GetNonZeroRequested()), resources(n.GetAllocatable()))
		fmt.Fprintf(&b, "  affinity %s anti %s anti-wide %s\n", podNames(n.GetPodsWithAffinity()), podNames(n.GetPodsWithRequiredAntiAffinity()), podNames(n.GetPodsWithRequiredNonHostScopedAntiAffinity()))
		fmt.Fprintf(&b, "  ports %v claims %v\n", n.GetUsedPorts(), n.GetPVCRefCounts())
	}
	for _, list := range []func() ([]fwk.NodeInfo, error){
		c.snap.HavePodsWithAffinityList,
		c.snap.HavePodsWithRequiredAntiAffinityList,
		c.snap.HavePodsWithRequiredNonHostScopedAntiAffinityList,
	} {
		nodes, err := list()
		if err != nil {
			tb.Fatalf("listing nodes: %v", err)
		}
		for _, n := range nodes {
			fmt.Fprintf(&b, "%s ", n.Node().Name)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func podNames(infos []fwk.PodInfo) []string {
	var names []string
	for _, info := range infos {
		names = append(names, info.GetPod().Name)
	}
	return names
}

func resources(r fwk.Resource) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cpu=%d memory=%d storage=%d", r.GetMilliCPU(), r.GetMemory(), r.GetEphemeralStorage())
	for _, name := range slices.Sorted(maps.Keys(r.GetScalarResources())) {
		if n := r.GetScalarResources()[name]; n != 0 {
			fmt.Fprintf(&b, " %s=%d", name, n)
		}
	}
	return b.String()
}

type nodeOption func(*v1.Node)

// makeNode is a ready node with 64 CPUs, 512Gi, 110 pods, and the GPUs.
func makeNode(name string, gpus int, options ...nodeOption) *v1.Node {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU:    resource.MustParse("64"),
			v1.ResourceMemory: resource.MustParse("512Gi"),
			v1.ResourcePods:   resource.MustParse("110"),
		}},
	}
	if gpus > 0 {
		node.Status.Allocatable[gpuResource] = *resource.NewQuantity(int64(gpus), resource.DecimalSI)
	}
	for _, option := range options {
		option(node)
	}
	return node
}

func nodeLabel(key, value string) nodeOption {
	return func(n *v1.Node) { n.Labels[key] = value }
}

func tainted(key string) nodeOption {
	return func(n *v1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Effect: v1.TaintEffectNoSchedule})
	}
}

func memory(quantity string) nodeOption {
	return func(n *v1.Node) { n.Status.Allocatable[v1.ResourceMemory] = resource.MustParse(quantity) }
}

func ready(status v1.ConditionStatus) nodeOption {
	return func(n *v1.Node) {
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: status}}
	}
}

func cordoned(n *v1.Node) { n.Spec.Unschedulable = true }

// makeNodes numbers nodes from node-0.
func makeNodes(count, gpus int, options ...nodeOption) []*v1.Node {
	nodes := make([]*v1.Node, count)
	for i := range nodes {
		nodes[i] = makeNode(fmt.Sprintf("node-%d", i), gpus, options...)
	}
	return nodes
}

type podOption func(*v1.Pod)

// makePod is a pending pod of one container that asks for 1 CPU, 1Gi and the
// GPUs, labelled app=<name>.
func makePod(name string, gpus int, options ...podOption) *v1.Pod {
	requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi")}
	if gpus > 0 {
		requests[gpuResource] = *resource.NewQuantity(int64(gpus), resource.DecimalSI)
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team-a", UID: types.UID(name), Labels: map[string]string{"app": name}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: requests, Limits: requests.DeepCopy()}}}},
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

func on(node string) podOption { return func(p *v1.Pod) { p.Spec.NodeName = node } }

func cpus(n string) podOption {
	return func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(n) }
}

func requesting(name v1.ResourceName, quantity string) podOption {
	return func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(quantity) }
}

func selecting(key, value string) podOption {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
}

func hostPort(port int32) podOption {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: port, HostPort: port}}
	}
}

func term(app, key string) []v1.PodAffinityTerm {
	return []v1.PodAffinityTerm{{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, TopologyKey: key}}
}

func near(app, key string) podOption {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(app, key)}}
	}
}

func apart(app, key string) podOption {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(app, key)}}
	}
}

func spread(app, key string, skew int32) podOption {
	return func(p *v1.Pod) {
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{
			MaxSkew: skew, TopologyKey: key, WhenUnsatisfiable: v1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		})
	}
}

func gangOf(classes ...Class) Gang { return Gang{Name: "job", UID: "job-uid", Classes: classes} }

func class(pod *v1.Pod, count int) Class { return Class{Name: pod.Name, Pod: pod, Count: count} }

// use renders the nodes of one class as node x count.
func use(nodes []string) string {
	var parts []string
	for i := 0; i < len(nodes); {
		j := i
		for j < len(nodes) && nodes[j] == nodes[i] {
			j++
		}
		parts = append(parts, fmt.Sprintf("%s x%d", nodes[i], j-i))
		i = j
	}
	return strings.Join(parts, ", ")
}

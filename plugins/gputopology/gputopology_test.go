package gputopology

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/placement"
)

const gpuResource = v1.ResourceName("nvidia.com/gpu")

// slots are the pods that a job accounts for, with their nodes.
type slots map[string]string

func (s slots) NodeFor(pod *v1.Pod) (string, bool) {
	node, managed := s[pod.Name]
	return node, managed
}

// cluster is a real scheduler with the plugin in its default profile. It does not
// run: pods are placed one by one.
type cluster struct {
	t     *testing.T
	sched *scheduler.Scheduler
	mix   *placement.Mix
}

func newCluster(t *testing.T, slots slots, nodes ...*v1.Node) *cluster {
	t.Helper()
	c := &cluster{t: t, mix: placement.NewPlanner(gpu.Is).Mix()}
	defaults, err := latest.Default()
	if err != nil {
		t.Fatal(err)
	}
	enabled := &defaults.Profiles[0].Plugins.MultiPoint.Enabled
	*enabled = append(*enabled, config.Plugin{Name: Name, Weight: Weight})
	client := fake.NewClientset()
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	ctx := klog.NewContext(t.Context(), klog.Logger{})
	c.sched, err = scheduler.New(ctx, client, informers.NewSharedInformerFactory(client, 0), nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithProfiles(defaults.Profiles...),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{Name: Factory(slots, c.mix)}))
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		c.sched.Cache.AddNode(klog.Logger{}, node)
	}
	return c
}

// place has the scheduler choose a node, and binds the pod there.
func (c *cluster) place(pod *v1.Pod) string {
	c.t.Helper()
	fw := c.sched.Profiles[v1.DefaultSchedulerName]
	if err := c.sched.Cache.UpdateSnapshot(klog.Logger{}, fw.SnapshotSharedLister().(*cache.Snapshot)); err != nil {
		c.t.Fatal(err)
	}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		c.t.Fatal(err)
	}
	state := framework.NewCycleState()
	result, err := c.sched.SchedulePod(c.t.Context(), fw, state, &framework.QueuedPodInfo{PodInfo: info})
	if err != nil {
		c.t.Fatalf("pod %s: %v", pod.Name, err)
	}
	bound := pod.DeepCopy()
	bound.Spec.NodeName = result.SuggestedHost
	if err := c.sched.Cache.AddPod(klog.Logger{}, bound); err != nil {
		c.t.Fatal(err)
	}
	fw.RunPostBindPlugins(c.t.Context(), state, bound, result.SuggestedHost)
	return result.SuggestedHost
}

func (c *cluster) taken() map[string]int64 {
	out := map[string]int64{}
	for name, node := range c.sched.Cache.Dump().Nodes {
		if n := node.Requested.ScalarResources[gpuResource]; n > 0 {
			out[name] = n
		}
	}
	return out
}

func makeNode(name string, gpus int64, cpus string) *v1.Node {
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse(cpus), v1.ResourceMemory: resource.MustParse("960Gi"), v1.ResourcePods: resource.MustParse("110"),
		}},
	}
	if gpus > 0 {
		node.Status.Allocatable[gpuResource] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	return node
}

func makePod(name string, gpus int64, cpus string, change ...func(*v1.Pod)) *v1.Pod {
	requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpus), v1.ResourceMemory: resource.MustParse("1Gi")}
	if gpus > 0 {
		requests[gpuResource] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID(name)},
		Spec: v1.PodSpec{
			SchedulerName: v1.DefaultSchedulerName,
			Containers:    []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: requests, Limits: requests}}},
		},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func TestSinglePodsLeaveWholeNodes(t *testing.T) {
	var nodes []*v1.Node
	for i := range 6 {
		nodes = append(nodes, makeNode(fmt.Sprintf("node-%d", i), 8, "96"))
	}
	c := newCluster(t, nil, nodes...)
	for i, gpus := range []int64{1, 4, 2, 1, 1, 4, 2, 1} {
		c.place(makePod(fmt.Sprintf("pod-%d", i), gpus, fmt.Sprint(12*gpus)))
	}
	if taken := c.taken(); len(taken) != 2 {
		t.Errorf("16 GPUs are taken on %v, want 2 nodes", taken)
	}
}

func TestPodGoes(t *testing.T) {
	prefers := func(node string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{
				Weight:     100,
				Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{node}}}},
			}}}}
		}
	}
	for _, test := range []struct {
		name  string
		nodes []*v1.Node
		seen  []*v1.Pod
		there []*v1.Pod
		pod   *v1.Pod
		want  string
	}{
		{
			name:  "where it fits exactly, although others are emptier",
			nodes: []*v1.Node{makeNode("a", 8, "96"), makeNode("b", 4, "96"), makeNode("c", 8, "96")},
			pod:   makePod("p", 4, "12"),
			want:  "b",
		},
		{
			name:  "where it fits exactly, although others could not use the GPUs of another node",
			nodes: []*v1.Node{makeNode("a", 4, "2"), makeNode("b", 1, "96")},
			seen:  []*v1.Pod{makePod("s", 1, "16")},
			pod:   makePod("p", 1, "1"),
			want:  "b",
		},
		{
			name:  "where it takes CPU that others need less",
			nodes: []*v1.Node{makeNode("a", 4, "32"), makeNode("b", 4, "64"), makeNode("c", 4, "32")},
			seen:  []*v1.Pod{makePod("s", 1, "8")},
			pod:   makePod("p", 1, "24"),
			want:  "b",
		},
		{
			name:  "where it prefers to, although a node is filled better",
			nodes: []*v1.Node{makeNode("a", 8, "96"), makeNode("b", 8, "96"), makeNode("c", 6, "96"), makeNode("d", 7, "96")},
			pod:   makePod("p", 4, "12", prefers("d")),
			want:  "d",
		},
		{
			name:  "to a node without GPUs, if it needs none, although it is fuller",
			nodes: []*v1.Node{makeNode("a", 8, "96"), makeNode("b", 0, "32"), makeNode("c", 8, "96")},
			there: []*v1.Pod{makePod("x", 0, "24", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelHostname: "b"} })},
			pod:   makePod("p", 0, "4"),
			want:  "b",
		},
		{
			name:  "to a node without GPUs, if it needs none, although the GPUs of others are taken",
			nodes: []*v1.Node{makeNode("a", 8, "96"), makeNode("b", 0, "32")},
			there: []*v1.Pod{makePod("x", 8, "1")},
			pod:   makePod("p", 0, "16"),
			want:  "b",
		},
		{
			name:  "to a node with GPUs, if it needs none and has no other place",
			nodes: []*v1.Node{makeNode("a", 8, "96"), makeNode("b", 0, "2")},
			pod:   makePod("p", 0, "4"),
			want:  "a",
		},
		{
			name:  "without GPUs to the emptier node, if no node has any",
			nodes: []*v1.Node{makeNode("a", 0, "16"), makeNode("b", 0, "96")},
			pod:   makePod("p", 0, "4"),
			want:  "b",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, nil, test.nodes...)
			for _, pod := range test.seen {
				c.mix.Observe(placement.Gang{Classes: []placement.Class{{Pod: pod, Count: 1}}})
			}
			for _, pod := range test.there {
				c.place(pod)
			}
			if got := c.place(test.pod); got != test.want {
				t.Errorf("the pod is on %s, want %s", got, test.want)
			}
		})
	}
}

// What pods ask for that no job accounts for is known by their being bound.
func TestBoundPodsAreSeen(t *testing.T) {
	c := newCluster(t, slots{"managed": "a"}, makeNode("a", 8, "96"), makeNode("b", 8, "96"))
	growth := func() int64 {
		t.Helper()
		fit, err := c.mix.Fit(makePod("p", 1, "1"))
		if err != nil {
			t.Fatal(err)
		}
		node := framework.NewNodeInfo()
		node.SetNode(makeNode("c", 8, "96"))
		score, _ := fit.On(node)
		return score.Growth
	}
	c.place(makePod("managed", 8, "1"))
	if got := growth(); got != 0 {
		t.Errorf("a pod that its job accounts for was seen: the growth is %d", got)
	}
	c.place(makePod("single", 8, "1"))
	if got := growth(); got != 7e6 {
		t.Errorf("the growth is %d, want that 7 GPUs are of no use", got)
	}
}

func TestPodsWithASlotAreLeftAlone(t *testing.T) {
	c := newCluster(t, slots{"managed": "b"}, makeNode("a", 8, "96"))
	p := &Plugin{slots: slots{"managed": "b"}, mix: c.mix}
	node := framework.NewNodeInfo()
	node.SetNode(makeNode("a", 8, "96"))
	for name, want := range map[string]fwk.Code{"managed": fwk.Skip, "single": fwk.Success} {
		if got := p.PreScore(t.Context(), framework.NewCycleState(), makePod(name, 1, "1"), []fwk.NodeInfo{node}); got.Code() != want {
			t.Errorf("PreScore of %s says %v, want %v", name, got, want)
		}
	}
}

func TestNormalizeScore(t *testing.T) {
	for _, test := range []struct {
		name string
		in   []int64
		want []int64
	}{
		{"nodes that are as good have the best score", []int64{-7, -7}, []int64{100, 100}},
		{"the distance does not count", []int64{best, -1, -1e9, -2}, []int64{100, 75, 25, 50}},
		{"of many nodes the worst has none", []int64{5, 4, 3, 2, 1, 0, -1, -2, -3}, []int64{100, 88, 75, 63, 50, 38, 25, 13, 0}},
		{"one node", []int64{-3}, []int64{100}},
		{"none", nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var scores fwk.NodeScoreList
			for _, s := range test.in {
				scores = append(scores, fwk.NodeScore{Score: s})
			}
			if status := (&Plugin{}).NormalizeScore(context.Background(), nil, nil, scores); !status.IsSuccess() {
				t.Fatal(status)
			}
			var got []int64
			for _, s := range scores {
				got = append(got, s.Score)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOnlyPodsWithoutGPUsAreSigned(t *testing.T) {
	c := newCluster(t, nil)
	p := &Plugin{mix: c.mix}
	for gpus, want := range map[int64]fwk.Code{0: fwk.Success, 1: fwk.Unschedulable} {
		if _, got := p.SignPod(t.Context(), makePod("p", gpus, "1")); got.Code() != want {
			t.Errorf("signing a pod with %d GPUs says %v, want %v", gpus, got, want)
		}
	}
}

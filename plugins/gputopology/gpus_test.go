package gputopology

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
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
	"github.com/muster-gpu/muster/placement/inventory"
)

// binder is a real scheduler with the plugin, whose bindings are kept.
type binder struct {
	*cluster
	// bound are the bindings: pod, node and annotations.
	bound []string
}

// source knows nodes of eight GPUs with UUIDs, two of which share a root.
type source struct{ inventory.Source }

func (s source) Node(node *v1.Node) (*inventory.Node, bool) {
	n, ok := s.Source.Node(node)
	if !ok {
		return nil, false
	}
	named := *n
	for i := range n.Shape.Devices() {
		named.UUIDs = append(named.UUIDs, fmt.Sprintf("GPU-%d", i))
	}
	return &named, true
}

func newBinder(t *testing.T, enforcement placement.Enforcement) *binder {
	t.Helper()
	planner := placement.NewPlanner(gpu.Is)
	planner.UseIslands(placement.NewIslands(source{inventory.NewProducts(nil)}, enforcement, nil))
	b := &binder{cluster: &cluster{t: t, mix: planner.Mix()}}
	defaults, err := latest.Default()
	if err != nil {
		t.Fatal(err)
	}
	plugins := defaults.Profiles[0].Plugins
	plugins.MultiPoint.Enabled = append(plugins.MultiPoint.Enabled, config.Plugin{Name: Name, Weight: Weight})
	plugins.Bind.Enabled = append(plugins.Bind.Enabled, config.Plugin{Name: Name})
	client := fake.NewClientset()
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		binding := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		words := []string{binding.Name, binding.Target.Name}
		for _, key := range slices.Sorted(maps.Keys(binding.Annotations)) {
			words = append(words, key+"="+binding.Annotations[key])
		}
		b.bound = append(b.bound, strings.Join(words, " "))
		return true, nil, nil
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	b.sched, err = scheduler.New(klog.NewContext(t.Context(), klog.Logger{}), client, factory, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithProfiles(defaults.Profiles...),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{Name: Factory(slots{}, b.mix)}))
	if err != nil {
		t.Fatal(err)
	}
	node := makeNode("n", 8, "64")
	node.Labels["nvidia.com/gpu.product"], node.Status.Capacity = "NVIDIA-L40S", node.Status.Allocatable
	b.sched.Cache.AddNode(klog.Logger{}, node)
	return b
}

// reserve takes the pod as far as Reserve, and returns the way back.
func (b *binder) reserve(pod *v1.Pod) (bind, back func()) {
	b.t.Helper()
	fw := b.sched.Profiles[v1.DefaultSchedulerName]
	ctx, state := b.t.Context(), framework.NewCycleState()
	if err := b.sched.Cache.UpdateSnapshot(klog.Logger{}, fw.SnapshotSharedLister().(*cache.Snapshot)); err != nil {
		b.t.Fatal(err)
	}
	if _, status, _ := fw.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
		b.t.Fatal(status.AsError())
	}
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = "n"
	info, err := framework.NewPodInfo(assumed)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.sched.Cache.AssumePod(klog.Logger{}, info.Pod); err != nil {
		b.t.Fatal(err)
	}
	if status := fw.RunReservePluginsReserve(ctx, state, assumed, "n"); !status.IsSuccess() {
		b.t.Fatal(status.AsError())
	}
	return func() {
			if status := fw.RunBindPlugins(ctx, state, assumed, "n"); !status.IsSuccess() {
				b.t.Fatal(status.AsError())
			}
		}, func() {
			fw.RunReservePluginsUnreserve(ctx, state, assumed, "n")
			if err := b.sched.Cache.ForgetPod(klog.Logger{}, assumed); err != nil {
				b.t.Fatal(err)
			}
		}
}

func TestPodsAreBoundWithTheirGPUs(t *testing.T) {
	b := newBinder(t, placement.EnforceAnnotation)
	one, _ := b.reserve(makePod("one", 1, "1"))
	two, _ := b.reserve(makePod("two", 2, "1"))
	_, gone := b.reserve(makePod("gone", 4, "1"))
	gone()
	if got := b.mix.Islands().Annotations(makePod("gone", 4, "1")); got != nil {
		t.Errorf("a pod that was given up would be bound with %v", got)
	}
	wishing, _ := b.reserve(makePod("wishing", 1, "1", func(p *v1.Pod) { p.Annotations = map[string]string{placement.GPUsAnnotation: "2,3,4,5,6,7"} }))
	four, _ := b.reserve(makePod("four", 4, "1"))
	none, _ := b.reserve(makePod("none", 0, "1"))
	liar, _ := b.reserve(makePod("liar", 0, "1", func(p *v1.Pod) { p.Annotations = map[string]string{placement.UUIDsAnnotation: "GPU-0"} }))
	for _, bind := range []func(){one, two, wishing, four, none, liar} {
		bind()
	}
	want := []string{
		"one n muster.dev/gpu-uuids=GPU-0 muster.dev/gpus=0",
		"two n muster.dev/gpu-uuids=GPU-2,GPU-3 muster.dev/gpus=2,3",
		"wishing n muster.dev/gpu-uuids=GPU-1 muster.dev/gpus=1",
		"four n muster.dev/gpu-uuids=GPU-4,GPU-5,GPU-6,GPU-7 muster.dev/gpus=4,5,6,7",
		"none n",
		"liar n muster.dev/gpu-uuids= muster.dev/gpus=",
	}
	if diff := cmp.Diff(want, b.bound); diff != "" {
		t.Errorf("bindings (-want +got):\n%s", diff)
	}
}

func TestNodesThatChooseAreToldNothing(t *testing.T) {
	b := newBinder(t, placement.Predict)
	bind, _ := b.reserve(makePod("one", 1, "1"))
	bind()
	if diff := cmp.Diff([]string{"one n"}, b.bound); diff != "" {
		t.Errorf("bindings (-want +got):\n%s", diff)
	}
}

// answering is an API server.
type answering func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (a answering) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// asynchronous keeps the bindings that are queued, and answers what became of them.
type asynchronous struct {
	fwk.APICacher
	queued  []*v1.Binding
	refused error
	becomes error
}

// BindPod implements fwk.APICacher.
func (a *asynchronous) BindPod(binding *v1.Binding) (<-chan error, error) {
	a.queued = append(a.queued, binding)
	finished := make(chan error, 1)
	finished <- a.becomes
	return finished, a.refused
}

// WaitOnFinish implements fwk.APICacher.
func (a *asynchronous) WaitOnFinish(_ context.Context, finished <-chan error) error {
	return <-finished
}

// TestBindingIsQueuedWhereTheSchedulerCallsAsynchronously, behind what was to be said of
// the pod before, and its answer is waited for.
func TestBindingIsQueuedWhereTheSchedulerCallsAsynchronously(t *testing.T) {
	lost := errors.New("the pod is gone")
	for name, tc := range map[string]struct {
		calls asynchronous
		want  error
	}{
		"it is bound":               {},
		"it is not taken":           {asynchronous{refused: lost}, lost},
		"it is taken and not bound": {asynchronous{becomes: lost}, lost},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			handle, err := frameworkruntime.NewFramework(t.Context(), nil, nil, frameworkruntime.WithClientSet(client))
			if err != nil {
				t.Fatal(err)
			}
			handle.SetAPICacher(&tc.calls)
			p, err := Factory(nil, placement.NewPlanner(gpu.Is).Mix())(t.Context(), nil, handle)
			if err != nil {
				t.Fatal(err)
			}
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pod", UID: "uid"}}
			status := p.(fwk.BindPlugin).Bind(t.Context(), nil, pod, "node-0")
			if got := status.AsError(); !errors.Is(got, tc.want) {
				t.Errorf("it comes to %v, want %v", got, tc.want)
			}
			want := []*v1.Binding{{ObjectMeta: pod.ObjectMeta, Target: v1.ObjectReference{Kind: "Node", Name: "node-0"}}}
			if diff := cmp.Diff(want, tc.calls.queued); diff != "" {
				t.Errorf("bindings that are queued (-want +got):\n%s", diff)
			}
			if actions := client.Actions(); len(actions) > 0 {
				t.Errorf("it is sent past the queue: %v", actions)
			}
		})
	}
}

// TestBindingsAreSentAFewAtATime by all profiles together, and one that waits for the
// others is given up with its context.
func TestBindingsAreSentAFewAtATime(t *testing.T) {
	sent, answer := make(chan string, 2*bindings), make(chan struct{})
	client, err := kubernetes.NewForConfig(&rest.Config{QPS: -1, Transport: answering(func(r *http.Request) (*http.Response, error) {
		sent <- r.URL.Path
		select {
		case <-answer:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		created := io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
		return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: created}, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	factory := Factory(nil, placement.NewPlanner(gpu.Is).Mix())
	var profiles [2]fwk.BindPlugin
	for i := range profiles {
		handle, err := frameworkruntime.NewFramework(t.Context(), nil, nil, frameworkruntime.WithClientSet(client))
		if err != nil {
			t.Fatal(err)
		}
		p, err := factory(t.Context(), nil, handle)
		if err != nil {
			t.Fatal(err)
		}
		profiles[i] = p.(fwk.BindPlugin)
	}
	bind := func(ctx context.Context, i int) *fwk.Status {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprintf("pod-%d", i)}}
		return profiles[i%2].Bind(ctx, nil, pod, "node-0")
	}
	results := make(chan *fwk.Status, bindings)
	for i := range bindings {
		go func() { results <- bind(t.Context(), i) }()
	}
	for range bindings {
		<-sent
	}
	ending, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer end()
	if status := bind(ending, bindings); status.IsSuccess() {
		t.Error("a pod is bound after its context")
	}
	if len(sent) > 0 {
		t.Errorf("%s is sent while %d others are", <-sent, bindings)
	}
	close(answer)
	for range bindings {
		if status := <-results; !status.IsSuccess() {
			t.Errorf("a pod is not bound: %v", status)
		}
	}
	if status := bind(t.Context(), 0); !status.IsSuccess() {
		t.Errorf("a pod is not bound when the others are: %v", status)
	}
}

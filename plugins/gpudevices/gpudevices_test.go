package gpudevices

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/placement/inventory"
)

// slice is a node of four GPUs, of which the first and the last share a PCIe root, and
// so do the others.
func slice() *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "slice"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: gpu.Driver, NodeName: ptr.To("n"), Pool: resourceapi.ResourcePool{Name: "n", ResourceSliceCount: 1},
	}}
	for i, root := range []string{"r0", "r1", "r1", "r0"} {
		name := "gpu-" + string(rune('0'+i))
		s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"uuid": {StringValue: &name}, "resource.kubernetes.io/pcieRoot": {StringValue: &root},
		}})
	}
	return s
}

func claim(name string, gpus int64) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID(name)},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "gpus", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.nvidia.com", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: gpus},
		}}}},
	}
}

func TestPodsGetDevicesThatAreClose(t *testing.T) {
	for _, test := range []struct {
		name  string
		gpus  []int64
		want  [][]string
		plain bool
	}{
		{name: "a pair", gpus: []int64{2}, want: [][]string{{"gpu-0", "gpu-3"}}},
		{name: "a single GPU breaks no second pair", gpus: []int64{1, 2, 1}, want: [][]string{{"gpu-0"}, {"gpu-1", "gpu-2"}, {"gpu-3"}}},
		{name: "each single GPU is the best that is left", gpus: []int64{1, 1}, want: [][]string{{"gpu-0"}, {"gpu-3"}}},
		{name: "all", gpus: []int64{4}, want: [][]string{{"gpu-0", "gpu-1", "gpu-2", "gpu-3"}}},
		{name: "without the plugin the first are taken", gpus: []int64{2}, want: [][]string{{"gpu-0", "gpu-1"}}, plain: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx := klog.NewContext(t.Context(), klog.Logger{})
			client := fake.NewClientset(slice(), &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu.nvidia.com"}},
				claim("a", 1), claim("b", 2), claim("c", 1), claim("pair", 2), claim("all", 4))
			factory := informers.NewSharedInformerFactory(client, 0)
			sources := inventory.NewSlices(inventory.NewProducts(nil))
			sources.Replace(nil, slice())
			planner := placement.NewPlanner(gpu.Is)
			planner.UseIslands(placement.NewIslands(sources, placement.EnforceDRA, sets.New(gpu.Driver)))
			defaults, err := latest.Default()
			if err != nil {
				t.Fatal(err)
			}
			plugins := defaults.Profiles[0].Plugins
			if !test.plain {
				for i := range plugins.MultiPoint.Enabled {
					if p := &plugins.MultiPoint.Enabled[i]; p.Name == "DynamicResources" {
						p.Name = Name
					}
				}
			}
			broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
			sched, err := scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster),
				scheduler.WithProfiles(config.KubeSchedulerProfile{SchedulerName: v1.DefaultSchedulerName, Plugins: plugins, PluginConfig: defaults.Profiles[0].PluginConfig}),
				scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{Name: Factory(planner.Mix())}))
			if err != nil {
				t.Fatal(err)
			}
			factory.Start(ctx.Done())
			factory.WaitForCacheSync(ctx.Done())
			fw := sched.Profiles[v1.DefaultSchedulerName]
			sched.Cache.AddNode(klog.Logger{}, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourcePods: resource.MustParse("10")}}})
			snap := fw.SnapshotSharedLister().(*cache.Snapshot)
			if err := sched.Cache.UpdateSnapshot(klog.Logger{}, snap); err != nil {
				t.Fatal(err)
			}
			// Handlers of informers hear of objects later.
			ready := func() bool {
				listed, err := fw.SharedDRAManager().ResourceSlices().ListWithDeviceTaintRules()
				claims, claimed := fw.SharedDRAManager().ResourceClaims().List()
				_, classed := fw.SharedDRAManager().DeviceClasses().Get("gpu.nvidia.com")
				return err == nil && len(listed) == 1 && claimed == nil && len(claims) == 5 && classed == nil
			}
			for deadline := time.Now().Add(time.Minute); !ready(); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("an informer has not delivered within a minute")
				}
			}
			node, err := snap.Get("n")
			if err != nil {
				t.Fatal(err)
			}
			names := map[int64][]string{1: {"a", "c"}, 2: {"b", "pair"}, 4: {"all"}}
			var got [][]string
			for _, n := range test.gpus {
				name := names[n][0]
				names[n] = names[n][1:]
				pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID("pod-" + name)}, Spec: v1.PodSpec{
					Containers:     []v1.Container{{Name: "main"}},
					ResourceClaims: []v1.PodResourceClaim{{Name: "gpus", ResourceClaimName: &name}},
				}}
				state := framework.NewCycleState()
				if _, status, _ := fw.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
					t.Fatal(status.AsError())
				}
				if status := fw.RunFilterPlugins(ctx, state, pod, node); !status.IsSuccess() {
					t.Fatal(status.AsError())
				}
				if status := fw.RunReservePluginsReserve(ctx, state, pod, "n"); !status.IsSuccess() {
					t.Fatal(status.AsError())
				}
				var devices []string
				for _, r := range fw.SharedDRAManager().ResourceClaims().GetPendingAllocation(types.UID(name)).Devices.Results {
					devices = append(devices, r.Device)
				}
				slices.Sort(devices)
				got = append(got, devices)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

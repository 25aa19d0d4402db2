package gpudevices

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/placement/inventory"
)

// BenchmarkPreFilter is PreFilter for a pod that claims two GPUs, on a thousand nodes of
// eight GPUs in pairs, of which others have three, with and without the plugin's order.
func BenchmarkPreFilter(b *testing.B) {
	for _, how := range []placement.Enforcement{placement.Predict, placement.EnforceDRA} {
		b.Run(string(how), func(b *testing.B) {
			ctx := klog.NewContext(b.Context(), klog.Logger{})
			sources := inventory.NewSlices(inventory.NewProducts(nil))
			objects := []runtime.Object{&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu.nvidia.com"}}, claim("pair", 2)}
			for n := range 1000 {
				node := fmt.Sprint("node-", n)
				s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourceapi.ResourceSliceSpec{
					Driver: gpu.Driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1},
				}}
				others := claim("others-"+node, 3)
				others.Status.Allocation = &resourceapi.AllocationResult{}
				for i := range 8 {
					name, root := fmt.Sprint("gpu-", i), fmt.Sprint("root-", i/2)
					s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
						"uuid": {StringValue: &name}, "resource.kubernetes.io/pcieRoot": {StringValue: &root}, "resource.kubernetes.io/pciBusID": {StringValue: &name},
					}})
					if i%2 == 0 && i < 6 {
						others.Status.Allocation.Devices.Results = append(others.Status.Allocation.Devices.Results,
							resourceapi.DeviceRequestAllocationResult{Request: "gpus", Driver: gpu.Driver, Pool: node, Device: name})
					}
				}
				sources.Replace(nil, s)
				objects = append(objects, s, others)
			}
			client := fake.NewClientset(objects...)
			factory := informers.NewSharedInformerFactory(client, 0)
			planner := placement.NewPlanner(gpu.Is)
			planner.UseIslands(placement.NewIslands(sources, how, sets.New(gpu.Driver)))
			defaults, err := latest.Default()
			if err != nil {
				b.Fatal(err)
			}
			plugins := defaults.Profiles[0].Plugins
			for i := range plugins.MultiPoint.Enabled {
				if p := &plugins.MultiPoint.Enabled[i]; p.Name == "DynamicResources" && how == placement.EnforceDRA {
					p.Name = Name
				}
			}
			broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
			sched, err := scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster),
				scheduler.WithProfiles(config.KubeSchedulerProfile{SchedulerName: v1.DefaultSchedulerName, Plugins: plugins, PluginConfig: defaults.Profiles[0].PluginConfig}),
				scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{Name: Factory(planner.Mix())}))
			if err != nil {
				b.Fatal(err)
			}
			factory.Start(ctx.Done())
			factory.WaitForCacheSync(ctx.Done())
			fw := sched.Profiles[v1.DefaultSchedulerName]
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				listed, _ := fw.SharedDRAManager().ResourceSlices().ListWithDeviceTaintRules()
				allocated, _ := fw.SharedDRAManager().ResourceClaims().ListAllAllocatedDevices()
				if len(listed) == 1000 && len(allocated) == 3000 {
					break
				}
				if time.Now().After(deadline) {
					b.Fatal("an informer has not delivered within a minute")
				}
			}
			name := "pair"
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: "pod"}, Spec: v1.PodSpec{
				Containers:     []v1.Container{{Name: "main"}},
				ResourceClaims: []v1.PodResourceClaim{{Name: "gpus", ResourceClaimName: &name}},
			}}
			b.ReportAllocs()
			for b.Loop() {
				if _, status, _ := fw.RunPreFilterPlugins(ctx, framework.NewCycleState(), pod); !status.IsSuccess() {
					b.Fatal(status.AsError())
				}
			}
		})
	}
}

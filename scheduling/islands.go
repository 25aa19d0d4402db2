package scheduling

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/kubernetes/pkg/features"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/placement/inventory"
)

// useIslands has pods go where their GPUs are close to each other, as far as the API
// knows of them.
func (c *Core) useIslands(f informers.SharedInformerFactory) error {
	products := inventory.NewProducts(c.config.Arranged)
	reports := inventory.NewReports(products)
	c.jobs.gpuNodes.changed = append(c.jobs.gpuNodes.changed, func(node string) {
		var devices []v1alpha1.GPUDevice
		if said := c.jobs.gpuNodes.get(node); said != nil {
			devices = said.devices
		}
		reports.Set(node, devices)
	})
	source := inventory.Sources{reports, products}
	if utilfeature.DefaultFeatureGate.Enabled(features.DynamicResourceAllocation) {
		slices := inventory.NewSlices(products)
		if _, err := f.Resource().V1().ResourceSlices().Informer().AddEventHandler(handler(slices.Replace, func(gone *resourceapi.ResourceSlice) { slices.Replace(gone, nil) })); err != nil {
			return fmt.Errorf("watching ResourceSlices: %w", err)
		}
		source = inventory.Sources{slices, reports, products}
	}
	c.jobs.gpus = source
	whole := sets.New[string]()
	for class, resource := range c.config.DeviceClasses {
		if resource == gpu.NVIDIA {
			whole.Insert(class)
		}
	}
	islands := placement.NewIslands(source, c.config.Islands, whole)
	_, err := f.Core().V1().Pods().Informer().AddEventHandler(handler(func(_, _ *corev1.Pod) {}, func(pod *corev1.Pod) { islands.Forget(pod.UID) }))
	if err != nil {
		return fmt.Errorf("watching pods for their GPUs: %w", err)
	}
	c.cycle.planner.UseIslands(islands)
	return nil
}

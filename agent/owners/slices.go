package owners

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-gpu/muster/agent/holders"
	"github.com/muster-gpu/muster/api/gpu"
)

// slicesOf watches what GPUs of a node are published as devices.
func slicesOf(client rest.Interface, node string) (cache.SharedIndexInformer, error) {
	watch := cache.NewListWatchFromClient(client, "resourceslices", metav1.NamespaceAll, fields.AndSelectors(
		fields.OneTermEqualSelector(resourceapi.ResourceSliceSelectorNodeName, node),
		fields.OneTermEqualSelector(resourceapi.ResourceSliceSelectorDriver, gpu.Driver),
	))
	informer := cache.NewSharedIndexInformer(watch, &resourceapi.ResourceSlice{}, 0, cache.Indexers{})
	if err := informer.SetTransform(func(object any) (any, error) {
		if slice, ok := object.(*resourceapi.ResourceSlice); ok {
			slice.ManagedFields = nil
		}
		return object, nil
	}); err != nil {
		return nil, fmt.Errorf("watching ResourceSlices: %w", err)
	}
	return informer, nil
}

// UUIDs are those of devices of resource claims, as the node's ResourceSlices say.
func (o *Owners) UUIDs() map[holders.ID]string {
	uuids := map[holders.ID]string{}
	for _, object := range o.slices.GetStore().List() {
		slice, ok := object.(*resourceapi.ResourceSlice)
		if !ok {
			continue
		}
		for _, d := range slice.Spec.Devices {
			if uuid := d.Attributes["uuid"].StringValue; uuid != nil {
				id := holders.ID{Minor: -1, GPUInstance: -1, Driver: slice.Spec.Driver, Pool: slice.Spec.Pool.Name, Device: d.Name}
				uuids[id] = *uuid
			}
		}
	}
	return uuids
}

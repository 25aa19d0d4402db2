package typed

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Of is the cache.TransformFunc that makes a *T of an object. One that cannot be read as
// a T is logged and stays as it is, because an informer whose transformation fails never
// has its first list.
func Of[T any](object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		klog.Background().Error(err, "Passed over an object that cannot be read", "kind", u.GetKind(), "object", klog.KObj(u))
		return object, nil
	}
	return out, nil
}

// List is all of a store that are a *T, in no order.
func List[T any](store cache.Store) []*T {
	var out []*T
	for _, object := range store.List() {
		if o, ok := object.(*T); ok {
			out = append(out, o)
		}
	}
	return out
}

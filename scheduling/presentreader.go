package scheduling

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// cacheReadBound ends a read from the cache that waits for a watch which does not
// begin.
const cacheReadBound = 30 * time.Second

// presentReader reads objects from the cache. Of a kind that is not served
// there are none: the cache itself would begin a watch that never has anything
// to say, and wait for it.
type presentReader struct {
	client.Reader
	kinds  *apiKinds
	scheme *runtime.Scheme
}

// Get implements client.Reader.
func (r presentReader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(obj, r.scheme)
	if err != nil {
		return err
	}
	if r.kinds.lacks(gvk) {
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, cacheReadBound)
	defer cancel()
	return r.Reader.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (r presentReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, r.scheme)
	if err != nil {
		return err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	if r.kinds.lacks(gvk) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cacheReadBound)
	defer cancel()
	return r.Reader.List(ctx, list, opts...)
}

package certificate

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// registration is an object that makes the API server call the webhook.
type registration struct {
	kind, name string
	// optional says that an administrator may delete it, to switch off what it is for,
	// without the rest being any less ready.
	optional bool
	object   runtime.Object
	get      func(context.Context) (*look, error)
	patch    func(context.Context, []byte) error
	list     func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch    func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func (r *registration) String() string { return r.kind + " " + r.name }

func mutating(client kubernetes.Interface, name string) registration {
	all := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	return registration{
		kind: "MutatingWebhookConfiguration", name: name, object: &admissionregistrationv1.MutatingWebhookConfiguration{},
		get: func(ctx context.Context) (*look, error) {
			c, err := all.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			l := &look{version: c.ResourceVersion}
			for _, w := range c.Webhooks {
				l.webhooks = append(l.webhooks, webhook{w.Name, clientConfig{w.ClientConfig.CABundle}})
			}
			return l, nil
		},
		patch: func(ctx context.Context, body []byte) error {
			_, err := all.Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
			return err
		},
		list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) },
		watch: all.Watch,
	}
}

func validating(client kubernetes.Interface, name string) registration {
	all := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	return registration{
		kind: "ValidatingWebhookConfiguration", name: name, optional: true, object: &admissionregistrationv1.ValidatingWebhookConfiguration{},
		get: func(ctx context.Context) (*look, error) {
			c, err := all.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			l := &look{version: c.ResourceVersion}
			for _, w := range c.Webhooks {
				l.webhooks = append(l.webhooks, webhook{w.Name, clientConfig{w.ClientConfig.CABundle}})
			}
			return l, nil
		},
		patch: func(ctx context.Context, body []byte) error {
			_, err := all.Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
			return err
		},
		list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) },
		watch: all.Watch,
	}
}

// follow calls changed at each change of the registration. The field selector is also
// what lets RBAC grant list and watch for that name alone.
func (r *registration) follow(ctx context.Context, client kubernetes.Interface, changed func()) {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, r.name).String()
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				options.FieldSelector = only
				return r.list(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				options.FieldSelector = only
				return r.watch(ctx, options)
			},
		}, client),
		ObjectType: r.object,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { changed() },
			UpdateFunc: func(any, any) { changed() },
			DeleteFunc: func(any) { changed() },
		},
	})
	informer.RunWithContext(ctx)
}

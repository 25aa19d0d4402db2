package defaults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/muster-gpu/muster/admission/typed"
	"github.com/muster-gpu/muster/api/v1alpha1"
)

var (
	runtimeDefaults = v1alpha1.GroupVersion.WithResource("runtimedefaults")
	namespaces      = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// settle is how long changes are gathered before the statuses are written.
const settle = time.Second

// Catalog knows the cluster's RuntimeDefaults and what goes with them: the labels of
// namespaces, and the priority and runtime classes. It keeps them in memory, and
// writes the status of the RuntimeDefaults. Every replica does, and all write the
// same.
type Catalog struct {
	dynamic  dynamic.Interface
	metadata metadata.Interface

	defaults, namespaces, priorities, runtimes cache.SharedIndexInformer
	changed                                    chan struct{}
}

// NewCatalog returns a Catalog that knows nothing before it runs.
func NewCatalog(client kubernetes.Interface, dynamicClient dynamic.Interface, metadataClient metadata.Interface) *Catalog {
	factory := informers.NewSharedInformerFactory(client, 0)
	c := &Catalog{
		dynamic: dynamicClient, metadata: metadataClient, changed: make(chan struct{}, 1),
		defaults:   dynamicinformer.NewDynamicSharedInformerFactory(dynamicClient, 0).ForResource(runtimeDefaults).Informer(),
		namespaces: metadatainformer.NewSharedInformerFactory(metadataClient, 0).ForResource(namespaces).Informer(),
		priorities: factory.Scheduling().V1().PriorityClasses().Informer(),
		runtimes:   factory.Node().V1().RuntimeClasses().Informer(),
	}
	c.transform(c.defaults, typed.Of[v1alpha1.RuntimeDefaults])
	c.transform(c.namespaces, onlyLabels)
	for _, informer := range []cache.SharedIndexInformer{c.defaults, c.priorities, c.runtimes} {
		c.handle(informer, c.touch)
	}
	return c
}

func (c *Catalog) handle(informer cache.SharedIndexInformer, f func()) {
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { f() },
		UpdateFunc: func(any, any) { f() },
		DeleteFunc: func(any) { f() },
	}); err != nil {
		panic(err) // only an informer that has stopped refuses one
	}
}

func (c *Catalog) transform(informer cache.SharedIndexInformer, f cache.TransformFunc) {
	if err := informer.SetTransform(f); err != nil {
		panic(err) // only an informer that runs refuses one
	}
}

func onlyLabels(object any) (any, error) {
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		m.Annotations, m.ManagedFields, m.OwnerReferences, m.Finalizers = nil, nil, nil, nil
	}
	return object, nil
}

func (c *Catalog) touch() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Follow keeps the catalog up to date until ctx ends, and writes nothing.
func (c *Catalog) Follow(ctx context.Context) {
	var running sync.WaitGroup
	for _, informer := range c.informers() {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	running.Wait()
}

// Run keeps the catalog up to date, and the statuses written, until ctx ends.
func (c *Catalog) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { c.Follow(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(settle):
		}
		err := c.Ready()
		if err == nil {
			err = c.report(ctx)
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Could not write the status of RuntimeDefaults")
			c.touch()
		}
	}
}

func (c *Catalog) informers() map[string]cache.SharedIndexInformer {
	return map[string]cache.SharedIndexInformer{
		"RuntimeDefaults": c.defaults, "namespaces": c.namespaces, "PriorityClasses": c.priorities, "RuntimeClasses": c.runtimes,
	}
}

// Ready returns nil once all is known that a decision needs.
func (c *Catalog) Ready() error {
	for _, what := range []string{"RuntimeDefaults", "namespaces", "PriorityClasses", "RuntimeClasses"} {
		if !c.informers()[what].HasSynced() {
			return errors.New("the cluster's " + what + " are not read yet")
		}
	}
	return nil
}

// All are the RuntimeDefaults, which must not be changed.
func (c *Catalog) All() []*v1alpha1.RuntimeDefaults {
	return typed.List[v1alpha1.RuntimeDefaults](c.defaults.GetStore())
}

// Namespaces are the labels of all namespaces, which must not be changed.
func (c *Catalog) Namespaces() map[string]labels.Set {
	all := map[string]labels.Set{}
	for _, object := range c.namespaces.GetStore().List() {
		m := object.(*metav1.PartialObjectMetadata)
		all[m.Name] = m.Labels
	}
	return all
}

// OnChange has f called whenever a namespace or RuntimeDefaults have changed. It is
// called before the catalog runs.
func (c *Catalog) OnChange(f func()) {
	for _, informer := range []cache.SharedIndexInformer{c.namespaces, c.defaults} {
		c.handle(informer, f)
	}
}

// namespace is the labels of a namespace. One that is new here is looked for in
// the cluster.
func (c *Catalog) namespace(ctx context.Context, name string) (labels.Set, error) {
	if object, found, _ := c.namespaces.GetStore().GetByKey(name); found {
		return object.(*metav1.PartialObjectMetadata).Labels, nil
	}
	namespace, err := c.metadata.Resource(namespaces).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading namespace %s: %w", name, err)
	}
	return namespace.Labels, nil
}

// around is what a decision about a pod of a namespace with these labels depends on.
func (c *Catalog) around(namespace labels.Set, defaulted bool) Around {
	level := namespace["pod-security.kubernetes.io/enforce"]
	around := Around{
		Defaulted: defaulted, Baseline: level == "baseline" || level == "restricted",
		PriorityClasses: sets.New[string](), RuntimeClasses: sets.New[string](),
	}
	value := int32(0)
	for _, object := range c.priorities.GetStore().List() {
		class := object.(*schedulingv1.PriorityClass)
		around.PriorityClasses.Insert(class.Name)
		// Of several default ones the API server takes the lowest.
		if class.GlobalDefault && (around.DefaultPriorityClass == "" || class.Value < value) {
			around.DefaultPriorityClass, value = class.Name, class.Value
		}
	}
	for _, object := range c.runtimes.GetStore().List() {
		around.RuntimeClasses.Insert(object.(*nodev1.RuntimeClass).Name)
	}
	return around
}

// report writes the statuses that are not right.
func (c *Catalog) report(ctx context.Context) error {
	all, around := c.All(), c.around(nil, false)
	var failed []error
	for _, d := range all {
		status := Status(d, all, around)
		if equality.Semantic.DeepEqual(status, d.Status) {
			continue
		}
		patch, err := json.Marshal(map[string]any{"status": map[string]any{
			"observedGeneration": status.ObservedGeneration, "overlaps": status.Overlaps, "missing": status.Missing,
		}})
		if err != nil {
			return fmt.Errorf("encoding the status of RuntimeDefaults %s: %w", d.Name, err)
		}
		_, err = c.dynamic.Resource(runtimeDefaults).Patch(ctx, d.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil && !apierrors.IsNotFound(err) {
			failed = append(failed, fmt.Errorf("writing the status of RuntimeDefaults %s: %w", d.Name, err))
		}
	}
	return errors.Join(failed...)
}

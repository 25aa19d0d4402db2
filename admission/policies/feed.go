package policies

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/muster-gpu/muster/admission/typed"
	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/policy"
)

var admissionPolicies = v1alpha1.GroupVersion.WithResource("admissionpolicies")

// settle is how long changes are gathered before they are compiled.
const settle = 200 * time.Millisecond

// Feed keeps the policies of an engine up to date.
type Feed struct {
	engine *policy.Engine
	// own are the library's.
	own []policy.Policy
	// objects are AdmissionPolicies, maps ConfigMaps or nil.
	objects, maps cache.SharedIndexInformer
	changed       chan struct{}
	loaded        atomic.Bool
	// whenLoaded is called after each change.
	whenLoaded func()
}

// NewFeed returns a Feed of the library's policies, AdmissionPolicies, and the ConfigMaps
// of a namespace that are policies; empty for none.
func NewFeed(engine *policy.Engine, library []policy.Policy, client kubernetes.Interface, objects dynamic.Interface, namespace string) *Feed {
	f := &Feed{
		engine: engine, own: library, changed: make(chan struct{}, 1), whenLoaded: func() {},
		objects: dynamicinformer.NewDynamicSharedInformerFactory(objects, 0).ForResource(admissionPolicies).Informer(),
	}
	if err := f.objects.SetTransform(typed.Of[v1alpha1.AdmissionPolicy]); err != nil {
		panic(err) // only an informer that runs refuses one
	}
	if namespace != "" {
		f.maps = informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) {
				o.LabelSelector = policy.PolicyLabel + "=" + policy.PolicyLabelRego
			})).Core().V1().ConfigMaps().Informer()
	}
	for _, informer := range f.informers() {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { f.touch() },
			UpdateFunc: func(old, now any) {
				// A status is written often, and changes no policy.
				if before, ok := old.(metav1.Object); !ok || before.GetGeneration() == 0 || before.GetGeneration() != now.(metav1.Object).GetGeneration() {
					f.touch()
				}
			},
			DeleteFunc: func(any) { f.touch() },
		}); err != nil {
			panic(err) // only an informer that has stopped refuses one
		}
	}
	f.touch() // a cluster without policies has the library's
	return f
}

func (f *Feed) informers() []cache.SharedIndexInformer {
	if f.maps == nil {
		return []cache.SharedIndexInformer{f.objects}
	}
	return []cache.SharedIndexInformer{f.objects, f.maps}
}

func (f *Feed) touch() {
	select {
	case f.changed <- struct{}{}:
	default: // a look is due already
	}
}

// Ready returns nil once all policies that there were at the beginning are with the
// engine.
func (f *Feed) Ready() error {
	if !f.loaded.Load() {
		return errors.New("the cluster's policies are not read yet")
	}
	return nil
}

// Run keeps the engine's policies up to date until ctx ends.
func (f *Feed) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	var synced []cache.InformerSynced
	for _, informer := range f.informers() {
		running.Go(func() { informer.RunWithContext(ctx) })
		synced = append(synced, informer.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
		}
		f.load(ctx)
		// What follows at once is compiled together.
		select {
		case <-ctx.Done():
			return
		case <-time.After(settle):
		}
	}
}

func (f *Feed) load(ctx context.Context) {
	all := f.policies(ctx)
	f.engine.SetPolicies(ctx, all)
	for _, s := range f.engine.Statuses() {
		if !s.Compiled {
			klog.FromContext(ctx).Error(s.Errors, "A policy does not compile", "policy", s.Name, "generation", s.Generation)
		}
	}
	f.loaded.Store(true)
	f.whenLoaded()
}

// policies are all, AdmissionPolicies first, so that one of a name of the library's
// takes the place of that.
func (f *Feed) policies(ctx context.Context) []policy.Policy {
	var all []policy.Policy
	for _, object := range f.Objects() {
		p, err := policy.FromAPI(object)
		if err != nil {
			// The definition of the kind refuses such an object.
			klog.FromContext(ctx).Error(err, "Passed over a policy that cannot be read", "policy", object.Name)
			continue
		}
		all = append(all, p)
	}
	all = append(all, f.own...)
	if f.maps == nil {
		return all
	}
	var imported []policy.Policy
	for _, object := range f.maps.GetStore().List() {
		if p, ok := policy.FromConfigMap(object.(*corev1.ConfigMap)); ok {
			imported = append(imported, p)
		}
	}
	slices.SortFunc(imported, func(a, b policy.Policy) int { return strings.Compare(a.Name, b.Name) })
	return append(all, imported...)
}

// Objects are the AdmissionPolicies, by name, which must not be changed.
func (f *Feed) Objects() []*v1alpha1.AdmissionPolicy {
	all := typed.List[v1alpha1.AdmissionPolicy](f.objects.GetStore())
	slices.SortFunc(all, func(a, b *v1alpha1.AdmissionPolicy) int { return strings.Compare(a.Name, b.Name) })
	return all
}

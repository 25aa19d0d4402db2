package certificate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// checkEvery is how soon a replica takes notice of what others wrote into
	// the Secret. The configuration is watched.
	checkEvery = time.Minute
	// settle is how long a new authority stands in the configuration before its
	// certificate is served: API servers follow the configuration by a watch,
	// and the old certificate is good for months.
	settle = 30 * time.Second
)

// Options say which objects a Keeper keeps.
type Options struct {
	SecretNamespace string
	SecretName      string
	// ConfigurationName is the MutatingWebhookConfiguration's name.
	ConfigurationName string
	// Hosts are the DNS names and IP addresses under which API servers call.
	Hosts []string
	// Conversions are the definitions that trust the certificate too; nil for
	// none.
	Conversions *Conversions
}

// Keeper keeps one serving certificate and the trust in it. Run it in one
// goroutine; the other methods may be called from any.
type Keeper struct {
	client  kubernetes.Interface
	clock   clock.Clock
	options Options

	serving atomic.Pointer[pair]

	mu sync.Mutex
	// notTrusted is why the API server does not trust what is served, or nil.
	notTrusted error

	// Of the synchronising goroutine alone: the pair that the configuration
	// trusts, and since when this replica knows it.
	trusted      *pair
	trustedSince time.Time
}

// New returns a Keeper that serves nothing until its first Sync.
func New(client kubernetes.Interface, clock clock.Clock, options Options) *Keeper {
	return &Keeper{client: client, clock: clock, options: options, notTrusted: errors.New("not looked at yet")}
}

// GetCertificate is tls.Config.GetCertificate. It fails until there is one.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if p := k.serving.Load(); p != nil {
		return &p.leaf, nil
	}
	return nil, errors.New("no serving certificate yet")
}

// NotAfter is when the certificate that is served expires; zero without one.
func (k *Keeper) NotAfter() time.Time {
	if p := k.serving.Load(); p != nil {
		return p.leaf.Leaf.NotAfter
	}
	return time.Time{}
}

// Ready returns nil once a certificate is served that the configuration
// trusts, else the reason. An API server that cannot be reached changes nothing.
func (k *Keeper) Ready() error {
	if k.serving.Load() == nil {
		return errors.New("no serving certificate yet")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.notTrusted != nil {
		return fmt.Errorf("caBundle of MutatingWebhookConfiguration %s: %w", k.options.ConfigurationName, k.notTrusted)
	}
	return nil
}

// Run keeps the certificate until ctx ends: at every change of the
// configuration, every minute, and sooner after a failure.
func (k *Keeper) Run(ctx context.Context) {
	changed := make(chan struct{}, 1)
	go k.follow(ctx, changed)

	retry := k.retries()
	for ctx.Err() == nil {
		next := checkEvery
		if err := k.Sync(ctx); err != nil {
			next = min(retry.Step(), checkEvery)
			if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Could not keep the serving certificate", "retryIn", next)
			}
		} else {
			retry = k.retries()
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-k.clock.After(next):
		}
	}
}

func (k *Keeper) retries() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 10, Cap: checkEvery}
}

// follow signals changes of the one configuration. The field selector is also
// what lets RBAC grant list and watch for that name alone.
func (k *Keeper) follow(ctx context.Context, changed chan<- struct{}) {
	signal := func() {
		select {
		case changed <- struct{}{}:
		default: // a look is due already
		}
	}
	configurations := k.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, k.options.ConfigurationName).String()
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				options.FieldSelector = only
				return configurations.List(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				options.FieldSelector = only
				return configurations.Watch(ctx, options)
			},
		}, k.client),
		ObjectType: &admissionregistrationv1.MutatingWebhookConfiguration{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { signal() },
			UpdateFunc: func(any, any) { signal() },
			DeleteFunc: func(any) { signal() },
		},
	})
	informer.RunWithContext(ctx)
}

// Sync looks once at the Secret and the configuration and puts right what is
// wrong. A configuration that does not exist is an error, but its certificate
// is served all the same, so that it can be installed last.
func (k *Keeper) Sync(ctx context.Context) error {
	now := k.clock.Now()
	// The configuration first: together with the patch's resource version this
	// makes sure that the Secret read below is not older than the trust it replaces.
	config, configErr := k.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(
		ctx, k.options.ConfigurationName, metav1.GetOptions{})

	p, err := k.shared(ctx, now)
	if err != nil {
		return err
	}
	if apierrors.IsNotFound(configErr) {
		k.setTrust(nil, now, errors.New("there is no such configuration"))
	} else if configErr == nil {
		configErr = k.keepTrust(ctx, now, config, p)
	}
	// Definitions only ask for objects of an older version: a replica is ready
	// without their trust.
	definitionsErr := k.keepConversions(ctx, p)
	k.serve(now, p)
	if err := errors.Join(configErr, definitionsErr); err != nil {
		return fmt.Errorf("keeping the trust in the serving certificate: %w", err)
	}
	return nil
}

func (k *Keeper) keepConversions(ctx context.Context, p *pair) error {
	if k.options.Conversions == nil {
		return nil
	}
	bundle, err := p.bundle()
	if err != nil {
		return err
	}
	return k.options.Conversions.trust(ctx, bundle)
}

func (k *Keeper) keepTrust(ctx context.Context, now time.Time, config *admissionregistrationv1.MutatingWebhookConfiguration, p *pair) error {
	bundle, err := p.bundle()
	if err != nil {
		return err
	}
	patched, err := k.trust(ctx, config, bundle)
	if apierrors.IsConflict(err) {
		return err // the other writer's change comes as an event
	}
	if err != nil {
		k.setTrust(nil, now, err)
		return err
	}
	if patched || !p.same(k.trusted) {
		k.setTrust(p, now, nil)
	}
	return nil
}

func (k *Keeper) setTrust(p *pair, now time.Time, why error) {
	k.trusted, k.trustedSince = p, now
	k.mu.Lock()
	defer k.mu.Unlock()
	k.notTrusted = why
}

// serve swaps the certificate in, at once where there is none to serve that is
// still good, else when its authority had time to become known.
func (k *Keeper) serve(now time.Time, p *pair) {
	current := k.serving.Load()
	switch {
	case p.same(current):
	case current == nil, now.After(current.leaf.Leaf.NotAfter),
		p.same(k.trusted) && now.Sub(k.trustedSince) >= settle:
		k.serving.Store(p)
	}
}

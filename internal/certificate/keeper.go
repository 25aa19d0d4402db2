package certificate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
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
	// MutatingName is the MutatingWebhookConfiguration's name, ValidatingName that of the
	// ValidatingWebhookConfiguration, which may be missing; empty for none.
	MutatingName, ValidatingName string
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

	registrations []registration
	serving       atomic.Pointer[pair]

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
	k := &Keeper{client: client, clock: clock, options: options, notTrusted: errors.New("not looked at yet")}
	k.registrations = append(k.registrations, mutating(client, options.MutatingName))
	if options.ValidatingName != "" {
		k.registrations = append(k.registrations, validating(client, options.ValidatingName))
	}
	return k
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
		return fmt.Errorf("the caBundle: %w", k.notTrusted)
	}
	return nil
}

// Run keeps the certificate until ctx ends: at every change of a
// configuration, every minute, and sooner after a failure.
func (k *Keeper) Run(ctx context.Context) {
	changed := make(chan struct{}, 1)
	signal := func() {
		select {
		case changed <- struct{}{}:
		default: // a look is due already
		}
	}
	for i := range k.registrations {
		go k.registrations[i].follow(ctx, k.client, signal)
	}

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

// Sync looks once at the Secret and the configurations and puts right what is
// wrong. A mutating configuration that does not exist is an error, but the certificate
// is served all the same, so that it can be installed last.
func (k *Keeper) Sync(ctx context.Context) error {
	now := k.clock.Now()
	// The configurations first: together with the patch's resource version this
	// makes sure that the Secret read below is not older than the trust it replaces.
	seen := k.look(ctx)

	p, err := k.shared(ctx, now)
	if err != nil {
		return err
	}
	configErr := k.keepTrust(ctx, now, seen, p)
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

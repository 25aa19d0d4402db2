package certificate

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

// contests bounds how often in a row another replica may win; each loss means
// that a sound Secret was written meanwhile, so one reading more than one is ample.
const contests = 4

// shared returns the pair in the Secret, after it wrote one where there was
// none, or none that will do.
func (k *Keeper) shared(ctx context.Context, now time.Time) (*pair, error) {
	log := klog.FromContext(ctx).WithValues("secret", klog.KRef(k.options.SecretNamespace, k.options.SecretName))
	secrets := k.client.CoreV1().Secrets(k.options.SecretNamespace)
	name := k.options.SecretNamespace + "/" + k.options.SecretName
	for range contests {
		secret, err := secrets.Get(ctx, k.options.SecretName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			secret = nil
		} else if err != nil {
			return nil, fmt.Errorf("reading Secret %s: %w", name, err)
		}

		var found *pair
		var fault error
		if secret == nil {
			fault = errors.New("there is no such Secret")
		} else if found, fault = decode(secret.Data); fault == nil {
			fault = found.check(now, k.options.Hosts)
		}
		if fault == nil {
			return found, nil
		}

		hosts := k.options.Hosts
		if found != nil && !errors.Is(fault, errDue) {
			// Replicas of two configurations, as during a roll-out, would
			// otherwise replace each other's certificate in turn.
			hosts = union(hosts, found.hosts())
		}
		fresh, err := issue(now, hosts, k.stillServed(secret))
		if err != nil {
			return nil, err
		}
		err = k.write(ctx, secret, fresh)
		switch {
		case err == nil:
			log.Info("Issued a serving certificate", "because", fault.Error(), "hosts", hosts, "expires", fresh.leaf.Leaf.NotAfter)
			return fresh, nil
		case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsNotFound(err):
			log.V(2).Info("Another replica wrote the Secret first")
		default:
			return nil, fmt.Errorf("writing Secret %s: %w", name, err)
		}
	}
	return nil, fmt.Errorf("writing Secret %s: it changed %d times in a row", name, contests)
}

// write creates the Secret, or updates the one that was read and no other.
func (k *Keeper) write(ctx context.Context, read *corev1.Secret, p *pair) error {
	data, err := p.data()
	if err != nil {
		return err
	}
	secrets := k.client.CoreV1().Secrets(k.options.SecretNamespace)
	if read == nil {
		_, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: k.options.SecretNamespace, Name: k.options.SecretName,
				Labels: map[string]string{"app.kubernetes.io/name": "muster-webhook", "app.kubernetes.io/part-of": "muster"},
			},
			Type: corev1.SecretTypeTLS,
			Data: data,
		}, metav1.CreateOptions{})
		return err
	}
	// The type is immutable, and a Secret that a manifest made empty may have another.
	changed := read.DeepCopy()
	changed.Data = data
	_, err = secrets.Update(ctx, changed, metav1.UpdateOptions{})
	return err
}

// stillServed are the authorities of certificates that replicas may serve
// until they have taken up a new one: that of the Secret's certificate, and of
// this replica's own, which is another one if the Secret was damaged or deleted.
func (k *Keeper) stillServed(secret *corev1.Secret) []*x509.Certificate {
	var served []*x509.Certificate
	if secret != nil {
		if authorities, err := certutil.ParseCertsPEM(secret.Data[caKey]); err == nil {
			served = append(served, authorities[0])
		}
	}
	if own := k.serving.Load(); own != nil && !slices.ContainsFunc(served, own.authorities[0].Equal) {
		served = append(served, own.authorities[0])
	}
	return served
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

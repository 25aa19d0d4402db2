package doctor

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const kueueGroup = "kueue.x-k8s.io"

// dialTime is how long a webhook outside the cluster may take to answer.
const dialTime = 3 * time.Second

// callee is who a webhook or a conversion asks.
type callee struct {
	url       *string
	namespace string
	name      string
}

func (c callee) String() string {
	if c.url != nil {
		return *c.url
	}
	return "Service " + c.namespace + "/" + c.name
}

// dead says why nobody answers there; empty if someone may.
func (p *patient) dead(ctx context.Context, c callee) (string, error) {
	if c.url != nil {
		u, err := url.Parse(*c.url)
		if err != nil {
			return fmt.Sprintf("%q is no URL", *c.url), nil
		}
		address := u.Host
		if u.Port() == "" {
			address = net.JoinHostPort(u.Hostname(), "443")
		}
		dialer := net.Dialer{Timeout: dialTime}
		connection, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return fmt.Sprintf("%s does not answer", *c.url), nil
		}
		_ = connection.Close()
		return "", nil
	}
	service := &corev1.Service{}
	switch err := p.client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: c.name}, service); {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("there is no %s", c), nil
	case err != nil:
		return "", fmt.Errorf("reading %s: %w", c, err)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return "", nil
	}
	endpoints := &discoveryv1.EndpointSliceList{}
	if err := p.client.List(ctx, endpoints, client.InNamespace(c.namespace), client.MatchingLabels{discoveryv1.LabelServiceName: c.name}); err != nil {
		return "", fmt.Errorf("listing the endpoints of %s: %w", c, err)
	}
	for i := range endpoints.Items {
		for _, e := range endpoints.Items[i].Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				return "", nil
			}
		}
	}
	return fmt.Sprintf("%s has no ready endpoint", c), nil
}

// registered is one webhook of a configuration.
type registered struct {
	config admissionregistrationv1.WebhookClientConfig
	rules  []admissionregistrationv1.RuleWithOperations
}

func (r registered) callee() callee {
	if r.config.Service != nil {
		return callee{namespace: r.config.Service.Namespace, name: r.config.Service.Name}
	}
	return callee{url: r.config.URL}
}

// deadWebhooks are Kueue's webhook configurations that nobody answers: with them
// no job can be created, whether it has a queue or not.
func (p *patient) deadWebhooks(ctx context.Context) ([]finding, error) {
	var out []finding
	add := func(obj client.Object, kind string, hooks []registered) error {
		if !ofKueue(hooks) {
			return nil
		}
		why, err := p.dead(ctx, hooks[0].callee())
		if err != nil || why == "" {
			return err
		}
		out = append(out, finding{
			object: kind + " " + obj.GetName(), what: "it asks a webhook of Kueue's, and " + why, remedy: "delete it",
			mend: func(ctx context.Context) error { return client.IgnoreNotFound(p.client.Delete(ctx, obj)) },
		})
		return nil
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	if err := p.client.List(ctx, validating); err != nil {
		return nil, fmt.Errorf("listing ValidatingWebhookConfigurations: %w", err)
	}
	for i := range validating.Items {
		c := &validating.Items[i]
		var hooks []registered
		for _, w := range c.Webhooks {
			hooks = append(hooks, registered{w.ClientConfig, w.Rules})
		}
		if err := add(c, "ValidatingWebhookConfiguration", hooks); err != nil {
			return out, err
		}
	}
	mutating := &admissionregistrationv1.MutatingWebhookConfigurationList{}
	if err := p.client.List(ctx, mutating); err != nil {
		return out, fmt.Errorf("listing MutatingWebhookConfigurations: %w", err)
	}
	for i := range mutating.Items {
		c := &mutating.Items[i]
		var hooks []registered
		for _, w := range c.Webhooks {
			hooks = append(hooks, registered{w.ClientConfig, w.Rules})
		}
		if err := add(c, "MutatingWebhookConfiguration", hooks); err != nil {
			return out, err
		}
	}
	return out, nil
}

// ofKueue says that a configuration is Kueue's: it alone asks to see the objects
// of its API, and all its webhooks are at one place.
func ofKueue(hooks []registered) bool {
	if len(hooks) == 0 {
		return false
	}
	sees := slices.ContainsFunc(hooks, func(h registered) bool {
		return slices.ContainsFunc(h.rules, func(r admissionregistrationv1.RuleWithOperations) bool {
			return slices.Contains(r.APIGroups, kueueGroup)
		})
	})
	return sees && !slices.ContainsFunc(hooks, func(h registered) bool { return !samePlace(h.callee(), hooks[0].callee()) })
}

func samePlace(a, b callee) bool {
	if a.url == nil || b.url == nil {
		return a.url == nil && b.url == nil && a.namespace == b.namespace && a.name == b.name
	}
	x, errX := url.Parse(*a.url)
	y, errY := url.Parse(*b.url)
	return errX == nil && errY == nil && x.Host == y.Host
}

package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// oldVersion is that of Kueue's API which its newer definitions only convert.
const oldVersion = "v1beta1"

// trustTime bounds the wait for Muster's webhook to have its certificate trusted
// by a definition that was led to it.
const trustTime = 2 * time.Minute

func (p *patient) definitions(ctx context.Context) ([]apiextensionsv1.CustomResourceDefinition, error) {
	list := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := p.client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing CustomResourceDefinitions: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(d apiextensionsv1.CustomResourceDefinition) bool { return d.Spec.Group != kueueGroup }), nil
}

// deadConversions are definitions whose objects are converted by a webhook that
// nobody answers: they cannot be read in the version in which they are not stored.
func (p *patient) deadConversions(ctx context.Context) ([]finding, error) {
	definitions, err := p.definitions(ctx)
	if err != nil {
		return nil, err
	}
	var out []finding
	for i := range definitions {
		d := &definitions[i]
		at, converts := conversionOf(d)
		if !converts {
			continue
		}
		why, err := p.dead(ctx, at)
		if err != nil {
			return out, err
		}
		if why == "" {
			continue
		}
		f := finding{object: "CustomResourceDefinition " + d.Name, what: "its objects are converted by a webhook, and " + why}
		to, err := p.successor(ctx)
		switch {
		case err != nil:
			return out, err
		case to != nil:
			f.remedy = "have Muster's webhook convert them"
			f.mend = p.changing(d, func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Conversion.Webhook.ClientConfig = to })
		case slices.Contains(d.Status.StoredVersions, oldVersion):
			f.remedy = "nothing: some may be stored as " + oldVersion + ", so Muster's webhook has to run first"
			f.mend = func(context.Context) error {
				return errors.New("the webhook of Muster does not answer, and only it can convert what is stored as " + oldVersion)
			}
		default:
			f.remedy = "serve no " + oldVersion + " any more"
			f.mend = p.changing(d, serveNewOnly)
		}
		out = append(out, f)
	}
	return out, nil
}

// conversionOf is who converts the objects of a definition.
func conversionOf(d *apiextensionsv1.CustomResourceDefinition) (callee, bool) {
	c := d.Spec.Conversion
	if c == nil || c.Strategy != apiextensionsv1.WebhookConverter || c.Webhook == nil || c.Webhook.ClientConfig == nil {
		return callee{}, false
	}
	config := c.Webhook.ClientConfig
	if config.Service != nil {
		return callee{namespace: config.Service.Namespace, name: config.Service.Name}, true
	}
	return callee{url: config.URL}, true
}

// successor is how Muster's webhook is asked, nil if it does not answer. It writes
// its certificate's authority itself.
func (p *patient) successor(ctx context.Context) (*apiextensionsv1.WebhookClientConfig, error) {
	const path = "/convert"
	if p.options.WebhookURL != "" {
		at := strings.TrimSuffix(p.options.WebhookURL, "/") + path
		why, err := p.dead(ctx, callee{url: &at})
		if err != nil || why != "" {
			return nil, err
		}
		return &apiextensionsv1.WebhookClientConfig{URL: &at}, nil
	}
	namespace, name, _ := strings.Cut(p.options.WebhookService, "/")
	why, err := p.dead(ctx, callee{namespace: namespace, name: name})
	if err != nil || why != "" {
		return nil, err
	}
	at := path
	return &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: namespace, Name: name, Path: &at}}, nil
}

func serveNewOnly(d *apiextensionsv1.CustomResourceDefinition) {
	d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	for i := range d.Spec.Versions {
		if v := &d.Spec.Versions[i]; v.Name == oldVersion {
			v.Served = false
		}
	}
}

// changing edits the newest definition.
func (p *patient) changing(d *apiextensionsv1.CustomResourceDefinition, edit func(*apiextensionsv1.CustomResourceDefinition)) func(context.Context) error {
	return func(ctx context.Context) error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			current := &apiextensionsv1.CustomResourceDefinition{}
			if err := p.client.Get(ctx, client.ObjectKeyFromObject(d), current); err != nil {
				return err
			}
			edit(current)
			return p.client.Update(ctx, current)
		})
	}
}

// oldVersions are definitions of which objects may be stored in the old version.
func (p *patient) oldVersions(ctx context.Context) ([]finding, error) {
	definitions, err := p.definitions(ctx)
	if err != nil {
		return nil, err
	}
	var out []finding
	for i := range definitions {
		d := &definitions[i]
		to := storedAs(d)
		if !slices.Contains(d.Status.StoredVersions, oldVersion) || to == oldVersion || to == "" {
			continue
		}
		out = append(out, finding{
			object: "CustomResourceDefinition " + d.Name, what: "objects of it may be stored as " + oldVersion,
			remedy: "write all of them again as " + to,
			mend:   func(ctx context.Context) error { return p.rewrite(ctx, d, to) },
		})
	}
	return out, nil
}

func storedAs(d *apiextensionsv1.CustomResourceDefinition) string {
	for _, v := range d.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

// rewrite updates every object of a definition without a change, which has it
// stored anew, and says in the definition that no other version is stored.
func (p *patient) rewrite(ctx context.Context, d *apiextensionsv1.CustomResourceDefinition, version string) error {
	kind := schema.GroupVersionKind{Group: d.Spec.Group, Version: version, Kind: d.Spec.Names.Kind}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(d.Spec.Names.ListKind))
	var last error
	err := wait.PollUntilContextTimeout(ctx, time.Second, trustTime, true, func(ctx context.Context) (bool, error) {
		last = p.client.List(ctx, list)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("listing them as %s: %w", version, errors.Join(last, err))
	}
	for i := range list.Items {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(kind)
			if err := p.client.Get(ctx, client.ObjectKeyFromObject(&list.Items[i]), o); err != nil {
				return client.IgnoreNotFound(err)
			}
			return client.IgnoreNotFound(p.client.Update(ctx, o))
		})
		if err != nil {
			return fmt.Errorf("writing %s again: %w", client.ObjectKeyFromObject(&list.Items[i]), err)
		}
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current := &apiextensionsv1.CustomResourceDefinition{}
		if err := p.client.Get(ctx, client.ObjectKeyFromObject(d), current); err != nil {
			return err
		}
		current.Status.StoredVersions = []string{version}
		return p.client.Status().Update(ctx, current)
	})
}

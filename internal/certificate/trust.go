package certificate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// look is what was read of a registration: nil without an error if it does not exist
// and need not.
type look struct {
	version  string
	webhooks []webhook
}

// webhook is one webhook of a registration and what it trusts.
type webhook struct {
	Name         string       `json:"name"` // the list's merge key
	ClientConfig clientConfig `json:"clientConfig"`
}

type clientConfig struct {
	CABundle []byte `json:"caBundle"`
}

// read looks at the registration.
func (r *registration) read(ctx context.Context) (*look, error) {
	l, err := r.get(ctx)
	switch {
	case apierrors.IsNotFound(err) && r.optional:
		return nil, nil
	case apierrors.IsNotFound(err):
		return nil, errMissing
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", r, err)
	}
	return l, nil
}

var errMissing = errors.New("there is no such configuration")

// trust sets the caBundle of every webhook of the registration and says whether it
// had to change one. The patch holds for the version that was read only: a replica
// that has not seen a new certificate yet must not put back the old trust.
func (r *registration) trust(ctx context.Context, seen *look, bundle []byte) (bool, error) {
	if seen == nil {
		return false, nil
	}
	var wrong []webhook
	for _, w := range seen.webhooks {
		if !bytes.Equal(w.ClientConfig.CABundle, bundle) {
			wrong = append(wrong, webhook{Name: w.Name, ClientConfig: clientConfig{CABundle: bundle}})
		}
	}
	if len(wrong) == 0 {
		return false, nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": seen.version},
		"webhooks": wrong,
	})
	if err != nil {
		return false, fmt.Errorf("encoding the caBundle's patch: %w", err)
	}
	if err := r.patch(ctx, patch); err != nil {
		return false, fmt.Errorf("setting the caBundle: %w", err)
	}
	klog.FromContext(ctx).Info("Set the caBundle", "configuration", r.name, "webhooks", len(wrong))
	return true, nil
}

// looked is what came of reading one registration.
type looked struct {
	*look
	err error
}

func (k *Keeper) look(ctx context.Context) []looked {
	all := make([]looked, len(k.registrations))
	for i := range k.registrations {
		all[i].look, all[i].err = k.registrations[i].read(ctx)
	}
	return all
}

// keepTrust makes all registrations trust the pair. The pair is trusted if all do. One
// that could not be read, or that another writer is changing, leaves what is known.
func (k *Keeper) keepTrust(ctx context.Context, now time.Time, seen []looked, p *pair) error {
	bundle, err := p.bundle()
	if err != nil {
		return err
	}
	var unknown, wrong []error
	changed := false
	for i := range k.registrations {
		r, err := &k.registrations[i], seen[i].err
		if err == nil {
			var patched bool
			patched, err = r.trust(ctx, seen[i].look, bundle)
			changed = changed || patched
			if err != nil && !apierrors.IsConflict(err) {
				wrong = append(wrong, fmt.Errorf("%s: %w", r, err))
				continue
			}
		}
		switch {
		case errors.Is(err, errMissing):
			wrong = append(wrong, fmt.Errorf("%s: %w", r, err))
		case err != nil:
			unknown = append(unknown, err) // the other writer's change comes as an event
		}
	}
	switch {
	case len(wrong) > 0:
		k.setTrust(nil, now, errors.Join(wrong...))
	case len(unknown) == 0 && (changed || !p.same(k.trusted)):
		k.setTrust(p, now, nil)
	}
	return errors.Join(append(wrong, unknown...)...)
}

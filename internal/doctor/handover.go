package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrFindings says that something is wrong, and was not mended.
var ErrFindings = errors.New("something is wrong")

// Options say how to look.
type Options struct {
	// Fix has what is found mended.
	Fix bool
	// WebhookService is the namespace and name of the Service of Muster's webhook,
	// WebhookURL its URL where it has none; conversions are led there.
	WebhookService, WebhookURL string
	// Out receives one line for each finding.
	Out io.Writer
}

// finding is one thing that is wrong.
type finding struct {
	// object is what it is wrong with, what the trouble, remedy what mends it.
	object, what, remedy string
	mend                 func(context.Context) error
}

// The Leases that the leaders renew.
var (
	kueueLease  = client.ObjectKey{Namespace: "kueue-system", Name: "c1f6bfd2.kueue.x-k8s.io"}
	musterLease = client.ObjectKey{Namespace: "muster-system", Name: "muster-scheduler"}
)

// HandOver looks for what a Kueue manager that runs no more has left behind, and
// mends it with Fix. It returns ErrFindings if something stays wrong, and another
// error if that could not be found out, or not be mended, or a manager is alive,
// who is to be left in peace.
func HandOver(ctx context.Context, config *rest.Config, o Options) error {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	p := &patient{client: c, options: o}
	holder, err := p.alive(ctx, kueueLease)
	if err != nil {
		return err
	}
	if holder != "" {
		return fmt.Errorf("a Kueue manager (%s) is alive: stop it first, and wait until its Lease has run out", holder)
	}
	if holder, err = p.alive(ctx, musterLease); err != nil {
		return err
	}
	p.musterLeads = holder != ""
	return p.treat(ctx)
}

// patient is the cluster.
type patient struct {
	client  client.Client
	options Options
	// musterLeads: a scheduler of Muster's looks after the queues' finalizers.
	musterLeads bool
}

// treat looks for one kind of trouble after the other, and mends each before it
// looks for the next: objects can be rewritten only when they can be converted.
func (p *patient) treat(ctx context.Context) error {
	found, mended := 0, 0
	var errs []error
	for _, look := range []func(context.Context) ([]finding, error){
		p.deadWebhooks, p.deadConversions, p.oldVersions, p.podsLeftBehind, p.finalizersLeftBehind,
	} {
		findings, err := look(ctx)
		if err != nil {
			errs = append(errs, err)
		}
		for _, f := range findings {
			found++
			fmt.Fprintf(p.options.Out, "%s: %s\n", f.object, f.what)
			if !p.options.Fix {
				fmt.Fprintf(p.options.Out, "  --fix would: %s\n", f.remedy)
				continue
			}
			if err := f.mend(ctx); err != nil {
				fmt.Fprintf(p.options.Out, "  not mended: %v\n", err)
				errs = append(errs, fmt.Errorf("%s: %w", f.object, err))
				continue
			}
			mended++
			fmt.Fprintf(p.options.Out, "  mended: %s\n", f.remedy)
		}
	}
	switch {
	case len(errs) > 0:
		return errors.Join(errs...)
	case found == 0:
		fmt.Fprintln(p.options.Out, "Kueue has left nothing behind that is in the way.")
	case mended < found:
		return ErrFindings
	}
	return nil
}

// alive is the holder of a Lease that is being renewed, empty if there is none.
func (p *patient) alive(ctx context.Context, key client.ObjectKey) (string, error) {
	lease := &coordinationv1.Lease{}
	if err := p.client.Get(ctx, key, lease); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return "", nil
		}
		return "", fmt.Errorf("reading Lease %s: %w", key, err)
	}
	s := lease.Spec
	if s.HolderIdentity == nil || s.RenewTime == nil || s.LeaseDurationSeconds == nil ||
		time.Since(s.RenewTime.Time) > time.Duration(*s.LeaseDurationSeconds)*time.Second {
		return "", nil
	}
	return *s.HolderIdentity, nil
}

// namedPod writes a pod for people.
func namedPod(pod *corev1.Pod) string { return fmt.Sprintf("Pod %s/%s", pod.Namespace, pod.Name) }

package show

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

// pageSize is how many objects are read at a time.
const pageSize = 500

// Cluster is where things are read.
type Cluster struct {
	client client.Client
	// now is the time of day.
	now func() time.Time
}

// Connect returns the cluster of a configuration.
func Connect(config *rest.Config) (*Cluster, error) {
	c, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return &Cluster{client: c, now: time.Now}, nil
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, eventsv1.AddToScheme, policyv1.AddToScheme, kueue.AddToScheme, v1alpha1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// pages reads a list page by page.
func pages[L client.ObjectList](ctx context.Context, c *Cluster, what string, page func() L, take func(L), options ...client.ListOption) error {
	token := ""
	for {
		l := page()
		err := c.client.List(ctx, l, append([]client.ListOption{client.Limit(pageSize), client.Continue(token)}, options...)...)
		if err != nil {
			return cannotRead(what, err)
		}
		take(l)
		if token = l.GetContinue(); token == "" {
			return nil
		}
	}
}

// cannotRead says why something could not be read, and what would help.
func cannotRead(what string, err error) error {
	switch {
	case apimeta.IsNoMatchError(err):
		return &missingKind{what}
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; the ClusterRole muster-viewer has the right to read %s", err, what)
	}
	return fmt.Errorf("reading %s: %w", what, err)
}

// missingKind says that the cluster does not have a kind of objects.
type missingKind struct{ what string }

func (m *missingKind) Error() string {
	source := "Kueue's, or kubectl apply -k manifests/crds/kueue"
	if m.what == "GPUNodes" {
		source = "kubectl apply -k manifests/crds/muster; the GPU agents write them"
	}
	return fmt.Sprintf("the cluster has no %s: their CustomResourceDefinition is not installed (%s)", m.what, source)
}

// absent says that an error is for want of a kind.
func absent(err error) bool { return errors.As(err, new(*missingKind)) }

func (c *Cluster) workloads(ctx context.Context, take func(*kueue.Workload), options ...client.ListOption) error {
	return pages(ctx, c, "Workloads", func() *kueue.WorkloadList { return &kueue.WorkloadList{} }, func(l *kueue.WorkloadList) {
		for i := range l.Items {
			take(&l.Items[i])
		}
	}, options...)
}

func (c *Cluster) clusterQueues(ctx context.Context, take func(*kueue.ClusterQueue)) error {
	return pages(ctx, c, "ClusterQueues", func() *kueue.ClusterQueueList { return &kueue.ClusterQueueList{} }, func(l *kueue.ClusterQueueList) {
		for i := range l.Items {
			take(&l.Items[i])
		}
	})
}

func (c *Cluster) localQueues(ctx context.Context, take func(*kueue.LocalQueue), options ...client.ListOption) error {
	return pages(ctx, c, "LocalQueues", func() *kueue.LocalQueueList { return &kueue.LocalQueueList{} }, func(l *kueue.LocalQueueList) {
		for i := range l.Items {
			take(&l.Items[i])
		}
	}, options...)
}

func (c *Cluster) cohorts(ctx context.Context, take func(*kueue.Cohort)) error {
	return pages(ctx, c, "Cohorts", func() *kueue.CohortList { return &kueue.CohortList{} }, func(l *kueue.CohortList) {
		for i := range l.Items {
			take(&l.Items[i])
		}
	})
}

func (c *Cluster) pods(ctx context.Context, take func(*corev1.Pod), options ...client.ListOption) error {
	return pages(ctx, c, "pods", func() *corev1.PodList { return &corev1.PodList{} }, func(l *corev1.PodList) {
		for i := range l.Items {
			take(&l.Items[i])
		}
	}, options...)
}

func (c *Cluster) gpuNodes(ctx context.Context, take func(*v1alpha1.GPUNode)) error {
	return pages(ctx, c, "GPUNodes", func() *v1alpha1.GPUNodeList { return &v1alpha1.GPUNodeList{} }, func(l *v1alpha1.GPUNodeList) {
		for i := range l.Items {
			take(&l.Items[i])
		}
	})
}

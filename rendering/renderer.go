package rendering

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/workload"
)

const (
	// Freshness is how long a dry run is believed: a changed webhook is seen
	// after that.
	Freshness = 5 * time.Minute
	// refusedFor is how long a template is not tried again whose dry run was
	// refused.
	refusedFor = time.Minute
	// dryRunTimeout bounds one dry run, which may call slow webhooks.
	dryRunTimeout = 3 * time.Second
	// pause is how long no dry run is made after the API server did not answer
	// one in time.
	pause = 10 * time.Second
	// mostRendered bounds the templates whose dry runs are remembered.
	mostRendered = 2048
)

// The values of the label of muster_render_total.
const (
	howDryRun  = "dry-run"
	howLocal   = "local"
	howRefused = "refused"
)

// Renderer renders the pod templates of jobs. It may be used by many
// goroutines, and blocks on the API, for dryRunTimeout at most for each
// template.
type Renderer struct {
	// reader reads LimitRanges, RuntimeClasses and PriorityClasses, from an
	// informer's cache; client makes the dry runs.
	reader client.Reader
	client client.Client
	clock  clock.PassiveClock
	// claims counts devices; nil if they are not counted.
	claims *Claims
	// fence says whether dry runs may be made; nil means never.
	fence *fence
	// rendered are the last dry runs, by key; a nil pod is one that was refused.
	rendered *utilcache.LRUExpireCache
	// pausedUntil is in nanoseconds since 1970.
	pausedUntil atomic.Int64
}

// NewRenderer returns a Renderer. With dryRun, pods are rendered by the API
// server as long as the fence of manifests/base/rendering is in place.
func NewRenderer(reader client.Reader, c client.Client, clk clock.PassiveClock, dryRun bool) *Renderer {
	r := &Renderer{reader: reader, client: c, clock: clk, rendered: utilcache.NewLRUExpireCacheWithClock(mostRendered, clk)}
	if dryRun {
		r.fence = &fence{client: c, clock: clk}
	}
	return r
}

// key is one template in one namespace.
type key struct {
	namespace string
	template  [sha256.Size]byte
}

// Render renders every pod set of a job that was just read. no is why its pods
// could not be created at all; err means that reading failed and is worth
// another try.
func (r *Renderer) Render(ctx context.Context, job *workload.Job) (no *reason.Reason, err error) {
	if no, err := r.renderSets(ctx, job); no != nil || err != nil {
		return no, err
	}
	if r.claims == nil {
		return nil, nil
	}
	if err := r.claims.Count(job); errors.As(err, &no) {
		return no, nil
	} else if err != nil {
		return nil, fmt.Errorf("counting what %s %s claims: %w", job.Owner.Kind, job.Owner.NamespacedName, err)
	}
	return nil, nil
}

func (r *Renderer) renderSets(ctx context.Context, job *workload.Job) (no *reason.Reason, err error) {
	if job.Gated {
		// Its pods exist, and are what its pod sets were read from.
		return nil, nil
	}
	for i := range job.PodSets {
		ps := &job.PodSets[i]
		out, err := r.render(ctx, job.Owner.Namespace, &ps.Template)
		if errors.As(err, &no) {
			return reason.New(no.Class, "pod set %q: %s", ps.Name, no.Message), nil
		}
		if err != nil {
			return nil, fmt.Errorf("rendering pod set %s of %s %s: %w", ps.Name, job.Owner.Kind, job.Owner.NamespacedName, err)
		}
		if no := ps.RefusedPriority(out.Charged); no != nil {
			return reason.New(no.Class, "pod set %q: %s", ps.Name, no.Message), nil
		}
		ps.Rendered = out
	}
	return nil, nil
}

// Forget drops the dry runs of a namespace, or all with an empty name, after
// something changed that pods are made of.
func (r *Renderer) Forget(namespace string) {
	r.rendered.RemoveAll(func(k any) bool {
		at, ok := k.(key)
		return ok && (namespace == "" || at.namespace == namespace)
	})
}

func (r *Renderer) render(ctx context.Context, namespace string, t *corev1.PodTemplateSpec) (*workload.Rendered, error) {
	add, err := r.additions(ctx, namespace, t)
	if err != nil {
		return nil, err
	}
	local, err := Local(namespace, t, add)
	if err != nil {
		return nil, err
	}
	out := &workload.Rendered{Charged: local, Placed: local}
	if placed := r.dryRun(ctx, namespace, t); placed != nil {
		out.Placed = placed
	}
	return out, nil
}

// dryRun is the pod that the API server makes of a template, nil where it may
// not be asked or refuses.
func (r *Renderer) dryRun(ctx context.Context, namespace string, t *corev1.PodTemplateSpec) *corev1.Pod {
	if r.fence == nil || !r.fence.stands(ctx) {
		metrics.Renderings.WithLabelValues(howLocal).Inc()
		return nil
	}
	at, err := keyOf(namespace, t)
	if err != nil {
		metrics.Renderings.WithLabelValues(howLocal).Inc()
		return nil
	}
	if known, ok := r.rendered.Get(at); ok {
		return withTracking(known.(*corev1.Pod), t.Labels)
	}
	if r.clock.Now().UnixNano() < r.pausedUntil.Load() {
		metrics.Renderings.WithLabelValues(howLocal).Inc()
		return nil
	}
	pod, err := r.ask(ctx, namespace, t)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		klog.FromContext(ctx).V(2).Info("Dry run of a pod refused, it is rendered locally", "namespace", namespace, "err", err.Error())
		metrics.Renderings.WithLabelValues(howRefused).Inc()
		if isSilence(err) {
			r.pausedUntil.Store(r.clock.Now().Add(pause).UnixNano())
		}
		r.rendered.Add(at, (*corev1.Pod)(nil), refusedFor)
		return nil
	}
	metrics.Renderings.WithLabelValues(howDryRun).Inc()
	r.rendered.Add(at, pod, Freshness)
	return pod
}

// ask makes the dry run.
func (r *Renderer) ask(ctx context.Context, namespace string, t *corev1.PodTemplateSpec) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, dryRunTimeout)
	defer cancel()
	pod := bare(namespace, t)
	pod.GenerateName = "muster-rendering-"
	if err := r.client.Create(ctx, pod, client.DryRunAll); err != nil {
		return nil, err
	}
	return essential(pod), nil
}

// isSilence says that a dry run failed because the API server is slow or away,
// which is the same for all templates.
func isSilence(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err)
}

// keyOf leaves out what is different in every batch Job, so that equal Jobs are
// asked for once; but not where a pod's place depends on the labels of others,
// since those then may be written into the pod.
func keyOf(namespace string, t *corev1.PodTemplateSpec) (key, error) {
	labels := t.Labels
	if t.Spec.Affinity == nil && len(t.Spec.TopologySpreadConstraints) == 0 {
		labels = maps.Clone(labels)
		for l := range labels {
			if workload.IsJobTracking(l) {
				labels[l] = ""
			}
		}
	}
	data, err := json.Marshal(struct {
		Labels, Annotations map[string]string
		Spec                *corev1.PodSpec
	}{labels, t.Annotations, &t.Spec})
	if err != nil {
		return key{}, fmt.Errorf("encoding a pod template: %w", err)
	}
	return key{namespace: namespace, template: sha256.Sum256(data)}, nil
}

// withTracking is a rendered pod, perhaps of another Job, with the labels by
// which a Job knows its pods.
func withTracking(pod *corev1.Pod, labels map[string]string) *corev1.Pod {
	if pod == nil {
		return nil
	}
	own := maps.Clone(pod.Labels)
	for l := range own {
		if value, ok := labels[l]; ok && workload.IsJobTracking(l) {
			own[l] = value
		}
	}
	if maps.Equal(own, pod.Labels) {
		return pod
	}
	pod = pod.DeepCopy()
	pod.Labels = own
	return pod
}

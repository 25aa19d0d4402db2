package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/sandbox"
	"github.com/muster-gpu/muster/internal/testsandbox"
)

var perPhase = flag.Int("creates", 400, "how many objects of each kind BenchmarkCreates creates in a phase")

const (
	createsTeam = "creates"
	// creators is how many clients create at a time.
	creators = 8
)

// created is a kind of load.
type created struct {
	name   string
	object func(i int) client.Object
}

// createdKinds are objects of which the webhook is not asked, of which it is, and both as a
// cluster of training jobs has them: of ten objects seven are pods without GPUs, two are
// pods with GPUs, and one is a job.
var createdKinds = []created{
	{"pods without GPUs", cpuPod},
	{"pods with GPUs", gpuPod},
	{"queued jobs", queuedJob},
	{"mix", func(i int) client.Object {
		switch i % 10 {
		case 0:
			return queuedJob(i)
		case 3, 6:
			return gpuPod(i)
		}
		return cpuPod(i)
	}},
}

func podOf(name string, limits corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: createsTeam, Name: name, Labels: map[string]string{"app": "train", "team": createsTeam}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "team/train@sha256:" + strings.Repeat("0a", 32), Command: []string{"torchrun", "train.py"},
			Env:       []corev1.EnvVar{{Name: "OMP_NUM_THREADS", Value: "8"}, {Name: "CHECKPOINT_DIR", Value: "/data"}},
			Resources: corev1.ResourceRequirements{Limits: limits},
		}}},
	}
}

func cpuPod(i int) client.Object {
	return podOf(fmt.Sprintf("cpu-%d", i), corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")})
}

func gpuPod(i int) client.Object {
	return podOf(fmt.Sprintf("gpu-%d", i), corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("64Gi"), "nvidia.com/gpu": resource.MustParse("8")})
}

func queuedJob(i int) client.Object {
	template := gpuPod(i).(*corev1.Pod)
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: createsTeam, Name: fmt.Sprintf("job-%d", i), Labels: map[string]string{"kueue.x-k8s.io/queue-name": "main"}},
		Spec:       batchv1.JobSpec{Suspend: new(true), Template: corev1.PodTemplateSpec{Spec: template.Spec}},
	}
}

// creates is what a phase has come to.
type creates struct {
	perSecond float64
	// used is the processor time of one creation, by component.
	used processors
}

// BenchmarkCreates creates objects with and without Muster's webhook, in phases that take
// turns on one API server, and says how many a second there are, and what one costs.
func BenchmarkCreates(b *testing.B) {
	withWebhook := contestant{name: "webhook", with: []string{sandbox.WithWebhook}}
	c := withWebhook.up(b)
	c.Cluster.Config.WarningHandler = rest.NoWarnings{}
	c.WithWatch = c.Cluster.Watching(b)
	if err := c.settle(b.Context()); err != nil {
		b.Fatal(err)
	}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: createsTeam}},
		// Its controller does not run.
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: createsTeam, Name: "default"}},
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: createsTeam, Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: createsTeam}},
	} {
		if err := c.Create(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
	hooks := readHooks(b, c)
	config := rest.CopyConfig(c.Cluster.Config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.QPS = -1
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	type both struct{ without, with *creates }
	all := make(map[string][]both, len(createdKinds))
	// Before what counts, everything is done once.
	for i := range *rounds + 1 {
		turns := []bool{false, true}
		if i%2 == 1 {
			turns = []bool{true, false}
		}
		results := make(map[string]both, len(createdKinds))
		for _, with := range turns {
			hooks.set(b, with)
			for _, kind := range createdKinds {
				f := c.createAll(b, k, kind)
				r := results[kind.name]
				if with {
					r.with = f
				} else {
					r.without = f
				}
				results[kind.name] = r
			}
		}
		for name, r := range results {
			if i > 0 {
				all[name] = append(all[name], r)
			}
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%d rounds of %d\tmin\tmedian\tmax\n", *rounds, *perPhase)
	for _, kind := range createdKinds {
		row := func(what string, of func(r both) float64) {
			spread(w, kind.name+": "+what, all[kind.name], func(r both) (float64, bool) { return of(r), true })
		}
		row("creates/s without the webhook", func(r both) float64 { return r.without.perSecond })
		row("creates/s with it", func(r both) float64 { return r.with.perSecond })
		row("with / without", func(r both) float64 { return r.with.perSecond / r.without.perSecond })
		row("processor ms without", func(r both) float64 { return millis(r.without.used.all()) })
		row("processor ms with", func(r both) float64 { return millis(r.with.used.all()) })
		row("processor ms of the API server without", func(r both) float64 { return millis(r.without.used[theAPIServer]) })
		row("processor ms of the API server with", func(r both) float64 { return millis(r.with.used[theAPIServer]) })
		row("processor ms of the webhook itself", func(r both) float64 { return millis(r.with.used[theWebhook]) })
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op")
}

const theWebhook = "muster-webhook"

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// createAll creates the objects of a phase, and then deletes them, which is not counted.
func (c *cluster) createAll(b *testing.B, k kubernetes.Interface, kind created) *creates {
	b.Helper()
	before, err := c.processor()
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	err = inParallel(b.Context(), creators, *perPhase, func(ctx context.Context, i int) error {
		var err error
		switch o := kind.object(i).(type) {
		case *corev1.Pod:
			_, err = k.CoreV1().Pods(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
		case *batchv1.Job:
			_, err = k.BatchV1().Jobs(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
		}
		return err
	})
	took := time.Since(began)
	if err != nil {
		b.Fatalf("creating %s: %v", kind.name, err)
	}
	after, err := c.processor()
	if err != nil {
		b.Fatal(err)
	}
	out := &creates{perSecond: float64(*perPhase) / took.Seconds(), used: processors{}}
	for name, used := range after.since(before) {
		// What the benchmark itself does is no part of it.
		if name != theBenchmark {
			out.used[name] = used / time.Duration(*perPhase)
		}
	}
	for _, o := range []client.Object{&corev1.Pod{}, &batchv1.Job{}} {
		if err := c.WithWatch.DeleteAllOf(b.Context(), o, client.InNamespace(createsTeam), client.GracePeriodSeconds(0), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			b.Fatal(err)
		}
	}
	return out
}

// hooks are the configurations with which the API server asks the webhook.
type hooks struct {
	c   *cluster
	all []client.Object
}

// readHooks reads them as they are once the webhook is trusted.
func readHooks(b *testing.B, c *cluster) *hooks {
	b.Helper()
	h := &hooks{c: c, all: []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "muster-mutating"}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "muster-validating"}},
	}}
	h.wait(b, true)
	for _, o := range h.all {
		if err := c.Get(b.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			b.Fatal(err)
		}
		o.SetResourceVersion("")
		o.SetUID("")
	}
	return h
}

// set installs or removes them, and waits until the API server does as they say.
func (h *hooks) set(b *testing.B, installed bool) {
	b.Helper()
	for _, o := range h.all {
		var err error
		if o = o.DeepCopyObject().(client.Object); installed {
			err = h.c.Create(b.Context(), o)
		} else {
			err = h.c.Delete(b.Context(), o)
		}
		if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			b.Fatal(err)
		}
	}
	h.wait(b, installed)
}

// wait waits until new pods with GPUs get their defaults and must not name their node, or
// neither.
func (h *hooks) wait(b *testing.B, installed bool) {
	b.Helper()
	testsandbox.Eventually(b, time.Minute, fmt.Sprintf("the webhook to be asked: %v", installed), func(ctx context.Context) error {
		pod := gpuPod(0).(*corev1.Pod)
		if err := h.c.Create(ctx, pod, client.DryRunAll); err != nil {
			return err
		}
		placed := gpuPod(0).(*corev1.Pod)
		placed.Spec.NodeName = "node-0"
		err := h.c.Create(ctx, placed, client.DryRunAll)
		denied := err != nil && strings.Contains(err.Error(), "[muster-node-name]")
		if defaulted := pod.Annotations["muster.dev/runtime-defaults"] != ""; defaulted != installed || denied != installed {
			return fmt.Errorf("defaults: %v, policies: %v (%v)", defaulted, denied, err)
		}
		return nil
	})
}

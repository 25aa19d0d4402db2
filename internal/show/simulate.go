package show

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-gpu/muster/api/inquiry"
	"github.com/muster-gpu/muster/policy/facts"
	"github.com/muster-gpu/muster/workload"
)

// Simulated is a job of a file, and what would become of it.
type Simulated struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	*inquiry.Simulation
}

// ShowSimulation shows what would become of the jobs in a file, each as if it were the
// only one. namespace is that of those which name none.
func (c *Cluster) ShowSimulation(ctx context.Context, o Output, file io.Reader, namespace string, scheduler *Scheduler) error {
	jobs, err := jobsIn(file, namespace)
	if err != nil {
		return err
	}
	var all []Simulated
	for _, job := range jobs {
		asked, err := c.admitted(ctx, job)
		if err != nil {
			return err
		}
		if asked, err = c.asJobSet(ctx, asked); err != nil {
			return err
		}
		text, err := asked.MarshalJSON()
		if err != nil {
			return fmt.Errorf("encoding %s: %w", job.GetName(), err)
		}
		s, err := scheduler.Simulate(ctx, text)
		if err != nil {
			return fmt.Errorf("%s %s: %w", job.GetKind(), job.GetName(), err)
		}
		all = append(all, Simulated{Kind: job.GetKind(), Namespace: job.GetNamespace(), Name: asked.GetName(), Simulation: s})
	}
	switch {
	case o.structured():
		return o.encode(listOf("Simulation", all))
	case o.Format == "name":
		return o.names(namesOf(all, func(s Simulated) string { return s.Name }))
	}
	w := &page{out: o.Out}
	for i := range all {
		all[i].write(w)
	}
	return w.err
}

// jobsIn reads the objects of a file that have a queue.
func jobsIn(file io.Reader, namespace string) ([]*unstructured.Unstructured, error) {
	var jobs []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(file, 64<<10)
	for n := 1; ; n++ {
		u := &unstructured.Unstructured{}
		switch err := decoder.Decode(u); {
		case errors.Is(err, io.EOF):
			if len(jobs) == 0 {
				return nil, fmt.Errorf("no object of the file has the label %s", workload.QueueLabel)
			}
			return jobs, nil
		case err != nil:
			return nil, fmt.Errorf("reading object %d: %w", n, err)
		}
		if u.GetLabels()[workload.QueueLabel] == "" {
			continue
		}
		if u.GetNamespace() == "" {
			u.SetNamespace(namespace)
		}
		jobs = append(jobs, u)
	}
}

// admitted is a job as the API server would store it, with its defaults and what webhooks
// change; who refuses it is told. It is created as a dry run, under a name of its own,
// because a job of its name may exist.
func (c *Cluster) admitted(ctx context.Context, job *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	u := job.DeepCopy()
	prefix := cmp.Or(job.GetName(), strings.TrimSuffix(job.GetGenerateName(), "-"))
	u.SetName("")
	u.SetGenerateName(prefix[:min(len(prefix), longestPrefix)] + "-")
	if err := c.client.Create(ctx, u, client.DryRunAll); apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("it would not be created: %w", err)
	} else if err != nil {
		return nil, fmt.Errorf("creating %s %s as a dry run: %w", job.GetKind(), job.GetName(), err)
	}
	if job.GetName() != "" {
		u.SetName(job.GetName())
	}
	return u, nil
}

// longestPrefix keeps names, and those that controllers make of them, valid.
const longestPrefix = 30

// asJobSet is the JobSet that the Trainer would make of a TrainJob; anything else is itself.
func (c *Cluster) asJobSet(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if u.GetKind() != "TrainJob" {
		return u, nil
	}
	spec, err := facts.NewReader(runtimes{c.client}, nil).JobSetOf(ctx, u)
	if err != nil {
		return nil, err
	}
	js := &jobset.JobSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: jobset.SchemeGroupVersion.String(), Kind: "JobSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), Labels: u.GetLabels(), Annotations: u.GetAnnotations()},
		Spec:       *spec,
	}
	js.Spec.Suspend = new(true)
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(js)
	if err != nil {
		return nil, fmt.Errorf("making the JobSet of TrainJob %s: %w", u.GetName(), err)
	}
	return &unstructured.Unstructured{Object: fields}, nil
}

// runtimes reads training runtimes.
type runtimes struct{ client client.Client }

func (r runtimes) Runtime(ctx context.Context, namespace, kind, name string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "trainer.kubeflow.org", Version: "v1alpha1", Kind: kind})
	key := client.ObjectKey{Name: name}
	if kind == "TrainingRuntime" {
		key.Namespace = namespace
	}
	err := r.client.Get(ctx, key, u)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return u, err
}

func (runtimes) Owner(context.Context, string, metav1.OwnerReference) (*metav1.PartialObjectMetadata, error) {
	return nil, nil
}

func (runtimes) Group(context.Context, string, schema.GroupVersionKind, string) (*metav1.PartialObjectMetadata, error) {
	return nil, nil
}

// write writes a Simulation for people.
func (s *Simulated) write(w *page) {
	headline := map[string]string{
		inquiry.Starts: "would start at once", inquiry.Preempts: "would start when others have been stopped for it", inquiry.Waits: "would wait",
		inquiry.Unknown: "may start or wait",
	}[s.Outcome]
	w.line("%s %s/%s %s", s.Kind, s.Namespace, s.Name, headline)
	w.field("Size", "%d GPUs, %d pods", s.GPUs, s.Pods)
	if s.ClusterQueue != "" {
		quota := "ClusterQueue " + s.ClusterQueue
		if len(s.Flavors) > 0 {
			quota += ", flavor " + strings.Join(s.Flavors, ", ")
		}
		if s.BorrowsFrom > 0 {
			quota += ", borrowing from its cohort"
		}
		w.field("Quota", "%s", quota)
	}
	if s.Outcome != inquiry.Starts && s.Position > 0 {
		w.field("Position", "%d of %d in ClusterQueue %s", s.Position, s.Pending, s.ClusterQueue)
	}
	if s.Reason != "" {
		w.field("Why", "%s: %s", s.Reason, s.Message)
	}
	for _, v := range s.Preempted {
		w.line("  stops %s %s/%s  %d GPUs, priority %d, %s", v.Kind, v.Namespace, v.Name, v.GPUs, v.Priority, v.Reason)
	}
	if s.Closeness != "" {
		w.field("Placed", "%s", s.Closeness)
	}
	nodes := slices.Clone(s.Nodes)
	slices.SortStableFunc(nodes, func(a, b inquiry.NodePods) int { return strings.Compare(a.Node, b.Node) })
	for _, n := range nodes {
		w.line("  %s: %d of %s", n.Node, n.Pods, n.PodSet)
	}
}

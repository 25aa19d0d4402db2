package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// patience bounds every wait of the demo.
const patience = 60 * time.Second

// stage is one cluster with what is written about it.
type stage struct {
	client client.Client
	out    io.Writer
	color  bool
	// ranks is the number of pods of each job that was created.
	ranks map[string]int
}

func newStage(config *rest.Config, out io.Writer, color bool) (*stage, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), kueue.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 100, 200
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	return &stage{client: c, out: out, color: color, ranks: map[string]int{}}, nil
}

func (s *stage) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

func (s *stage) create(ctx context.Context, jobs ...training) error {
	for _, j := range jobs {
		s.ranks[j.name] = j.nodes
		if err := s.client.Create(ctx, j.object()); err != nil {
			return fmt.Errorf("creating TrainJob %s: %w", j.name, err)
		}
	}
	return nil
}

// clear deletes all TrainJobs and waits until their pods are gone.
func (s *stage) clear(ctx context.Context, names ...string) error {
	for _, name := range names {
		job := training{name: name}.object()
		if err := s.client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting TrainJob %s: %w", name, err)
		}
	}
	return s.await(ctx, "the deleted jobs' pods to be gone", func(ctx context.Context) error {
		for _, name := range names {
			pods, err := s.pods(ctx, name)
			if err != nil || len(pods) > 0 {
				return fmt.Errorf("%s has %s (%w)", name, plural(len(pods), "pod"), orNone(err))
			}
			err = s.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, training{name: name}.object())
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("TrainJob %s is still there (%w)", name, orNone(err))
			}
		}
		return nil
	})
}

// errNone stands for no error where a message wraps one.
var errNone = errors.New("no error")

func orNone(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

// await waits until check returns nil; its last error is part of the failure.
func (s *stage) await(ctx context.Context, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	last := errors.New("not looked at")
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting %s for %s: %w", patience, what, last)
	}
	return nil
}

// pods are a job's pods that are not terminal; of all jobs if name is empty.
func (s *stage) pods(ctx context.Context, name string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := s.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	var out []corev1.Pod
	for _, p := range list.Items {
		if (name == "" || jobOf(&p) == name) && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			out = append(out, p)
		}
	}
	return out, nil
}

// running is the number of a job's pods that run.
func (s *stage) running(ctx context.Context, name string) (int, error) {
	pods, err := s.pods(ctx, name)
	n := 0
	for i := range pods {
		if pods[i].Status.Phase == corev1.PodRunning {
			n++
		}
	}
	return n, err
}

// picture is who holds which GPU now.
func (s *stage) picture(ctx context.Context) (picture, error) {
	var nodes corev1.NodeList
	if err := s.client.List(ctx, &nodes); err != nil {
		return picture{}, fmt.Errorf("listing nodes: %w", err)
	}
	pods, err := s.pods(ctx, "")
	if err != nil {
		return picture{}, err
	}
	return pictureOf(nodes.Items, pods, s.ranks)
}

func (s *stage) draw(ctx context.Context) (picture, error) {
	p, err := s.picture(ctx)
	if err == nil {
		p.draw(s.out, s.color)
	}
	return p, err
}

// complete says whether a TrainJob has succeeded.
func (s *stage) complete(ctx context.Context, name string) (bool, error) {
	u := training{name: name}.object()
	if err := s.client.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
		return false, fmt.Errorf("reading TrainJob %s: %w", name, err)
	}
	conditions, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
	if err != nil {
		return false, err
	}
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Complete" && m["status"] == "True" {
			return true, nil
		}
	}
	return false, nil
}

// suspended says whether a TrainJob is suspended.
func (s *stage) suspended(ctx context.Context, name string) (bool, error) {
	u := training{name: name}.object()
	if err := s.client.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
		return false, fmt.Errorf("reading TrainJob %s: %w", name, err)
	}
	suspended, _, err := unstructured.NestedBool(u.Object, "spec", "suspend")
	return suspended, err
}

// why is what the Workload of a job says about its waiting.
func (s *stage) why(ctx context.Context, name string) (string, error) {
	var list kueue.WorkloadList
	if err := s.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return "", fmt.Errorf("listing Workloads: %w", err)
	}
	for i := range list.Items {
		owner := metav1.GetControllerOf(&list.Items[i])
		if owner == nil || owner.Name != name {
			continue
		}
		c := apimeta.FindStatusCondition(list.Items[i].Status.Conditions, kueue.WorkloadQuotaReserved)
		if c == nil || c.Status == metav1.ConditionTrue {
			return "", fmt.Errorf("the Workload of %s does not say that it waits", name)
		}
		return c.Message, nil
	}
	return "", fmt.Errorf("%s has no Workload", name)
}

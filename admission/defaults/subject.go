package defaults

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/workload"
)

const (
	podKind      = "Pod"
	trainerGroup = "trainer.kubeflow.org"
)

// subject is what RuntimeDefaults can select the pods of a JobSet or a pod by. A
// TrainJob that controls the JobSet is read if any of them selects by queue or
// runtime.
func (c *Catalog) subject(ctx context.Context, namespace, kind string, object *unstructured.Unstructured, all []*v1alpha1.RuntimeDefaults) (Subject, error) {
	subject := Subject{Kind: kind, Queue: object.GetLabels()[workload.QueueLabel]}
	labels, err := c.namespace(ctx, namespace)
	if err != nil {
		return Subject{}, err
	}
	subject.Namespace = labels
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return subject, nil
	}
	group, err := schema.ParseGroupVersion(owner.APIVersion)
	ofTrainJob := err == nil && group.Group == trainerGroup && owner.Kind == "TrainJob"
	if kind == podKind || ofTrainJob {
		subject.Kind = owner.Kind
	}
	if !ofTrainJob || !needsOwner(all) {
		return subject, nil
	}
	job, err := c.dynamic.Resource(group.WithResource("trainjobs")).Namespace(namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err):
		return subject, nil
	case err != nil:
		return Subject{}, fmt.Errorf("reading TrainJob %s/%s: %w", namespace, owner.Name, err)
	case job.GetUID() != owner.UID:
		return subject, nil
	}
	if subject.Queue == "" {
		subject.Queue = job.GetLabels()[workload.QueueLabel]
	}
	subject.Runtime, err = runtimeOf(job)
	return subject, err
}

// runtimeOf is the runtime to which a TrainJob refers.
func runtimeOf(job *unstructured.Unstructured) (*v1alpha1.RuntimeReference, error) {
	name, _, errName := unstructured.NestedString(job.Object, "spec", "runtimeRef", "name")
	kind, _, errKind := unstructured.NestedString(job.Object, "spec", "runtimeRef", "kind")
	if err := errors.Join(errName, errKind); err != nil {
		return nil, fmt.Errorf("reading the runtime of TrainJob %s/%s: %w", job.GetNamespace(), job.GetName(), err)
	}
	if kind == "" {
		kind = "ClusterTrainingRuntime"
	}
	return &v1alpha1.RuntimeReference{Kind: kind, Name: name}, nil
}

// needsOwner says that what some of the RuntimeDefaults select depends on the
// TrainJob of a JobSet.
func needsOwner(all []*v1alpha1.RuntimeDefaults) bool {
	return slices.ContainsFunc(all, func(d *v1alpha1.RuntimeDefaults) bool {
		return len(d.Spec.Match.Queues)+len(d.Spec.Match.Runtimes) > 0
	})
}

package bench

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const flavor = "any"

// queueName names a ClusterQueue, its namespace and the LocalQueue in it.
func queueName(cohort, queue int) string { return fmt.Sprintf("cohort-%d-queue-%d", cohort, queue) }

// queues are the names of all ClusterQueues, each with its cohort.
func (s shape) queueNames() map[string]string {
	out := map[string]string{}
	for i := range s.cohorts {
		for k := range s.queues {
			out[queueName(i, k)] = fmt.Sprintf("cohort-%d", i)
		}
	}
	return out
}

// setUp creates everything but the jobs.
func (s shape) setUp(ctx context.Context, c client.Client) error {
	shared := []client.Object{&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: flavor}}}
	for _, class := range s.classes {
		shared = append(shared, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: class.name}, Value: class.priority})
	}
	if err := create(ctx, c, shared...); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for name, cohort := range s.queueNames() {
		group.Go(func() error {
			return create(ctx, c,
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
				// Its controller does not run. Pods are not even made as a dry run without.
				&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}},
				s.clusterQueue(name, cohort),
				&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)}},
			)
		})
	}
	return group.Wait()
}

func create(ctx context.Context, c client.Client, objects ...client.Object) error {
	for _, o := range objects {
		if err := c.Create(ctx, o); err != nil {
			return fmt.Errorf("creating %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

func (s shape) clusterQueue(name, cohort string) *kueue.ClusterQueue {
	return &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: kueue.ClusterQueueSpec{
			CohortName:        kueue.CohortReference(cohort),
			NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
				Flavors: []kueue.FlavorQuotas{{Name: flavor, Resources: []kueue.ResourceQuota{{
					Name:           corev1.ResourceCPU,
					NominalQuota:   *resource.NewQuantity(s.nominal, resource.DecimalSI),
					BorrowingLimit: resource.NewQuantity(s.borrowing, resource.DecimalSI),
				}}}},
			}},
			Preemption: &kueue.ClusterQueuePreemption{
				ReclaimWithinCohort: kueue.PreemptionPolicyAny,
				WithinClusterQueue:  kueue.PreemptionPolicyLowerPriority,
			},
		},
	}
}

// job is the i-th job of a class for a queue, suspended as its users submit it.
func (c class) job(queue string, i int) *batchv1.Job {
	cores := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(c.cores, resource.DecimalSI)}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: queue, Name: fmt.Sprintf("%s-%d", c.name, i),
			Labels: map[string]string{"kueue.x-k8s.io/queue-name": queue},
		},
		Spec: batchv1.JobSpec{
			Suspend: new(true),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, PriorityClassName: c.name,
				Containers: []corev1.Container{{Name: "work", Image: "example.com/work", Resources: corev1.ResourceRequirements{Requests: cores}}},
			}},
		},
	}
}

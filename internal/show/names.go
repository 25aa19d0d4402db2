package show

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

// QueueNames are the names of ClusterQueues, Cohorts and those that name them.
func (c *Cluster) QueueNames(ctx context.Context) ([]string, error) {
	queues, err := c.Queues(ctx, QueueOptions{})
	return namesOf(queues, func(q Queue) string { return q.Name }), err
}

// JobNames are the names of a namespace's jobs that have not ended.
func (c *Cluster) JobNames(ctx context.Context, namespace string) ([]string, error) {
	var names []string
	err := c.workloads(ctx, func(wl *kueue.Workload) {
		if j := jobOf(wl); j.Phase != finished {
			names = append(names, j.Name)
		}
	}, client.InNamespace(namespace))
	return names, err
}

// GPUNodeNames are the nodes of which an agent has written.
func (c *Cluster) GPUNodeNames(ctx context.Context) ([]string, error) {
	var names []string
	err := c.gpuNodes(ctx, func(n *v1alpha1.GPUNode) { names = append(names, n.Name) })
	return names, err
}

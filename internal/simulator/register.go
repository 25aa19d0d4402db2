package simulator

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/api/gpu"
)

const (
	// leaseSeconds and leasePeriod are the kubelet's defaults.
	leaseSeconds = 40
	leasePeriod  = 10 * time.Second
	// parallelWrites bounds the requests that one task has under way.
	parallelWrites = 16
)

// registerNodes creates the nodes that are not there yet, with what is published of
// their GPUs. One that exists is left as it is: somebody may have changed it on
// purpose.
func (s *simulator) registerNodes(ctx context.Context) error {
	if s.options.Devices {
		_, err := s.client.ResourceV1().DeviceClasses().Create(ctx, newDeviceClass(), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating DeviceClass %s: %w", gpu.Driver, err)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelWrites)
	for i := range s.options.Nodes {
		group.Go(func() error {
			node, err := s.client.CoreV1().Nodes().Create(ctx, newNode(s.options, i, s.clock.Now()), metav1.CreateOptions{})
			switch {
			case apierrors.IsAlreadyExists(err):
				return nil
			case err != nil:
				return fmt.Errorf("creating node %s: %w", NodeName(i), err)
			case s.options.Devices:
				return s.publishDevices(ctx, node)
			}
			return nil
		})
	}
	return group.Wait()
}

// renewLeases renews the lease of every simulated node until ctx ends. A lease
// that cannot be renewed is tried again at the next turn, as a kubelet's is.
func (s *simulator) renewLeases(ctx context.Context) {
	utilwait.UntilWithContext(ctx, func(ctx context.Context) {
		nodes, err := s.nodes.List(labels.Everything())
		if err != nil {
			klog.FromContext(ctx).Error(err, "Listing nodes to renew their leases")
			return
		}
		var group errgroup.Group
		group.SetLimit(parallelWrites)
		for _, node := range nodes {
			if !simulated(node) {
				continue
			}
			group.Go(func() error {
				if err := s.renewLease(ctx, node); err != nil && ctx.Err() == nil {
					klog.FromContext(ctx).Error(err, "Renewing a lease", "node", klog.KObj(node))
				}
				return nil
			})
		}
		_ = group.Wait()
	}, leasePeriod)
}

func (s *simulator) renewLease(ctx context.Context, node *corev1.Node) error {
	leases := s.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NewMicroTime(s.clock.Now())
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": now}})
	if err != nil {
		return fmt.Errorf("encoding a lease: %w", err)
	}
	_, err = leases.Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
			}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node.Name, LeaseDurationSeconds: ptr.To[int32](leaseSeconds), RenewTime: &now},
	}, metav1.CreateOptions{})
	return err
}

// simulated says whether the simulator stands in for a node's kubelet.
func simulated(node *corev1.Node) bool { return node.Labels[NodeLabel] == "true" }

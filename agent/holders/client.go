package holders

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Socket is where the kubelet serves its lists, unless its root directory is another.
const Socket = "/var/lib/kubelet/pod-resources/kubelet.sock"

const (
	// answerWithin is how long the kubelet may take.
	answerWithin = 10 * time.Second
	// maxAnswer is the largest answer that is read, in bytes.
	maxAnswer = 16 << 20
)

// Client asks the kubelet.
type Client struct {
	// Path of its socket. The socket is made anew when the kubelet starts, so each
	// call connects anew.
	Path string
}

// List is what the pods of this node hold now. It returns by 10 s, or when the context
// ends. With an error and allocations, some of the list could not be read; without
// allocations, the kubelet has not answered, and nothing is known.
func (c Client) List(ctx context.Context) (allocations []Allocation, answered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	connection, err := grpc.NewClient("unix:"+c.Path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, false, fmt.Errorf("connecting to the kubelet at %s: %w", c.Path, err)
	}
	// Closing waits some seconds for a socket that does not read what it is told.
	defer func() { go func() { _ = connection.Close() }() }()
	kubelet := podresources.NewPodResourcesListerClient(connection)
	list, err := kubelet.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, false, fmt.Errorf("listing what pods hold at %s: %w", c.Path, err)
	}
	// Kubelets that do not serve it share nothing out either.
	allocatable, err := kubelet.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil && status.Code(err) != codes.Unimplemented {
		return nil, false, fmt.Errorf("listing what can be handed out at %s: %w", c.Path, err)
	}
	allocations, err = Allocations(list.GetPodResources(), Replicas(allocatable.GetDevices()))
	return allocations, true, err
}

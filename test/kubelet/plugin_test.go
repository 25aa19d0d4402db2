package kubelet

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/muster-gpu/muster/internal/simulator"
)

// plugin advertises GPUs as NVIDIA's device plugin does, by their UUIDs, and hands them
// out in a container's environment.
type plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	// folder has the kubelet's socket, and gets the plugin's.
	folder string
	uuids  []string
	server *grpc.Server
}

// start serves, and registers with the kubelet. A plugin has to do that again whenever
// the kubelet was started anew, which removes the plugins' sockets.
func (p *plugin) start(t *testing.T) {
	t.Helper()
	const socket = "gpu.sock"
	listener, err := net.Listen("unix", filepath.Join(p.folder, socket))
	if err != nil {
		t.Fatal(err)
	}
	p.server = grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(p.server, p)
	go func() { _ = p.server.Serve(listener) }()
	kubelet, err := grpc.NewClient("unix:"+filepath.Join(p.folder, filepath.Base(pluginapi.KubeletSocket)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer kubelet.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err = pluginapi.NewRegistrationClient(kubelet).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: socket, ResourceName: string(simulator.GPUResource),
	}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatalf("registering the device plugin: %v", err)
	}
}

// stop ends the plugin, if it runs, and its socket.
func (p *plugin) stop() {
	if p.server != nil {
		p.server.Stop()
	}
}

func (p *plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	devices := make([]*pluginapi.Device, len(p.uuids))
	for i, uuid := range p.uuids {
		// Half of them are next to each of two NUMA nodes.
		node := &pluginapi.NUMANode{ID: int64(2 * i / len(p.uuids))}
		devices[i] = &pluginapi.Device{ID: uuid, Health: pluginapi.Healthy, Topology: &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{node}}}
	}
	if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for _, r := range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(r.DevicesIds, ",")},
		})
	}
	return response, nil
}

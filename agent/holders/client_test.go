package holders

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/muster-gpu/muster/agent/device"
)

// kubelet serves lists.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	list        func(context.Context) (*podresources.ListPodResourcesResponse, error)
	allocatable func(context.Context) (*podresources.AllocatableResourcesResponse, error)
}

func (k kubelet) List(ctx context.Context, _ *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return k.list(ctx)
}

func (k kubelet) GetAllocatableResources(ctx context.Context, request *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	if k.allocatable == nil {
		return k.UnimplementedPodResourcesListerServer.GetAllocatableResources(ctx, request)
	}
	return k.allocatable(ctx)
}

// holds has a pod that holds these devices.
func holds(ids ...string) func(context.Context) (*podresources.ListPodResourcesResponse, error) {
	return func(context.Context) (*podresources.ListPodResourcesResponse, error) {
		return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{pod("a", container("x", "nvidia.com/gpu", ids...))}}, nil
	}
}

// serve serves at the path until the test ends, or stop is called.
func serve(t *testing.T, path string, k kubelet) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, k)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return server.Stop
}

func TestClient(t *testing.T) {
	whole := []Allocation{{ID: byUUID("GPU-1"), Pod: Pod{"ml", "a"}, Containers: []string{"x"}, Share: device.Whole}}
	tests := map[string]struct {
		kubelet  kubelet
		want     []Allocation
		answered bool
		says     string
	}{
		"a kubelet that serves both lists": {
			kubelet: kubelet{list: holds("GPU-1::0"), allocatable: func(context.Context) (*podresources.AllocatableResourcesResponse, error) {
				return &podresources.AllocatableResourcesResponse{Devices: container("", "nvidia.com/gpu", "GPU-1::0", "GPU-1::1", "GPU-1::2").Devices}, nil
			}},
			want:     []Allocation{{ID: byUUID("GPU-1"), Pod: Pod{"ml", "a"}, Containers: []string{"x"}, Share: device.Share{Parts: 1, Of: 3}, Replicated: true}},
			answered: true,
		},
		"one that does not say what can be handed out": {kubelet: kubelet{list: holds("GPU-1")}, want: whole, answered: true},
		"an id that cannot be read":                    {kubelet: kubelet{list: holds("GPU-1", "?")}, want: whole, answered: true, says: `"?" has no form that is known`},
		"too many calls of others": {
			kubelet: kubelet{list: func(context.Context) (*podresources.ListPodResourcesResponse, error) {
				return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
			}},
			says: "rejected by rate limit",
		},
		"an answer that is too large": {
			kubelet: kubelet{list: holds(strings.Repeat("x", 17<<20))},
			says:    "larger than max",
		},
		"a kubelet that hangs": {
			kubelet: kubelet{list: func(ctx context.Context) (*podresources.ListPodResourcesResponse, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}},
			says: "DeadlineExceeded",
		},
		"a second list that hangs": {
			kubelet: kubelet{list: holds("GPU-1"), allocatable: func(ctx context.Context) (*podresources.AllocatableResourcesResponse, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}},
			says: "listing what can be handed out",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "k")
			serve(t, path, test.kubelet)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if strings.Contains(name, "hangs") {
				ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
			}
			defer cancel()
			got, answered, err := Client{Path: path}.List(ctx)
			if diff := cmp.Diff(test.want, got); diff != "" || answered != test.answered {
				t.Errorf("answered is %t, want %t; allocations (-want +got):\n%s", answered, test.answered, diff)
			}
			if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("error %v, want %q", err, test.says)
			}
		})
	}
}

func TestAKubeletThatIsNotThereAndOneThatRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k")
	client := Client{Path: path}
	if _, answered, err := client.List(t.Context()); answered || err == nil {
		t.Fatalf("without a socket: answered is %t, %v", answered, err)
	}
	for i := range 3 {
		stop := serve(t, path, kubelet{list: holds(fmt.Sprint("GPU-", i))})
		got, answered, err := client.List(t.Context())
		if err != nil || !answered || len(got) != 1 || got[0].ID != byUUID(fmt.Sprint("GPU-", i)) {
			t.Errorf("kubelet %d: %+v, %t, %v", i, got, answered, err)
		}
		stop()
		if _, answered, err := client.List(t.Context()); answered || err == nil {
			t.Errorf("after kubelet %d: answered is %t, %v", i, answered, err)
		}
	}
}

// Silence of a socket that nobody reads ends by the deadline too.
func TestASocketThatDoesNotSpeak(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, answered, err := (Client{Path: path}).List(ctx); answered || err == nil {
		t.Errorf("answered is %t, %v", answered, err)
	}
}

// A socket that answers anything but what it is asked, without end, is left at the deadline at
// the latest, and nothing of it is kept.
func TestASocketThatFloods(t *testing.T) {
	// Frames that only tell settings, of which HTTP/2 allows any number.
	settings := append([]byte{}, 0, 0, 0, 4, 0, 0, 0, 0, 0)
	for name, flood := range map[string][]byte{
		"zeros":           make([]byte, 64<<10),
		"text":            bytes.Repeat([]byte("GPU-0\n"), 10<<10),
		"HTTP/2 settings": bytes.Repeat(settings, 7<<10),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "k")
			listener, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				for {
					c, err := listener.Accept()
					if err != nil {
						return
					}
					go func() {
						defer c.Close()
						for {
							if _, err := c.Write(flood); err != nil {
								return
							}
						}
					}()
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if all, answered, err := (Client{Path: path}).List(ctx); answered || err == nil || len(all) > 0 {
				t.Errorf("answered is %t, %v, %v", answered, all, err)
			} else if len(err.Error()) > 1000 {
				t.Errorf("the error has %d characters", len(err.Error()))
			}
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			if m.HeapAlloc > 64<<20 {
				t.Errorf("%d MiB are kept", m.HeapAlloc>>20)
			}
		})
	}
}

func TestAMegabyteOfIDsIsRead(t *testing.T) {
	var ids []string
	for i := range 1 << 20 / 40 {
		ids = append(ids, fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i))
	}
	path := filepath.Join(t.TempDir(), "k")
	serve(t, path, kubelet{list: holds(ids...)})
	all, answered, err := (Client{Path: path}).List(t.Context())
	if !answered || len(all) != MaxAllocations || err == nil || !strings.Contains(err.Error(), errTooMany.Error()) || len(err.Error()) > 400 {
		t.Errorf("answered is %t, %d allocations, %v", answered, len(all), err)
	}
}

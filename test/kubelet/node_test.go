package kubelet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/internal/simulator"
	"github.com/muster-gpu/muster/internal/testsandbox"
)

// nodeName is that of the real node, beside the sandbox's simulated one.
const nodeName = "kubelet-0"

// patience bounds every wait of these tests.
const patience = 2 * time.Minute

// isolate has containerd, and the kubelet after it, live in a mount namespace and a
// network of their own, in which the folders that cannot be configured are the test's:
// /var/lib/kubelet, where device plugins register, and those of containerd's shims, of
// CNI and of logs. The kubelet writes settings of the kernel, into files that are
// nobody's. All mounts and the bridge end with the last process.
const isolate = `set -e
folder=$1; shift
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/log
mount -t tmpfs tmpfs /var/lib
mkdir /var/lib/kubelet
mount --bind "$folder/kubelet" /var/lib/kubelet
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	copy=/run/sysctl/$setting
	mkdir -p "${copy%/*}"
	cat "/proc/sys/$setting" >"$copy"
	mount --bind "$copy" "/proc/sys/$setting"
done
exec "$@"`

const containerdConfig = `version = 2
root = %[1]q
state = %[2]q
[grpc]
  address = %[3]q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[4]q
  restrict_oom_score_adj = true
  # Of a network of its own, in which nothing is on loopback.
  stream_server_address = "0.0.0.0"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = %[5]q
[plugins."io.containerd.internal.v1.opt"]
  path = %[6]q
`

const cniConfig = `{"cniVersion": "0.4.0", "name": "muster", "plugins": [{
  "type": "bridge", "bridge": "muster0", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]]}
}]}
`

// Nothing of the machine is to be evicted for, and its packet filter and cgroups of
// other pods are left alone.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://%s
podLogsDir: %s
volumePluginDir: %s
enableServer: false
healthzPort: 0
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%"}
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
resolvConf: ""
nodeStatusUpdateFrequency: 2s
`

// node is a real one: containerd and a kubelet of the sandbox's API server, with GPUs
// by a device plugin.
type node struct {
	cluster *testsandbox.Cluster
	// folder has everything of it but logs.
	folder              string
	containerd, kubelet *process
	// agent is the GPU agent, once it was started.
	agent   *process
	plugin  *plugin
	runtime criapi.RuntimeServiceClient
}

func (n *node) path(parts ...string) string {
	return filepath.Join(append([]string{n.folder}, parts...)...)
}

func (n *node) write(t *testing.T, content string, parts ...string) string {
	t.Helper()
	path := n.path(parts...)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startNode has a node join the sandbox that advertises these GPUs, until the test ends.
func startNode(t *testing.T, c *testsandbox.Cluster, uuids []string) *node {
	t.Helper()
	n := &node{cluster: c, folder: t.TempDir()}
	n.plugin = &plugin{folder: n.path("kubelet", "device-plugins"), uuids: uuids}
	n.write(t, cniConfig, "cni", "muster.conflist")
	if err := os.Mkdir(n.path("kubelet"), 0o700); err != nil {
		t.Fatal(err)
	}
	config := n.write(t, fmt.Sprintf(containerdConfig, n.path("root"), n.path("state"), n.runtimeSocket(), image, n.path("cni"), n.path("opt")), "containerd.toml")
	connection, err := grpc.NewClient("unix:"+n.runtimeSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	n.runtime = criapi.NewRuntimeServiceClient(connection)
	t.Cleanup(func() { n.stop(t) })
	n.containerd = n.run(t, "containerd", "unshare", "--mount", "--net", "sh", "-c", isolate, "isolate", n.folder, "containerd", "--config="+config)
	testsandbox.Eventually(t, patience, "containerd", func(ctx context.Context) error {
		if err := n.containerd.alive(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := n.runtime.Version(ctx, &criapi.VersionRequest{})
		return err
	})
	writeImage(t, n.path("image.tar"), n.mark())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	load := exec.CommandContext(ctx, "ctr", "--address="+n.runtimeSocket(), "--namespace=k8s.io", "images", "import", "--snapshotter=native", n.path("image.tar"))
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("importing the image: %v\n%s", err, out)
	}
	n.write(t, fmt.Sprintf(kubeletConfig, n.runtimeSocket(), n.path("logs"), n.path("volume-plugins")), "kubelet.yaml")
	n.startKubelet(t)
	n.advertises(t, len(uuids))
	return n
}

func (n *node) runtimeSocket() string { return n.path("containerd.sock") }

// podResources is where the kubelet says which pods hold which devices.
func (n *node) podResources() string { return n.path("kubelet", "pod-resources", "kubelet.sock") }

// startKubelet starts the kubelet, and the plugin once that takes registrations.
func (n *node) startKubelet(t *testing.T) {
	t.Helper()
	n.plugin.stop()
	// What a killed kubelet has left is not what is waited for.
	socket := n.path("kubelet", "device-plugins", "kubelet.sock")
	if err := os.RemoveAll(socket); err != nil {
		t.Fatal(err)
	}
	namespace := "--mount=/proc/" + strconv.Itoa(n.containerd.command.Process.Pid) + "/ns/mnt"
	n.kubelet = n.run(t, "kubelet", "nsenter", namespace, filepath.Join(testsandbox.BinDir(t), "kubelet"),
		"--config="+n.path("kubelet.yaml"), "--kubeconfig="+n.cluster.Kubeconfig(), "--cert-dir="+n.path("certificates"),
		"--hostname-override="+nodeName, "--v=2")
	testsandbox.Eventually(t, patience, "the kubelet's socket for device plugins", func(context.Context) error {
		if err := n.kubelet.alive(); err != nil {
			return err
		}
		_, err := os.Stat(socket)
		return err
	})
	n.plugin.start(t)
}

// advertises waits until the node is ready and has so many GPUs to give.
func (n *node) advertises(t *testing.T, gpus int) {
	t.Helper()
	testsandbox.Eventually(t, patience, "a node with GPUs", func(ctx context.Context) error {
		object := &corev1.Node{}
		if err := n.cluster.Client.Get(ctx, client.ObjectKey{Name: nodeName}, object); err != nil {
			return err
		}
		for _, c := range object.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return fmt.Errorf("the node is not ready: %s", c.Message)
			}
		}
		if got := object.Status.Allocatable[simulator.GPUResource]; got.Value() != int64(gpus) {
			return fmt.Errorf("%s GPUs, want %d", got.String(), gpus)
		}
		return nil
	})
}

// stop ends everything that runs on the node, whatever has come of it.
func (n *node) stop(t *testing.T) {
	t.Helper()
	n.kubelet.stop(t, syscall.SIGTERM)
	n.plugin.stop()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pods, err := n.runtime.ListPodSandbox(ctx, &criapi.ListPodSandboxRequest{})
	if err != nil {
		t.Errorf("listing the pods that are left: %v", err)
	}
	for _, pod := range pods.GetItems() {
		if _, err := n.runtime.StopPodSandbox(ctx, &criapi.StopPodSandboxRequest{PodSandboxId: pod.Id}); err != nil {
			t.Errorf("stopping a pod: %v", err)
		}
		if _, err := n.runtime.RemovePodSandbox(ctx, &criapi.RemovePodSandboxRequest{PodSandboxId: pod.Id}); err != nil {
			t.Errorf("removing a pod: %v", err)
		}
	}
	n.containerd.stop(t, syscall.SIGTERM)
	// containerd keeps the cgroup of its pods. One that has pods cannot be removed.
	for _, pattern := range []string{"/sys/fs/cgroup/k8s.io", "/sys/fs/cgroup/*/k8s.io"} {
		left, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, cgroup := range left {
			_ = os.Remove(cgroup)
		}
	}
}

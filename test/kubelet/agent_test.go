package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/agent/device"
	"github.com/muster-gpu/muster/agent/reader/scripted"
	musterv1alpha1 "github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/internal/testsandbox"
)

const agentConfig = `apiVersion: config.muster.dev/v1alpha1
kind: GPUAgentConfiguration
clientConnection: {kubeconfig: %q}
nodeName: %s
kubelet: {socket: %q}
reader: {kind: scripted, script: %q}
health: {bindAddress: %s}
metrics: {bindAddress: "0"}
tick: 1s
`

// startAgent runs the GPU agent on the node until the test ends. Only its GPUs are not
// real, which have the UUIDs that the plugin advertises.
func (n *node) startAgent(t *testing.T) {
	t.Helper()
	var script scripted.Script
	for i, uuid := range n.plugin.uuids {
		d := device.Device{UUID: uuid, Minor: i, GPUInstance: -1, ComputeInstance: -1, Product: "NVIDIA H200", Share: device.Whole}
		script.Devices = append(script.Devices, scripted.ScriptedDevice{Device: d, Activity: "busy"})
	}
	content, err := json.Marshal(script)
	if err != nil {
		t.Fatal(err)
	}
	// A port that is free now.
	health, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	health.Close()
	kubeconfig, played := n.identifyAgent(t), n.write(t, string(content), "script.json")
	config := n.write(t, fmt.Sprintf(agentConfig, kubeconfig, nodeName, n.podResources(), played, health.Addr()), "gpu-agent.yaml")
	n.agent = n.run(t, "gpu-agent", filepath.Join(testsandbox.BinDir(t), "gpu-agent"), "--config="+config)
	t.Cleanup(func() { n.agent.stop(t, syscall.SIGTERM) })
}

// identifyAgent writes a kubeconfig with a token as the pod of an agent on the node has
// one, and returns its path.
func (n *node) identifyAgent(t *testing.T) string {
	t.Helper()
	object := &corev1.Node{}
	if err := n.cluster.Client.Get(t.Context(), client.ObjectKey{Name: nodeName}, object); err != nil {
		t.Fatal(err)
	}
	accounts, err := kubernetes.NewForConfig(n.cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := accounts.CoreV1().ServiceAccounts("muster-system").CreateToken(t.Context(), "muster-gpu-agent", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: ptr.To(int64(3600)),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: object.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["sandbox"] = &clientcmdapi.Cluster{Server: n.cluster.Config.Host, CertificateAuthorityData: n.cluster.Config.CAData}
	config.AuthInfos["agent"] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	config.Contexts["sandbox"] = &clientcmdapi.Context{Cluster: "sandbox", AuthInfo: "agent"}
	config.CurrentContext = "sandbox"
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return n.write(t, string(content), "gpu-agent.kubeconfig")
}

// holders are those that a GPUNode names, by the UUID of the GPU.
func holders(node *musterv1alpha1.GPUNode) map[string]string {
	all := map[string]string{}
	for _, d := range node.Status.Devices {
		for _, h := range d.Holders {
			all[d.UUID] += holder(h.Pod, h.PodUID, h.Containers...)
		}
	}
	return all
}

// says waits until the node's GPUNode names these holders and no others, and says that
// it knows them, or that it does not while the kubelet is away.
func (n *node) says(t *testing.T, want map[string]string, known metav1.ConditionStatus) {
	t.Helper()
	testsandbox.Eventually(t, patience, "the GPUNode", func(ctx context.Context) error {
		if err := n.agent.alive(); err != nil {
			return err
		}
		got := &musterv1alpha1.GPUNode{}
		if err := n.cluster.Client.Get(ctx, client.ObjectKey{Name: nodeName}, got); err != nil {
			return err
		}
		c := meta.FindStatusCondition(got.Status.Conditions, musterv1alpha1.GPUNodeHoldersKnown)
		if c == nil || c.Status != known {
			return fmt.Errorf("condition %s is %+v, want %s", musterv1alpha1.GPUNodeHoldersKnown, c, known)
		}
		if diff := cmp.Diff(want, holders(got)); diff != "" {
			return errors.New("holders (-want +got):\n" + diff)
		}
		if got.Status.Summary.Devices != int32(len(n.plugin.uuids)) || got.Status.Summary.Held != int32(len(want)) {
			return fmt.Errorf("summary %+v", got.Status.Summary)
		}
		return nil
	})
}

// keeps does something, and fails the test if any GPUNode of the node that is written
// meanwhile does not name all of these holders.
func (n *node) keeps(t *testing.T, want map[string]string, do func()) {
	t.Helper()
	watch, err := n.cluster.Watching(t).Watch(t.Context(), &musterv1alpha1.GPUNodeList{})
	if err != nil {
		t.Fatal(err)
	}
	done, checked := make(chan struct{}), make(chan struct{})
	defer func() {
		close(done)
		<-checked
		watch.Stop()
	}()
	go func() {
		defer close(checked)
		for {
			select {
			case <-done:
				return
			case event := <-watch.ResultChan():
				node, ok := event.Object.(*musterv1alpha1.GPUNode)
				if !ok {
					t.Errorf("watching GPUNodes: %+v", event.Object)
					return
				}
				if node.Name != nodeName {
					continue
				}
				got := holders(node)
				maps.DeleteFunc(got, func(uuid, _ string) bool { return want[uuid] == "" })
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("holders meanwhile (-want +got):\n%s", diff)
				}
			}
		}
	}()
	do()
}

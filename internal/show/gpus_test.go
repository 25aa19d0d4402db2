package show

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

func gpuNode(name string, heartbeat time.Duration, devices ...v1alpha1.GPUDevice) *v1alpha1.GPUNode {
	for i := range devices {
		devices[i].Minor, devices[i].UUID, devices[i].Product = int32(i), "GPU-"+name+string(rune('a'+i))+"-0000-0000-000000000000", "NVIDIA H200"
	}
	return &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.GPUNodeStatus{LastHeartbeat: ago(heartbeat), Devices: devices}}
}

func heldBy(pod, share string, verdict v1alpha1.GPUVerdict, since time.Duration) v1alpha1.GPUHolder {
	return v1alpha1.GPUHolder{Namespace: "nlp", Pod: pod, Share: share, Queue: "research", Verdict: verdict, Since: ago(since)}
}

func device(holders ...v1alpha1.GPUHolder) v1alpha1.GPUDevice {
	return v1alpha1.GPUDevice{Holders: holders}
}

func someGPUs() []client.Object {
	sick := device()
	sick.Unhealthy = []string{"XID79"}
	return []client.Object{
		gpuNode("n1", time.Minute, device(heldBy("apple-0", "", v1alpha1.GPUActive, time.Hour)), device(heldBy("apple-1", "", v1alpha1.GPUIdle, 2*time.Hour)), device(), sick),
		gpuNode("n2", time.Minute, device(heldBy("book-a", "1/4", v1alpha1.GPUStalled, 4*time.Hour), heldBy("book-b", "1/4", v1alpha1.GPUActive, time.Hour))),
		// Nobody knows what goes on there now.
		gpuNode("n3", 10*time.Minute, device(heldBy("apple-2", "", v1alpha1.GPUIdle, 8*time.Hour)), device()),
	}
}

func TestGPUsAreShownWithTheirHoldersAndWhatThoseCost(t *testing.T) {
	c, asked := clusterOf(t, someGPUs()...)
	compare(t, `
NODE   GPU   UUID      PRODUCT       HEALTH    HOLDER        QUEUE      VERDICT   FOR
n1     0     GPU-n1a   NVIDIA H200   Healthy   nlp/apple-0   research   active    60m
n1     1     GPU-n1b   NVIDIA H200   Healthy   nlp/apple-1   research   idle      120m
n1     2     GPU-n1c   NVIDIA H200   Healthy   <none>        <none>
n1     3     GPU-n1d   NVIDIA H200   XID79     <none>        <none>
n2     0     GPU-n2a   NVIDIA H200   Healthy   nlp/book-a    research   stalled   4h
n2     0     GPU-n2a   NVIDIA H200   Healthy   nlp/book-b    research   active    60m
n3     0     GPU-n3a   NVIDIA H200   Unknown   nlp/apple-2   research   unknown   8h
n3     1     GPU-n3b   NVIDIA H200   Unknown   <none>        <none>

QUEUE      NAMESPACE   ALLOCATED   ACTIVE   IDLE   STALLED   UNKNOWN   IDLE-GPU-HOURS   IDLE-COST
research   nlp         3.5         1.25     1      0.25      1         3.0              6.00
7 GPUs, 1 free, 1 unhealthy.
`, shown(t, "", func(o Output) error { return c.ShowGPUs(t.Context(), o, GPUOptions{Price: 2}) }))
	if len(*asked) != 1 {
		t.Error(*asked)
	}
	idle := shown(t, "name", func(o Output) error { return c.ShowGPUs(t.Context(), o, GPUOptions{Idle: true}) })
	compare(t, "GPU-n1b-0000-0000-000000000000\nGPU-n2a-0000-0000-000000000000\n", idle)
}

func TestWithoutAgentsThatIsSaid(t *testing.T) {
	c, _ := clusterOf(t)
	if err := c.ShowGPUs(t.Context(), Output{}, GPUOptions{}); err == nil || !strings.Contains(err.Error(), "no GPU agent") {
		t.Error(err)
	}
}

func TestAGPUThatIsCutIsNoGPUBesideItsInstances(t *testing.T) {
	n := gpuNode("n1", time.Minute, device(), device())
	n.Status.Devices[0].Minor, n.Status.Devices[1].Minor, n.Status.Devices[1].Profile = 0, 0, "1g.18gb"
	var r GPUReport
	if r.add(n, GPUOptions{}, noon); r.Devices != 1 || r.Free != 1 || len(r.GPUs) != 1 || r.GPUs[0].Profile == "" {
		t.Errorf("%+v", r)
	}
}

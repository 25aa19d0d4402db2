package publish

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/agent/device"
	"github.com/muster-gpu/muster/agent/reader"
	"github.com/muster-gpu/muster/agent/verdict"
	"github.com/muster-gpu/muster/api/v1alpha1"
)

func held(by string, v verdict.Verdict) Holder {
	return Holder{Namespace: "ml", Pod: by, Share: device.Whole, Standing: verdict.Standing{Verdict: v, Since: midnight}}
}

func TestStatus(t *testing.T) {
	gpu := func(minor int, peers ...string) reader.Reading {
		return reader.Reading{Device: device.Device{UUID: fmt.Sprint("GPU-", minor), Minor: minor, NUMANode: -1, Peers: peers}}
	}
	slice := func(name string) reader.Reading {
		return reader.Reading{Device: device.Device{UUID: name, Parent: "GPU-1", Minor: 1, NUMANode: 0, Profile: "1g.10gb"}}
	}
	lost := gpu(2)
	lost.Health = device.Health{Lost: true, Reasons: []string{strings.Repeat("x", 300), "b", "c", "d", "e"}}
	shares := Holder{Namespace: "ml", Pod: "b", Share: device.Share{Parts: 1, Of: 4}, Standing: verdict.Standing{Verdict: verdict.Idle, Since: midnight, Reclaimable: true}}
	devices := []Device{
		{Reading: gpu(0, "GPU-2", "GPU-9"), Holders: []Holder{held("c", verdict.Active), shares}},
		{Reading: gpu(1)},
		{Reading: slice("MIG-b"), Holders: []Holder{held("d", verdict.Idle)}},
		{Reading: slice("MIG-a")},
		{Reading: lost, Holders: []Holder{held("e", verdict.Unknown)}},
	}
	since := metav1.NewTime(midnight).Rfc3339Copy()
	zero := int32(0)
	want := v1alpha1.GPUNodeStatus{
		Summary: v1alpha1.GPUSummary{Devices: 4, Held: 3, Idle: 1, Unhealthy: 1},
		Devices: []v1alpha1.GPUDevice{
			{UUID: "GPU-0", NVLinkPeers: []int32{2}, Holders: []v1alpha1.GPUHolder{
				{Namespace: "ml", Pod: "b", Share: "1/4", Verdict: "idle", Since: since, Reclaimable: true},
				{Namespace: "ml", Pod: "c", Verdict: "active", Since: since},
			}},
			{UUID: "GPU-1", Minor: 1},
			{UUID: "MIG-a", Minor: 1, Profile: "1g.10gb", NUMANode: &zero},
			{UUID: "MIG-b", Minor: 1, Profile: "1g.10gb", NUMANode: &zero, Holders: []v1alpha1.GPUHolder{{Namespace: "ml", Pod: "d", Verdict: "idle", Since: since}}},
			{UUID: "GPU-2", Minor: 2, Unhealthy: []string{"the driver has lost the device", strings.Repeat("x", 128), "b", "c"}, Holders: []v1alpha1.GPUHolder{{Namespace: "ml", Pod: "e", Verdict: "unknown", Since: since}}},
		},
	}
	for range 20 {
		rand.Shuffle(len(devices), func(i, j int) { devices[i], devices[j] = devices[j], devices[i] })
		if diff := cmp.Diff(want, Status(devices)); diff != "" {
			t.Fatalf("status (-want +got):\n%s", diff)
		}
	}
}

func TestANodeOfEightGPUsIsSmall(t *testing.T) {
	var devices []Device
	for i := range 8 {
		r := reader.Reading{Device: device.Device{
			UUID: "GPU-5c1c2b0e-3a0a-4d63-9a37-0b2a54bd1f0" + fmt.Sprint(i), Minor: i, Product: "NVIDIA H200 141GB HBM3e SXM5", MemoryBytes: 141 << 30,
			NUMANode: i / 4, PCIRoot: "pci0000:17", Island: "5c1c2b0e-3a0a-4d63-9a37-0b2a54bd1f0e.32766",
		}}
		for j := range 8 {
			if j != i {
				r.Device.Peers = append(r.Device.Peers, "GPU-5c1c2b0e-3a0a-4d63-9a37-0b2a54bd1f0"+fmt.Sprint(j))
			}
		}
		h := held("large-language-model-pretraining-node-0-"+fmt.Sprint(i)+"-x7k2p", verdict.Stalled)
		h.Namespace, h.UID, h.Containers = "research-foundation-models", "5c1c2b0e-3a0a-4d63-9a37-0b2a54bd1f0e", []string{"node"}
		h.Workload, h.Queue, h.Standing.Reclaimable = "TrainJob/large-language-model-pretraining", "research-foundation", true
		devices = append(devices, Device{Reading: r, Holders: []Holder{h}})
	}
	conditions := []metav1.Condition{
		{Type: v1alpha1.GPUNodeDriverReady, Status: "False", Reason: "NoAnswer", Message: strings.Repeat("x", 200), LastTransitionTime: metav1.NewTime(midnight)},
		{Type: v1alpha1.GPUNodeHoldersKnown, Status: "False", Reason: "NoAnswer", Message: strings.Repeat("x", 200), LastTransitionTime: metav1.NewTime(midnight)},
	}
	text, err := json.Marshal(v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "gpu-node-0001.region.example"}, Status: Status(devices, conditions...)})
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 8<<10 {
		t.Errorf("it has %d bytes:\n%s", len(text), text)
	}
	t.Logf("%d bytes", len(text))
}

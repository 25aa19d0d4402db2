package integration

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/agent/publish"
	musterv1alpha1 "github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/internal/testcluster"
)

func TestAGPUNodeIsMadeAndKeptAsItsAgentSays(t *testing.T) {
	c := testcluster.Start(t)
	objects, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	writer := publish.Applier{Client: objects}
	at := func(minutes int) metav1.Time {
		return metav1.NewTime(time.Date(2026, 12, 1, 0, minutes, 0, 0, time.UTC)).Rfc3339Copy()
	}
	status := musterv1alpha1.GPUNodeStatus{LastHeartbeat: at(0), Summary: musterv1alpha1.GPUSummary{Devices: 8, Held: 8}}
	for i := range 8 {
		status.Devices = append(status.Devices, musterv1alpha1.GPUDevice{
			UUID: fmt.Sprint("GPU-5c1c2b0e-3a0a-4d63-9a37-0b2a54bd1f0", i), Minor: int32(i), Product: "NVIDIA H200", MemoryMiB: 144384, NVLinkPeers: []int32{0, 1, 2, 3, 4, 5, 6, 7},
			Holders: []musterv1alpha1.GPUHolder{{
				Namespace: "research", Pod: fmt.Sprint("pretraining-node-0-", i), PodUID: "5c1c2b0e-3a0a-4d63-9a37-0b2a54bd1f0e", Containers: []string{"node"},
				Workload: "TrainJob/pretraining", Queue: "research", Verdict: musterv1alpha1.GPUActive, Since: at(0),
			}},
		})
	}
	later := *status.DeepCopy()
	later.LastHeartbeat = at(1)
	later.Devices = later.Devices[:7]
	later.Devices[0].Holders = nil
	later.Devices[1].Holders[0].Verdict = musterv1alpha1.GPUIdle
	for _, want := range []musterv1alpha1.GPUNodeStatus{status, later} {
		if err := writer.Write(t.Context(), "node-1", want); err != nil {
			t.Fatal(err)
		}
		var got musterv1alpha1.GPUNode
		if err := c.Client.Get(t.Context(), client.ObjectKey{Name: "node-1"}, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Status); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 8<<10 {
			t.Errorf("the object has %d bytes", len(text))
		}
	}
	wrong := later
	wrong.Devices = []musterv1alpha1.GPUDevice{{UUID: "GPU-0", Holders: []musterv1alpha1.GPUHolder{{Namespace: "a", Pod: "b", Verdict: "asleep"}}}}
	if err := writer.Write(t.Context(), "node-1", wrong); err == nil {
		t.Error("a verdict that does not exist is taken")
	}
}

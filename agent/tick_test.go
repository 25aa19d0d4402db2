package agent

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/muster-gpu/muster/agent/device"
	"github.com/muster-gpu/muster/agent/verdict"
	"github.com/muster-gpu/muster/api/v1alpha1"
)

// nowhere takes what is written.
type nowhere struct{}

func (nowhere) Write(context.Context, string, v1alpha1.GPUNodeStatus) error { return nil }

// What a tick of a node with 8 GPUs and 16 pods costs beside the driver and the kubelet;
// 0.5 % of a core are 75 ms of each 15 s. It is measured after a day.
func BenchmarkTick(b *testing.B) {
	n := newNode(b, gpus(8)...)
	for i := range 8 {
		n.does(fmt.Sprint("GPU-", i), "busy")
		second := n.list[i]
		second.Pod.Name += "-b"
		owner := n.owners[n.list[i].Pod]
		owner.UID += "-b"
		n.owners[second.Pod] = owner
		n.list[i].Replicated, second.Replicated = true, true
		n.list[i].Share, second.Share = device.Share{Parts: 1, Of: 2}, device.Share{Parts: 1, Of: 2}
		n.list = append(n.list, second)
	}
	n.agent = New("node-1", n.sources(), verdict.DefaultSettings(), nowhere{})
	at := time.Duration(0)
	tick := func() {
		at += 15 * time.Second
		if err := n.agent.Tick(b.Context(), verdict.Instant{Elapsed: at, Wall: n.began.Add(at)}); err != nil {
			b.Fatal(err)
		}
	}
	for range 24 * 240 {
		tick()
	}
	b.ReportAllocs()
	for b.Loop() {
		tick()
	}
}

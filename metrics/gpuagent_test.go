package metrics_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/muster-gpu/muster/metrics"
)

func TestNodeGPUs(t *testing.T) {
	busy := 0.5
	collector := metrics.NodeGPUs("node-1", func() ([]metrics.GPU, []metrics.GPUSeconds) {
		return []metrics.GPU{
				{
					Minor: 3, UUID: "GPU-3", Product: "NVIDIA H200", Healthy: true, Held: 1, Allocated: 0.25, Busy: &busy, XIDs: map[uint64]uint64{79: 2},
					Holders: []metrics.GPUHolder{{Namespace: "ml", Pod: "llm-0", Container: "node", Queue: "research", Workload: "TrainJob/llm", Verdict: "idle", Reclaimable: true}},
				},
				{Minor: 3, UUID: "MIG-1", Profile: "1g.18gb", Instance: "7"},
			}, []metrics.GPUSeconds{
				{Namespace: "ml", Queue: "research", Kind: "TrainJob", Allocated: 7200, Active: 1800, Idle: 5400},
			}
	})
	want := `# HELP muster_gpu_allocated_seconds_total GPU-seconds in which GPUs of the node were held, a part of a GPU by its share.
# TYPE muster_gpu_allocated_seconds_total counter
muster_gpu_allocated_seconds_total{Hostname="node-1",kind="TrainJob",namespace="ml",queue="research"} 7200
# HELP muster_gpu_idle_seconds_total GPU-seconds in which GPUs of the node were held and did nothing, a part of a GPU by its share.
# TYPE muster_gpu_idle_seconds_total counter
muster_gpu_idle_seconds_total{Hostname="node-1",kind="TrainJob",namespace="ml",queue="research"} 5400
# HELP muster_gpu_busy_ratio Part of the time in which any kernel ran, 0 to 1.
# TYPE muster_gpu_busy_ratio gauge
muster_gpu_busy_ratio{GPU_I_ID="",GPU_I_PROFILE="",Hostname="node-1",UUID="GPU-3",device="nvidia3",gpu="3",modelName="NVIDIA H200"} 0.5
# HELP muster_gpu_healthy Whether nothing is known to be wrong with the GPU: 1 or 0.
# TYPE muster_gpu_healthy gauge
muster_gpu_healthy{GPU_I_ID="",GPU_I_PROFILE="",Hostname="node-1",UUID="GPU-3",device="nvidia3",gpu="3",modelName="NVIDIA H200"} 1
muster_gpu_healthy{GPU_I_ID="7",GPU_I_PROFILE="1g.18gb",Hostname="node-1",UUID="MIG-1",device="nvidia3",gpu="3",modelName=""} 0
# HELP muster_gpu_holder_verdict 1 for what a pod does with a GPU that it holds: active, idle, stalled or unknown.
# TYPE muster_gpu_holder_verdict gauge
muster_gpu_holder_verdict{Hostname="node-1",UUID="GPU-3",container="node",gpu="3",namespace="ml",pod="llm-0",queue="research",verdict="idle",workload="TrainJob/llm"} 1
# HELP muster_gpu_xid_errors_total Errors that the driver has reported of the GPU since the agent began, by their number.
# TYPE muster_gpu_xid_errors_total counter
muster_gpu_xid_errors_total{GPU_I_ID="",GPU_I_PROFILE="",Hostname="node-1",UUID="GPU-3",device="nvidia3",gpu="3",modelName="NVIDIA H200",xid="79"} 2
`
	if err := testutil.CollectAndCompare(collector, strings.NewReader(want),
		"muster_gpu_allocated_seconds_total", "muster_gpu_idle_seconds_total", "muster_gpu_busy_ratio", "muster_gpu_healthy", "muster_gpu_holder_verdict", "muster_gpu_xid_errors_total"); err != nil {
		t.Error(err)
	}
}

#!/usr/bin/env bash
# What a GPU agent costs that looks at sixteen GPUs, each held by a pod, every 15 s:
# its share of a core, its memory, and its writes to the API server.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-300}
dir=$PWD/.sandbox/bench-gpu-agent
trap 'bin/sandbox down --dir "$dir"' EXIT
bin/sandbox up --dir "$dir" --with scheduler,gpu-agent --nodes 1 --gpus-per-node 16 >/dev/null
kubectl=$(command -v kubectl || echo bin/kubectl)
export KUBECONFIG=$dir/kubeconfig
for i in $(seq 16); do
	cat <<POD
---
apiVersion: v1
kind: Pod
metadata: {name: pod-$i}
spec:
  containers: [{name: train, image: "example.com/train:1", resources: {limits: {nvidia.com/gpu: 1}}}]
POD
done | "$kubectl" apply -f - >/dev/null
"$kubectl" wait --for=condition=Ready --timeout=120s pod --all >/dev/null

component=$(awk '/"name": "muster-gpu-agent-node-0"/,/"log"/' "$dir/state.json")
pid=$(sed -n 's/.*"pid": \([0-9]*\).*/\1/p' <<<"$component")
port=$(sed -n 's/.*"metrics": \([0-9]*\).*/\1/p' <<<"$component")
ticks() { awk '{print $14 + $15}' "/proc/$pid/stat"; }
writes() { curl -s "http://127.0.0.1:$port/metrics" | awk '/^muster_gpu_agent_writes_total/ {n += $2} END {print n + 0}'; }
rss() { awk '/^VmRSS/ {print $2}' "/proc/$pid/status"; }

# Whatever a start costs is over by then.
sleep 60
ticks_before=$(ticks) writes_before=$(writes) rss_before=$(rss)
sleep "$seconds"
awk -v ticks=$(($(ticks) - ticks_before)) -v hertz="$(getconf CLK_TCK)" -v seconds="$seconds" \
	-v writes=$(($(writes) - writes_before)) -v before="$rss_before" -v after="$(rss)" 'BEGIN {
	printf "CPU: %.3f %% of a core over %d s\n", 100 * ticks / hertz / seconds, seconds
	printf "memory: %.1f MiB, and %.1f MiB before\n", after / 1024, before / 1024
	printf "writes: %.2f a minute\n", 60 * writes / seconds
}'

package simulator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/muster-gpu/muster/agent/device"
	"github.com/muster-gpu/muster/agent/reader/scripted"
)

const (
	// scriptPeriod is how often it is looked what GPUs do.
	scriptPeriod = time.Second
	// gpuMemory is that of each GPU, whatever it is called.
	gpuMemory = 80 << 30
)

// writeScripts writes for each node that has an agent what its GPUs do, until ctx ends.
func (s *simulator) writeScripts(ctx context.Context) {
	written := map[string][]byte{}
	utilwait.UntilWithContext(ctx, func(ctx context.Context) {
		for i := range min(s.options.Agents, s.options.Nodes) {
			node := NodeName(i)
			content, err := s.script(node)
			if err == nil && !bytes.Equal(content, written[node]) {
				err = replaceFile(filepath.Join(s.options.AgentDir, node, GPUScript), content)
			}
			if err != nil {
				klog.FromContext(ctx).Error(err, "Writing what the GPUs of a node do", "node", node)
				continue
			}
			written[node] = content
		}
	}, scriptPeriod)
}

// script is what the GPUs of a node do: what the annotations of the pods say that hold
// them and run.
func (s *simulator) script(node string) ([]byte, error) {
	object, err := s.nodes.Get(node)
	if err != nil {
		return nil, fmt.Errorf("looking up node %s: %w", node, err)
	}
	product := object.Labels[productLabel]
	script := scripted.Script{Devices: make([]scripted.ScriptedDevice, s.options.GPUsPerNode)}
	for i := range script.Devices {
		script.Devices[i].Device = scriptedGPU(node, product, i, s.options.GPUsPerNode)
	}
	pods, err := s.podsOn(node)
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		indices, err := GPUs(pod)
		if err != nil {
			return nil, err
		}
		started := timeOf(pod, StartedAtAnnotation)
		if started.IsZero() {
			continue
		}
		activity, given := pod.Annotations[GPUActivityAnnotation]
		// One that was changed to what means nothing is as if there were none.
		if _, err := scripted.ParseActivity(activity); !given || err != nil {
			activity = "busy"
		}
		for _, index := range indices {
			if index < len(script.Devices) {
				script.Devices[index].Activity, script.Devices[index].Since = activity, started
			}
		}
	}
	return json.Marshal(script)
}

// scriptedGPU is the index-th of so many GPUs of a node, half of which are next to each of
// two NUMA nodes. Modules (SXM) all reach each other by NVLink.
func scriptedGPU(node, product string, index, of int) device.Device {
	d := device.Device{
		UUID: uuidOf(node, index), Minor: index, Product: strings.ReplaceAll(product, "-", " "), MemoryBytes: gpuMemory,
		GPUInstance: -1, ComputeInstance: -1, Share: device.Whole,
		NUMANode: 2 * index / of, PCIRoot: pcieRoot(product, index),
	}
	if !isModule(product) {
		return d
	}
	d.Island = uuidOf(node, 0)
	for peer := range of {
		if peer != index {
			d.Peers = append(d.Peers, uuidOf(node, peer))
		}
	}
	return d
}

// replaceFile writes a file in one step, so that a reader never sees a part.
func replaceFile(path string, content []byte) error {
	next := path + ".next"
	if err := os.WriteFile(next, content, 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}

package app

import (
	"strconv"
	"strings"
	"sync"

	"github.com/muster-gpu/muster/agent/device"
	"github.com/muster-gpu/muster/agent/publish"
	"github.com/muster-gpu/muster/agent/verdict"
	"github.com/muster-gpu/muster/metrics"
)

// shown is what the metrics say: what the last tick has found.
type shown struct {
	mu      sync.Mutex
	devices []publish.Device
	spent   map[verdict.Account]verdict.Spent
}

func (s *shown) take(devices []publish.Device, spent map[verdict.Account]verdict.Spent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.devices, s.spent = devices, spent
}

// read is that for metrics.NodeGPUs.
func (s *shown) read() ([]metrics.GPU, []metrics.GPUSeconds) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gpus := make([]metrics.GPU, len(s.devices))
	for i, d := range s.devices {
		gpus[i] = gpuOf(d)
	}
	seconds := make([]metrics.GPUSeconds, 0, len(s.spent))
	for account, spent := range s.spent {
		seconds = append(seconds, metrics.GPUSeconds{
			Namespace: account.Namespace, Queue: account.Queue, Kind: account.Kind,
			Allocated: spent.Allocated.Seconds(), Active: spent.Active.Seconds(), Idle: spent.Idle.Seconds(),
			Stalled: spent.Stalled.Seconds(), Unknown: spent.Unknown.Seconds(),
		})
	}
	return gpus, seconds
}

func gpuOf(d publish.Device) metrics.GPU {
	about, sample := d.Reading.Device, d.Reading.Sample
	g := metrics.GPU{
		Minor: about.Minor, UUID: about.UUID, Product: about.Product, Profile: about.Profile,
		Healthy: d.Reading.Health.Healthy(), Held: len(d.Holders), MemoryBytes: float64(about.MemoryBytes),
		Busy: valueOf(sample.Busy), SM: valueOf(sample.SM), Codec: valueOf(sample.Codec),
		PowerWatts: valueOf(sample.Power), TemperatureCelsius: valueOf(sample.Temperature),
		XIDs: d.Reading.Health.XIDs,
	}
	if about.GPUInstance >= 0 {
		g.Instance = strconv.Itoa(about.GPUInstance)
	}
	if sample.Failure == "" {
		used := float64(sample.MemoryUsedBytes)
		g.MemoryUsedBytes = &used
	}
	for _, h := range d.Holders {
		g.Allocated += float64(h.Share.Parts) / float64(h.Share.Of)
		g.Holders = append(g.Holders, metrics.GPUHolder{
			Namespace: h.Namespace, Pod: h.Pod, Container: strings.Join(h.Containers, ","), Queue: h.Queue, Workload: h.Workload,
			Verdict: string(h.Standing.Verdict), Reclaimable: h.Standing.Reclaimable,
		})
	}
	return g
}

// valueOf is nil where the gauge is unknown.
func valueOf(g device.Gauge) *float64 {
	if !g.Known {
		return nil
	}
	return &g.Value
}

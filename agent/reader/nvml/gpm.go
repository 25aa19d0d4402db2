//go:build cgo

package nvml

import (
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-gpu/muster/agent/device"
)

// gpm has the counters of a unit as they were last: what is measured is what they have
// changed by.
type gpm struct {
	// asked says that it was found out whether the device has them, and has that it does.
	asked, has bool
	samples    [2]nvml.GpmSample
	// last is which of the samples was taken last, at that time; zero before the first.
	last int
	at   time.Time
	// request is kept because it is large.
	request nvml.GpmMetricsGetType
}

// gpmApart is what two samples must be apart at least.
const gpmApart = 100 * time.Millisecond

// gpmMetrics are asked for: of all the time kernels ran in and multiprocessors had work
// in, and the engines that decode, encode, and compress pictures.
var gpmMetrics = slices.Concat(
	[]nvml.GpmMetricId{nvml.GPM_METRIC_GRAPHICS_UTIL, nvml.GPM_METRIC_SM_UTIL},
	between(nvml.GPM_METRIC_NVDEC_0_UTIL, nvml.GPM_METRIC_NVDEC_7_UTIL),
	between(nvml.GPM_METRIC_NVJPG_0_UTIL, nvml.GPM_METRIC_NVJPG_7_UTIL),
	between(nvml.GPM_METRIC_NVENC_0_UTIL, nvml.GPM_METRIC_NVENC_3_UTIL),
)

func between(first, last nvml.GpmMetricId) (all []nvml.GpmMetricId) {
	for id := first; id <= last; id++ {
		all = append(all, id)
	}
	return all
}

// sampleGPM measures by GPM. It is false where there is none, and at the first time.
func (d *Driver) sampleGPM(u *unit, s *device.Sample) (bool, error) {
	g := &u.gpm
	if !g.asked {
		ready, err := d.beginGPM(u)
		if err != nil {
			return false, err
		}
		g.asked, g.has = true, ready
	}
	if !g.has || !g.at.IsZero() && time.Since(g.at) < gpmApart {
		return false, nil
	}
	next := 1 - g.last
	function := "nvmlGpmSampleGet"
	if u.device.Parent != "" {
		function = "nvmlGpmMigSampleGet"
	}
	_, ok, err := ask(d, &u.memory, function, func() (struct{}, nvml.Return) {
		if u.device.Parent != "" {
			return struct{}{}, u.gpu.GpmMigSampleGet(u.device.GPUInstance, g.samples[next])
		}
		return struct{}{}, u.handle.GpmSampleGet(g.samples[next])
	})
	if err != nil || !ok {
		g.at = time.Time{}
		return false, err
	}
	first := g.at.IsZero()
	before := g.samples[g.last]
	g.last, g.at = next, time.Now()
	if first {
		return false, nil
	}
	return d.readGPM(u, before, g.samples[next], s)
}

// readGPM takes the metrics from two samples.
func (d *Driver) readGPM(u *unit, before, now nvml.GpmSample, s *device.Sample) (bool, error) {
	request := &u.gpm.request
	request.NumMetrics, request.Sample1, request.Sample2 = uint32(len(gpmMetrics)), before, now
	for i, id := range gpmMetrics {
		request.Metrics[i] = nvml.GpmMetric{MetricId: uint32(id)}
	}
	_, ok, err := ask(d, &u.memory, "nvmlGpmMetricsGet", func() (struct{}, nvml.Return) { return struct{}{}, d.library.GpmMetricsGet(request) })
	if err != nil || !ok {
		return false, err
	}
	for _, m := range request.Metrics[:len(gpmMetrics)] {
		// Each has its own answer; a device has no engines of some kinds.
		if nvml.Return(m.NvmlReturn) != nvml.SUCCESS || m.Value != m.Value {
			continue
		}
		value := ratio(m.Value)
		switch nvml.GpmMetricId(m.MetricId) {
		case nvml.GPM_METRIC_GRAPHICS_UTIL:
			s.Busy = device.Is(value)
		case nvml.GPM_METRIC_SM_UTIL:
			s.SM = device.Is(value)
		default:
			s.Codec = device.Is(max(s.Codec.Value, value))
		}
	}
	return s.Busy.Known || s.SM.Known, nil
}

// beginGPM finds out whether a device has counters, and makes room for two samples.
func (d *Driver) beginGPM(u *unit) (bool, error) {
	for _, function := range []string{"nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmSampleGet", "nvmlGpmMetricsGet"} {
		if !d.has(function) {
			return false, nil
		}
	}
	support, ok, err := ask(d, &u.memory, "nvmlGpmQueryDeviceSupport", u.gpu.GpmQueryDeviceSupport)
	if err != nil || !ok || support.IsSupportedDevice == 0 {
		return false, err
	}
	for i := range u.gpm.samples {
		sample, ok, err := ask(d, &u.memory, "nvmlGpmSampleAlloc", d.library.GpmSampleAlloc)
		if err != nil || !ok {
			u.gpm.free()
			return false, err
		}
		u.gpm.samples[i] = sample
	}
	return true, nil
}

// free gives the samples back.
func (g *gpm) free() {
	for i, sample := range g.samples {
		if sample != nil {
			sample.Free()
			g.samples[i] = nil
		}
	}
	g.has = false
}

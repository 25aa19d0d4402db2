//go:build cgo

package nvml

import (
	"encoding/binary"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-gpu/muster/agent/device"
)

// Sample implements reader.Driver.
func (d *Driver) Sample(uuid string) (device.Sample, error) {
	return about(d, uuid, d.sample)
}

func (d *Driver) sample(u *unit) (device.Sample, error) {
	u.memory.trouble = ""
	var s device.Sample
	if err := d.activity(u, &s); err != nil {
		return device.Sample{}, err
	}
	if err := d.surroundings(u, &s); err != nil {
		return device.Sample{}, err
	}
	if !s.Busy.Known && !s.SM.Known {
		s.Failure = "the driver has no signal of activity for such a device"
		if u.memory.trouble != "" {
			s.Failure = u.memory.trouble
		}
	}
	return s, nil
}

// activity takes what there is of it, the best first.
func (d *Driver) activity(u *unit, s *device.Sample) error {
	measured, err := d.sampleGPM(u, s)
	if err != nil {
		return err
	}
	if u.device.Parent != "" {
		// The counters of a whole GPU say nothing of a slice.
		return nil
	}
	if !measured {
		if s.Busy, err = d.counted(u); err != nil {
			return err
		}
	}
	for function, call := range map[string]func() (uint32, uint32, nvml.Return){
		"nvmlDeviceGetEncoderUtilization": u.handle.GetEncoderUtilization,
		"nvmlDeviceGetDecoderUtilization": u.handle.GetDecoderUtilization,
		"nvmlDeviceGetJpgUtilization":     u.handle.GetJpgUtilization,
	} {
		percent, ok, err := ask(d, &u.memory, function, func() (uint32, nvml.Return) {
			percent, _, ret := call()
			return percent, ret
		})
		if err != nil {
			return err
		}
		if ok {
			s.Codec = device.Is(max(s.Codec.Value, ratio(float64(percent))))
		}
	}
	return nil
}

// counted is the mean of the samples that the driver has kept since the last time, and
// of a single look at its counter where it keeps none.
func (d *Driver) counted(u *unit) (device.Gauge, error) {
	type kept struct {
		kind    nvml.ValueType
		samples []nvml.Sample
	}
	found, ok, err := ask(d, &u.memory, "nvmlDeviceGetSamples", func() (kept, nvml.Return) {
		kind, samples, ret := u.handle.GetSamples(nvml.GPU_UTILIZATION_SAMPLES, u.seen)
		return kept{kind, samples}, ret
	})
	if err != nil {
		return device.Gauge{}, err
	}
	if ok && found.kind == nvml.VALUE_TYPE_UNSIGNED_INT {
		sum, n, since := 0.0, 0, u.seen
		for _, sample := range found.samples {
			u.seen = max(u.seen, sample.TimeStamp)
			percent := binary.NativeEndian.Uint32(sample.SampleValue[:4])
			// The buffer may be filled with zeroes, and has what is older too; the
			// first look takes what the driver has of the time before as well.
			if sample.TimeStamp > since && percent <= 100 {
				sum, n = sum+float64(percent), n+1
			}
		}
		if n > 0 {
			return device.Is(ratio(sum / float64(n))), nil
		}
	}
	rates, ok, err := ask(d, &u.memory, "nvmlDeviceGetUtilizationRates", u.handle.GetUtilizationRates)
	if err != nil || !ok {
		return device.Gauge{}, err
	}
	return device.Is(ratio(float64(rates.Gpu))), nil
}

// surroundings are memory, power and temperature.
func (d *Driver) surroundings(u *unit, s *device.Sample) error {
	memory, ok, err := ask(d, &u.memory, "nvmlDeviceGetMemoryInfo", u.handle.GetMemoryInfo)
	if err != nil {
		return err
	}
	if ok {
		s.MemoryUsedBytes = memory.Used
	}
	if u.device.Parent != "" {
		return nil
	}
	for function, gauge := range map[string]struct {
		call func() (uint32, nvml.Return)
		to   *device.Gauge
		unit float64
	}{
		"nvmlDeviceGetPowerUsage":         {u.handle.GetPowerUsage, &s.Power, 1000},
		"nvmlDeviceGetEnforcedPowerLimit": {u.handle.GetEnforcedPowerLimit, &s.PowerLimit, 1000},
		"nvmlDeviceGetTemperature": {func() (uint32, nvml.Return) {
			return u.handle.GetTemperature(nvml.TEMPERATURE_GPU)
		}, &s.Temperature, 1},
	} {
		value, ok, err := ask(d, &u.memory, function, gauge.call)
		if err != nil {
			return err
		}
		if ok {
			*gauge.to = device.Is(float64(value) / gauge.unit)
		}
	}
	return nil
}

// ratio is a percentage as a part; the driver says more than all at times.
func ratio(percent float64) float64 { return min(max(percent, 0), 100) / 100 }

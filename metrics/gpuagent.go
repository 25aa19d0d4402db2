package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// GPU is what the agent of a node knows of one of its GPUs or slices. Labels have the
// names and meanings that dcgm-exporter gives them.
type GPU struct {
	// Minor is N of /dev/nvidiaN.
	Minor int
	// UUID of the device, and Product as its vendor names it.
	UUID, Product string
	// Profile and Instance of a slice; "" for a whole GPU.
	Profile, Instance string
	// Healthy says that nothing is known to be wrong with it.
	Healthy bool
	// Held is how many pods hold it, and Allocated the part of it that they have, 0..1.
	Held      int
	Allocated float64
	// Busy, SM, Codec (0..1), PowerWatts and TemperatureCelsius are nil where they are
	// not known.
	Busy, SM, Codec, PowerWatts, TemperatureCelsius *float64
	// MemoryUsedBytes and MemoryBytes of its memory; used is nil where it is not known.
	MemoryUsedBytes *float64
	MemoryBytes     float64
	// XIDs counts errors since the agent began, by their number.
	XIDs map[uint64]uint64
	// Holders are the pods that hold it.
	Holders []GPUHolder
}

// GPUHolder is a pod that holds a GPU.
type GPUHolder struct {
	Namespace, Pod, Container, Queue, Workload string
	// Verdict is active, idle, stalled or unknown.
	Verdict     string
	Reclaimable bool
}

// GPUSeconds are the GPU-seconds of one account since the agent began. Allocated is the
// sum of the others to the last digit.
type GPUSeconds struct {
	Namespace, Queue, Kind                    string
	Allocated, Active, Idle, Stalled, Unknown float64
}

// NodeGPUs collects what the agent of a node knows of its GPUs when it is asked.
func NodeGPUs(node string, read func() ([]GPU, []GPUSeconds)) prometheus.Collector {
	return &nodeGPUs{node: node, read: read}
}

type nodeGPUs struct {
	node string
	read func() ([]GPU, []GPUSeconds)
}

var (
	gpuLabels    = []string{"Hostname", "gpu", "UUID", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID"}
	holderLabels = []string{"Hostname", "gpu", "UUID", "namespace", "pod", "container", "queue", "workload"}

	gpuHealthy     = gpuDesc("healthy", "Whether nothing is known to be wrong with the GPU: 1 or 0.")
	gpuHeld        = gpuDesc("held", "Pods that hold the GPU.")
	gpuAllocated   = gpuDesc("allocated_ratio", "Part of the GPU that pods hold, 0 to 1.")
	gpuBusy        = gpuDesc("busy_ratio", "Part of the time in which any kernel ran, 0 to 1.")
	gpuSM          = gpuDesc("sm_active_ratio", "Part of the multiprocessors that had work, 0 to 1.")
	gpuCodec       = gpuDesc("codec_ratio", "Use of the busiest of the encoder, decoder and JPEG engines, 0 to 1.")
	gpuPower       = gpuDesc("power_watts", "What the GPU draws, in watts.")
	gpuTemperature = gpuDesc("temperature_celsius", "Temperature of the GPU, in degrees Celsius.")
	gpuMemoryUsed  = gpuDesc("memory_used_bytes", "Memory of the GPU that is in use, in bytes.")
	gpuMemory      = gpuDesc("memory_bytes", "Memory of the GPU, in bytes.")
	gpuXIDs        = define(GPUAgentProgram, Counter, "muster_gpu_xid_errors_total",
		"Errors that the driver has reported of the GPU since the agent began, by their number.", append(gpuLabels[:len(gpuLabels):len(gpuLabels)], "xid")...).desc()
	gpuVerdict = define(GPUAgentProgram, Gauge, "muster_gpu_holder_verdict",
		"1 for what a pod does with a GPU that it holds: active, idle, stalled or unknown.", append(holderLabels[:len(holderLabels):len(holderLabels)], "verdict")...).desc()
	gpuReclaimable = define(GPUAgentProgram, Gauge, "muster_gpu_holder_reclaimable",
		"Whether the GPU could be taken from the pod, as far as its node knows: 1 or 0.", holderLabels...).desc()
	gpuSeconds = map[string]*prometheus.Desc{
		"allocated": secondsDesc("allocated", "were held"),
		"active":    secondsDesc("active", "were held and worked, or had not been quiet for long enough to say otherwise"),
		"idle":      secondsDesc("idle", "were held and did nothing"),
		"stalled":   secondsDesc("stalled", "were held and ran kernels that got nothing done"),
		"unknown":   secondsDesc("unknown", "were held while nothing was measured"),
	}
)

func gpuDesc(name, help string) *prometheus.Desc {
	return define(GPUAgentProgram, Gauge, "muster_gpu_"+name, help, gpuLabels...).desc()
}

func secondsDesc(name, help string) *prometheus.Desc {
	return define(GPUAgentProgram, Counter, "muster_gpu_"+name+"_seconds_total",
		"GPU-seconds in which GPUs of the node "+help+", a part of a GPU by its share.", "Hostname", "namespace", "queue", "kind").desc()
}

// Describe implements prometheus.Collector.
func (c *nodeGPUs) Describe(to chan<- *prometheus.Desc) {
	described(to, gpuHealthy, gpuHeld, gpuAllocated, gpuBusy, gpuSM, gpuCodec, gpuPower, gpuTemperature, gpuMemoryUsed, gpuMemory,
		gpuXIDs, gpuVerdict, gpuReclaimable)
	for _, d := range gpuSeconds {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *nodeGPUs) Collect(to chan<- prometheus.Metric) {
	gpus, seconds := c.read()
	for _, g := range gpus {
		c.collect(to, g)
	}
	for _, s := range seconds {
		for name, value := range map[string]float64{"allocated": s.Allocated, "active": s.Active, "idle": s.Idle, "stalled": s.Stalled, "unknown": s.Unknown} {
			to <- prometheus.MustNewConstMetric(gpuSeconds[name], prometheus.CounterValue, value, c.node, s.Namespace, s.Queue, s.Kind)
		}
	}
}

func (c *nodeGPUs) collect(to chan<- prometheus.Metric, g GPU) {
	minor := strconv.Itoa(g.Minor)
	labels := []string{c.node, minor, g.UUID, "nvidia" + minor, g.Product, g.Profile, g.Instance}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(gpuHealthy, one(g.Healthy), labels...)
	gauge(gpuHeld, float64(g.Held), labels...)
	gauge(gpuAllocated, g.Allocated, labels...)
	gauge(gpuMemory, g.MemoryBytes, labels...)
	for d, value := range map[*prometheus.Desc]*float64{
		gpuBusy: g.Busy, gpuSM: g.SM, gpuCodec: g.Codec, gpuPower: g.PowerWatts, gpuTemperature: g.TemperatureCelsius, gpuMemoryUsed: g.MemoryUsedBytes,
	} {
		if value != nil {
			gauge(d, *value, labels...)
		}
	}
	for number, count := range g.XIDs {
		to <- prometheus.MustNewConstMetric(gpuXIDs, prometheus.CounterValue, float64(count), append(labels[:len(labels):len(labels)], strconv.FormatUint(number, 10))...)
	}
	for _, h := range g.Holders {
		who := []string{c.node, minor, g.UUID, h.Namespace, h.Pod, h.Container, h.Queue, h.Workload}
		gauge(gpuVerdict, 1, append(who[:len(who):len(who)], h.Verdict)...)
		gauge(gpuReclaimable, one(h.Reclaimable), who...)
	}
}

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	agentTicks = defineAgent(Counter, "ticks_total",
		"How often the agent has looked at everything, by whether all could be read and written: complete or incomplete.", "result")
	agentTickSeconds = defineAgent(Histogram, "tick_seconds", "Time of one look at everything, in seconds.")
	agentLastTick    = defineAgent(Gauge, "last_tick_timestamp_seconds", "Unix time at which the agent has last looked at everything.")
	agentWrites      = defineAgent(Counter, "writes_total", "Writes of the GPUNode, by result: success or error.", "result")
	agentCalls       = defineAgent(Counter, "driver_calls_total",
		"Calls into the driver of the GPUs that have come back, by call and result: success or error.", "call", "result")
	agentCallSeconds = defineAgent(Histogram, "driver_call_seconds",
		"Time of calls into the driver of the GPUs that have come back, in seconds.", "call")
	agentCallsOut  = defineAgent(Gauge, "driver_calls_out", "Calls into the driver of the GPUs that have not come back.", "call")
	agentCondition = defineAgent(Gauge, "condition",
		"Whether a condition of the node's GPUNode is true, by condition: 1 or 0. DriverReady: the driver answers. HoldersKnown: it is known which pods hold its GPUs.", "condition")
)

func defineAgent(t Type, name, help string, labels ...string) Definition {
	return define(GPUAgentProgram, t, "muster_gpu_agent_"+name, help, labels...)
}

// GPUAgent are the metrics of the GPU agent itself.
type GPUAgent struct {
	ticks, writes, calls *prometheus.CounterVec
	tickSeconds          prometheus.Histogram
	callSeconds          *prometheus.HistogramVec
	out, condition       *prometheus.GaugeVec
	lastTick             prometheus.Gauge
}

// NewGPUAgent registers them.
func NewGPUAgent(registry prometheus.Registerer) (*GPUAgent, error) {
	m := &GPUAgent{
		ticks:       agentTicks.counterVec(),
		writes:      agentWrites.counterVec(),
		calls:       agentCalls.counterVec(),
		tickSeconds: agentTickSeconds.histogram(prometheus.ExponentialBuckets(0.001, 2, 14)),
		// Calls take microseconds, or hang.
		callSeconds: agentCallSeconds.histogramVec(prometheus.ExponentialBuckets(0.00001, 4, 11)),
		out:         agentCallsOut.gaugeVec(),
		condition:   agentCondition.gaugeVec(),
		lastTick:    agentLastTick.gauge(),
	}
	for _, c := range []prometheus.Collector{m.ticks, m.writes, m.calls, m.tickSeconds, m.callSeconds, m.out, m.condition, m.lastTick} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Ticked counts a look at everything.
func (m *GPUAgent) Ticked(took time.Duration, at time.Time, complete bool) {
	result := "complete"
	if !complete {
		result = "incomplete"
	}
	m.ticks.WithLabelValues(result).Inc()
	m.tickSeconds.Observe(took.Seconds())
	m.lastTick.Set(float64(at.Unix()))
}

// Condition says whether a condition of the GPUNode is true.
func (m *GPUAgent) Condition(condition string, is bool) {
	m.condition.WithLabelValues(condition).Set(one(is))
}

// Wrote counts a write of the GPUNode.
func (m *GPUAgent) Wrote(err error) { m.writes.WithLabelValues(resultOf(err)).Inc() }

// CallBegan counts a call into the driver that is out from now on.
func (m *GPUAgent) CallBegan(call string) { m.out.WithLabelValues(call).Inc() }

// CallEnded counts one that has come back.
func (m *GPUAgent) CallEnded(call string, took time.Duration, err error) {
	m.out.WithLabelValues(call).Dec()
	m.calls.WithLabelValues(call, resultOf(err)).Inc()
	m.callSeconds.WithLabelValues(call).Observe(took.Seconds())
}

func resultOf(err error) string {
	if err != nil {
		return "error"
	}
	return "success"
}

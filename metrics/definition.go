package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Program is one that serves metrics.
type Program string

// The programs.
const (
	SchedulerProgram Program = "scheduler"
	WebhookProgram   Program = "webhook"
	GPUAgentProgram  Program = "gpu-agent"
)

// Type is that of a metric, as Prometheus names it.
type Type string

// The types.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Definition is what is known of a metric before anything is measured.
type Definition struct {
	Program Program
	Type    Type
	// Name ends with the unit, of what has one.
	Name, Help string
	Labels     []string
}

// definitions are those of all metrics. They are all there once the package is
// initialised.
var definitions []Definition

// Definitions are those of all metrics, by program and name.
func Definitions() []Definition {
	return slices.SortedFunc(slices.Values(definitions), func(a, b Definition) int {
		if a.Program != b.Program {
			return slices.Index(programs, a.Program) - slices.Index(programs, b.Program)
		}
		return strings.Compare(a.Name, b.Name)
	})
}

var programs = []Program{SchedulerProgram, WebhookProgram, GPUAgentProgram}

// OfKueue says that the metric has a name and labels of Kueue's.
func (d Definition) OfKueue() bool { return strings.HasPrefix(d.Name, "kueue_") }

func define(p Program, t Type, name, help string, labels ...string) Definition {
	d := Definition{Program: p, Type: t, Name: name, Help: help, Labels: labels}
	definitions = append(definitions, d)
	return d
}

func (d Definition) desc() *prometheus.Desc {
	return prometheus.NewDesc(d.Name, d.Help, d.Labels, nil)
}

func (d Definition) counter() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: d.Name, Help: d.Help})
}

func (d Definition) counterVec() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.Labels)
}

func (d Definition) gauge() prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: d.Name, Help: d.Help})
}

func (d Definition) gaugeVec() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: d.Name, Help: d.Help}, d.Labels)
}

func (d Definition) histogram(buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: buckets})
}

func (d Definition) histogramVec(buckets []float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: buckets}, d.Labels)
}

// described tells of descriptions, as of prometheus.Collector.
func described(to chan<- *prometheus.Desc, all ...*prometheus.Desc) {
	for _, d := range all {
		to <- d
	}
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

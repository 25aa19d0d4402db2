package metrics_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	componentmetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/muster-gpu/muster/metrics"
)

// boundedLabels are the labels whose values are few: queues, classes and what is
// asked for, and never jobs, pods or users.
var boundedLabels = []string{"asked", "cluster_queue", "how", "namespace", "reason"}

// gathered are Muster's metrics as a scrape of the scheduler sees them, each
// with one value.
func gathered(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	metrics.Register()
	// A second call changes nothing and does not panic.
	metrics.Register()
	ofTwo := []componentmetrics.Registerable{metrics.Preemptions, metrics.UnmanagedGPUs, metrics.DomainsUsed, metrics.LevelsCrossed, metrics.ExcessDomains}
	for _, m := range metrics.All() {
		values := []string{"x"}
		if slices.Contains(ofTwo, m) {
			values = append(values, "y")
		}
		switch m := m.(type) {
		case *componentmetrics.CounterVec:
			m.WithLabelValues(values...).Inc()
		case *componentmetrics.GaugeVec:
			m.WithLabelValues(values...).Set(1)
		case *componentmetrics.HistogramVec:
			m.WithLabelValues(values...).Observe(1)
		}
	}
	all, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "muster_") })
}

func TestEveryMetricIsServedUnderItsName(t *testing.T) {
	names := map[string]bool{}
	for _, f := range gathered(t) {
		names[f.GetName()] = true
	}
	for _, m := range metrics.All() {
		if name := m.FQName(); !names[name] {
			t.Errorf("metric %s is not served as a muster_ metric", name)
		}
	}
	if len(names) != len(metrics.All()) {
		t.Errorf("%d metrics are served, %d are listed", len(names), len(metrics.All()))
	}
}

func TestMetricsFollowTheNamingRules(t *testing.T) {
	problems, err := promlint.NewWithMetricFamilies(gathered(t)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestMetricsHaveBoundedLabels(t *testing.T) {
	for _, f := range gathered(t) {
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				if !slices.Contains(boundedLabels, label.GetName()) {
					t.Errorf("metric %s has the label %s", f.GetName(), label.GetName())
				}
			}
		}
	}
}

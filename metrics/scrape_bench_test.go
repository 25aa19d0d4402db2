package metrics_test

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/muster-gpu/muster/metrics"
)

// BenchmarkScrape is what it costs the scheduler to be scraped with 1,000 ClusterQueues
// in cohorts, each with CPUs, memory and GPUs of two flavors, that have all admitted
// jobs; with 1,000 GPUNodes.
func BenchmarkScrape(b *testing.B) {
	const queues, nodes = 1000, 1000
	for name, kueueNames := range map[string]bool{"muster": false, "with-kueue-names": true} {
		b.Run(name, func(b *testing.B) {
			state := manyQueues(queues, nodes)
			defer metrics.Leads(func() metrics.State { return state })()
			for i := range state.ClusterQueues {
				q := state.ClusterQueues[i].Name
				metrics.Admitted(q, "", time.Duration(i)*time.Second)
				metrics.Evicted(q, "Preempted")
				metrics.Preempted(q, "InClusterQueue")
				metrics.HeldGPUSeconds.WithLabelValues(q).Add(1)
				metrics.DomainsUsed.WithLabelValues(q, "nothing").Observe(1)
				metrics.LevelsCrossed.WithLabelValues(q, "nothing").Observe(1)
				metrics.ExcessDomains.WithLabelValues(q, "nothing").Inc()
			}
			registry := prometheus.NewRegistry()
			registry.MustRegister(metrics.Scheduler(kueueNames)...)
			handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true})
			scrape := func() int {
				answer := httptest.NewRecorder()
				request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
				// What Prometheus 3 asks for.
				request.Header.Set("Accept", "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1")
				handler.ServeHTTP(answer, request)
				if answer.Code != http.StatusOK {
					b.Fatal(answer.Body.String())
				}
				return answer.Body.Len()
			}
			size := 0
			before := processorTime(b)
			for b.Loop() {
				size = scrape()
			}
			b.ReportMetric(float64(processorTime(b)-before)/1e6/float64(b.N), "cpu-ms/scrape")
			b.ReportMetric(float64(size)/(1<<20), "MiB")
		})
	}
}

func manyQueues(queues, nodes int) metrics.State {
	var state metrics.State
	for i := range nodes {
		state.GPUNodes = append(state.GPUNodes, metrics.GPUNode{Name: fmt.Sprintf("node-%04d", i), Heartbeat: time.Unix(1_700_000_000, 0)})
	}
	for i := range queues {
		q := metrics.ClusterQueue{
			Name: fmt.Sprintf("queue-%04d", i), Cohort: fmt.Sprintf("cohort-%03d", i/10), Status: metrics.QueueActive,
			Due: 1, Refused: 9, Reserving: 3, Admitted: 2,
		}
		for _, flavor := range []string{"a100", "h200"} {
			for _, resource := range []string{"cpu", "memory", "nvidia.com/gpu"} {
				q.Quota = append(q.Quota, metrics.Quota{Flavor: flavor, Resource: resource, Nominal: 8, BorrowingLimit: 8, LendingLimit: math.Inf(1), Reserved: 4, Used: 3})
			}
		}
		state.ClusterQueues = append(state.ClusterQueues, q)
	}
	return state
}

// processorTime is what the process has used so far.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

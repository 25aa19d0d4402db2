package main

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// registerMetrics adds the process's own metrics and the certificate's end to
// controller-runtime's registry, which has the requests and latencies.
func (s *service) registerMetrics() error {
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "muster_webhook_certificate_expiry_timestamp_seconds",
			Help: "Unix time at which the serving certificate expires; 0 while there is none.",
		}, func() float64 {
			if end := s.keeper.NotAfter(); !end.IsZero() {
				return float64(end.Unix())
			}
			return 0
		}),
	} {
		if err := ctrlmetrics.Registry.Register(c); err != nil && !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

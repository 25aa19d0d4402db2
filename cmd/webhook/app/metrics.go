package app

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/muster-gpu/muster/metrics"
)

// gatherer is what a scrape reads: the certificate's end, the requests and the policies,
// and beside them controller-runtime's registry, which has, because Kueue's conversions
// bring its controllers along, the process's own metrics.
func (s *service) gatherer() (prometheus.Gatherer, error) {
	own := prometheus.NewRegistry()
	for _, collector := range append(s.metrics.Collectors(),
		metrics.WebhookCertificateExpiry(s.keeper.NotAfter),
		metrics.Policies(func() []metrics.Policy { return policyMetrics(s.engine, s.auditor) }),
	) {
		if err := own.Register(collector); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return prometheus.Gatherers{ctrlmetrics.Registry, own}, nil
}

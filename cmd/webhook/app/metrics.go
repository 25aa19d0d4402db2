package app

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/muster-gpu/muster/metrics"
)

// registerMetrics adds the certificate's end to controller-runtime's registry,
// which has the requests and latencies, and, because Kueue's conversions bring its
// controllers along, the process's own metrics.
func (s *service) registerMetrics() error {
	err := ctrlmetrics.Registry.Register(metrics.WebhookCertificateExpiry(s.keeper.NotAfter))
	if err != nil && !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

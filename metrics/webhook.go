package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// WebhookCertificateExpiry is when the webhook's serving certificate expires.
// end returns the zero time while there is no certificate.
//
// The webhook serves controller-runtime's registry, which takes collectors of
// the Prometheus client and not of the component registry.
func WebhookCertificateExpiry(end func() time.Time) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "muster_webhook_certificate_expiry_timestamp_seconds",
		Help: "Unix time at which the webhook's serving certificate expires; 0 while there is none.",
	}, func() float64 {
		if t := end(); !t.IsZero() {
			return float64(t.Unix())
		}
		return 0
	})
}

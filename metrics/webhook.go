package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

var (
	webhookRequestSeconds = define(WebhookProgram, Histogram, "muster_webhook_request_seconds",
		"Time from a request's arrival at the webhook to its answer, in seconds, by the webhook's path and the answer's HTTP code: 503 has the failure policy decide.",
		"webhook", "code")
	webhookUnanswered = define(WebhookProgram, Counter, "muster_webhook_unanswered_total",
		"Requests that the webhook could not answer, by its path and the reason: fault, panic or busy.", "webhook", "reason")
	webhookCertificateExpiry = define(WebhookProgram, Gauge, "muster_webhook_certificate_expiry_timestamp_seconds",
		"Unix time at which the webhook's serving certificate expires; 0 while there is none.")
)

// Webhook are the metrics of requests that the webhook is asked.
type Webhook struct {
	seconds    *prometheus.HistogramVec
	unanswered *prometheus.CounterVec
}

// NewWebhook returns metrics in which nothing is counted yet.
func NewWebhook() *Webhook {
	return &Webhook{
		seconds:    webhookRequestSeconds.histogramVec([]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}),
		unanswered: webhookUnanswered.counterVec(),
	}
}

// Collectors are what is to be registered.
func (w *Webhook) Collectors() []prometheus.Collector {
	return []prometheus.Collector{w.seconds, w.unanswered}
}

// Timed is the handler of a path whose answers are timed.
func (w *Webhook) Timed(path string, handler http.Handler) http.Handler {
	return promhttp.InstrumentHandlerDuration(w.seconds.MustCurryWith(prometheus.Labels{"webhook": path}), handler)
}

// Unanswered counts a request that was answered with 503, so that the failure policy
// has decided.
func (w *Webhook) Unanswered(path, reason string) { w.unanswered.WithLabelValues(path, reason).Inc() }

// WebhookCertificateExpiry is when the webhook's serving certificate expires.
// end returns the zero time while there is no certificate.
func WebhookCertificateExpiry(end func() time.Time) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: webhookCertificateExpiry.Name, Help: webhookCertificateExpiry.Help}, func() float64 {
		if t := end(); !t.IsZero() {
			return float64(t.Unix())
		}
		return 0
	})
}

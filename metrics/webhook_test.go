package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/muster-gpu/muster/metrics"
)

func TestWebhookCertificateExpiry(t *testing.T) {
	tests := map[string]struct {
		end  time.Time
		want string
	}{
		"a certificate is told by the second it ends in": {time.Unix(1_700_000_000, 999), "1.7e+09"},
		"no certificate is 0":                            {time.Time{}, "0"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			collector := metrics.WebhookCertificateExpiry(func() time.Time { return tc.end })
			want := "# HELP muster_webhook_certificate_expiry_timestamp_seconds Unix time at which the webhook's serving certificate expires; 0 while there is none.\n" +
				"# TYPE muster_webhook_certificate_expiry_timestamp_seconds gauge\n" +
				"muster_webhook_certificate_expiry_timestamp_seconds " + tc.want + "\n"
			if err := testutil.CollectAndCompare(collector, strings.NewReader(want)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWebhookRequests(t *testing.T) {
	asked := metrics.NewWebhook()
	asked.Unanswered("/mutate", "busy")
	ask(asked.Timed("/mutate", answering(http.StatusOK)))
	ask(asked.Timed("/mutate", answering(http.StatusOK)))
	ask(asked.Timed("/mutate", answering(http.StatusServiceUnavailable)))
	registry := prometheus.NewRegistry()
	registry.MustRegister(asked.Collectors()...)
	compare(t, registry, "muster_webhook_unanswered_total{reason=\"busy\",webhook=\"/mutate\"} 1\n")

	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, f := range all {
		if f.GetName() == "muster_webhook_request_seconds" {
			for _, m := range f.GetMetric() {
				got[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetHistogram().GetSampleCount()
			}
		}
	}
	if diff := cmp.Diff(map[string]uint64{"200 /mutate": 2, "503 /mutate": 1}, got); diff != "" {
		t.Errorf("requests by code and path (-want +got):\n%s", diff)
	}
}

// answering is a handler that answers with a status.
func answering(status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
}

func ask(handler http.Handler) {
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
}

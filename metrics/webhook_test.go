package metrics_test

import (
	"strings"
	"testing"
	"time"

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
			problems, err := testutil.CollectAndLint(collector)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range problems {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		})
	}
}

package metrics_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/muster-gpu/muster/metrics"
)

func TestPolicies(t *testing.T) {
	collector := metrics.Policies(func() []metrics.Policy {
		return []metrics.Policy{
			{Name: "a", Compiled: true, Reviews: 5, Denied: 1, Warned: 2, DryRun: 3, Audited: &metrics.Audited{Denied: 4, Warned: 5, DryRun: 6}},
			{Name: "b", Failed: 7},
		}
	})
	want := `# HELP muster_policy_audit_violations Violations of a policy among objects that exist, by what they would do; of the replica that audits.
# TYPE muster_policy_audit_violations gauge
muster_policy_audit_violations{enforcement="deny",policy="a"} 4
muster_policy_audit_violations{enforcement="dryrun",policy="a"} 6
muster_policy_audit_violations{enforcement="warn",policy="a"} 5
# HELP muster_policy_compiled Whether the newest version of a policy compiles and is asked: 1 or 0.
# TYPE muster_policy_compiled gauge
muster_policy_compiled{policy="a"} 1
muster_policy_compiled{policy="b"} 0
# HELP muster_policy_failures_total How often a policy could not be evaluated, or not in its newest version.
# TYPE muster_policy_failures_total counter
muster_policy_failures_total{policy="a"} 0
muster_policy_failures_total{policy="b"} 7
# HELP muster_policy_reviews_total How often a policy was asked.
# TYPE muster_policy_reviews_total counter
muster_policy_reviews_total{policy="a"} 5
muster_policy_reviews_total{policy="b"} 0
# HELP muster_policy_violations_total Violations that a policy found, by what they did: deny, warn or dryrun.
# TYPE muster_policy_violations_total counter
muster_policy_violations_total{enforcement="deny",policy="a"} 1
muster_policy_violations_total{enforcement="deny",policy="b"} 0
muster_policy_violations_total{enforcement="dryrun",policy="a"} 3
muster_policy_violations_total{enforcement="dryrun",policy="b"} 0
muster_policy_violations_total{enforcement="warn",policy="a"} 2
muster_policy_violations_total{enforcement="warn",policy="b"} 0
`
	if err := testutil.CollectAndCompare(collector, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

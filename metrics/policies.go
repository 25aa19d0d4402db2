package metrics

import "github.com/prometheus/client_golang/prometheus"

// Policy is what has become of one policy since the program began.
type Policy struct {
	Name string
	// Compiled says that its newest version is asked.
	Compiled bool
	// Reviews is how often it was asked, and Failed how often it could not answer;
	// Denied, Warned and DryRun are violations by what they did.
	Reviews, Failed, Denied, Warned, DryRun int64
	// Audited is nil where this replica has not audited.
	Audited *Audited
}

// Audited are the violations of objects that exist, by what they would do.
type Audited struct{ Denied, Warned, DryRun int64 }

// Policies are the metrics of all policies, which all returns at each scrape.
func Policies(all func() []Policy) prometheus.Collector { return policies(all) }

type policies func() []Policy

var (
	policyCompiled = define(WebhookProgram, Gauge, "muster_policy_compiled",
		"Whether the newest version of a policy compiles and is asked: 1 or 0.", "policy").desc()
	policyReviews = define(WebhookProgram, Counter, "muster_policy_reviews_total",
		"How often a policy was asked.", "policy").desc()
	policyFailures = define(WebhookProgram, Counter, "muster_policy_failures_total",
		"How often a policy could not be evaluated, or not in its newest version.", "policy").desc()
	policyViolations = define(WebhookProgram, Counter, "muster_policy_violations_total",
		"Violations that a policy found, by what they did: deny, warn or dryrun.", "policy", "enforcement").desc()
	policyAudited = define(WebhookProgram, Gauge, "muster_policy_audit_violations",
		"Violations of a policy among objects that exist, by what they would do; of the replica that audits.", "policy", "enforcement").desc()
)

// Describe implements prometheus.Collector.
func (policies) Describe(out chan<- *prometheus.Desc) {
	described(out, policyCompiled, policyReviews, policyFailures, policyViolations, policyAudited)
}

// Collect implements prometheus.Collector.
func (p policies) Collect(out chan<- prometheus.Metric) {
	for _, of := range p() {
		count := func(d *prometheus.Desc, n int64, labels ...string) {
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append([]string{of.Name}, labels...)...)
		}
		out <- prometheus.MustNewConstMetric(policyCompiled, prometheus.GaugeValue, one(of.Compiled), of.Name)
		count(policyReviews, of.Reviews)
		count(policyFailures, of.Failed)
		count(policyViolations, of.Denied, "deny")
		count(policyViolations, of.Warned, "warn")
		count(policyViolations, of.DryRun, "dryrun")
		if of.Audited == nil {
			continue
		}
		for enforcement, n := range map[string]int64{"deny": of.Audited.Denied, "warn": of.Audited.Warned, "dryrun": of.Audited.DryRun} {
			out <- prometheus.MustNewConstMetric(policyAudited, prometheus.GaugeValue, float64(n), of.Name, enforcement)
		}
	}
}

// Package rules tests the alert and recording rules and the dashboards of
// manifests/monitoring: the YAML files beside it, in promtool's format, have Prometheus's
// engine evaluate the rules, and the tests in Go compare all with the reference of metrics
// and the runbooks, and have the engine answer each panel. "make test-rules" runs both.
package rules

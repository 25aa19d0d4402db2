// The Grafana dashboards are a module of their own, because no program needs what they are
// made with.
module github.com/muster-gpu/muster/metrics/dashboards

go 1.26.7

require github.com/grafana/grafana-foundation-sdk/go v0.0.22

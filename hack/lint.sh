#!/usr/bin/env bash
# Formatting, imports and static checks of the whole module, and of the one that makes the
# dashboards.
set -euo pipefail
cd "$(dirname "$0")/.."
unformatted=$({ go list -f '{{.Dir}}' ./...; echo metrics/dashboards; echo test/rules; } | xargs gofmt -l)
if [ -n "$unformatted" ]; then
	echo "not gofmt'ed:" && echo "$unformatted"
	exit 1
fi
# What decides knows no cluster: values come in, and values go out.
if knowing=$(go list -deps ./quota/... ./placement/islands ./placement/inventory ./placement/topology ./placement/fragmentation ./agent/verdict | grep -E '^(k8s.io/client-go|k8s.io/kubernetes|sigs.k8s.io/controller-runtime)(/|$)'); then
	echo "the pure core imports:" && echo "$knowing"
	exit 1
fi
go vet ./...
bin/staticcheck ./...
staticcheck=$PWD/bin/staticcheck
cd metrics/dashboards
go vet ./...
"$staticcheck" ./...

#!/usr/bin/env bash
# Formatting and static checks of the whole module.
set -euo pipefail
cd "$(dirname "$0")/.."
unformatted=$(go list -f '{{.Dir}}' ./... | xargs gofmt -l)
if [ -n "$unformatted" ]; then
	echo "not gofmt'ed:" && echo "$unformatted"
	exit 1
fi
go vet ./...
bin/staticcheck ./...

#!/usr/bin/env bash
# Generates again and fails if anything differs from what is committed.
set -euo pipefail
cd "$(dirname "$0")/.."
hack/generate.sh
if [ -n "$(git status --porcelain -- manifests api docs/metrics.md)" ]; then
	git --no-pager diff -- manifests api docs/metrics.md | head -50
	git status --short -- manifests api docs/metrics.md
	echo "generated files differ: run 'make generate' and commit" >&2
	exit 1
fi

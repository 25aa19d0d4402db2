#!/usr/bin/env bash
# Compiles one program and says how far it is: a cold build of the larger ones
# takes minutes, during which go itself prints nothing.
#
# usage: compile.sh NUMBER/COUNT NAME COLD-TIME OUTPUT PACKAGE [GO-BUILD-FLAG...]
set -euo pipefail

position=$1 name=$2 cold=$3 output=$4 package=$5
shift 5

echo "[$position] $name ($cold when cold)"
export CGO_ENABLED=0
started=$SECONDS reported=$SECONDS compiled=0
# -v prints one line for each package that is really compiled.
go build -v -o "$output" "$@" "$package" 2>&1 | while IFS= read -r line; do
	if [[ $line =~ ^[A-Za-z0-9._~/@+-]+$ ]]; then
		compiled=$((compiled + 1))
		if ((SECONDS - reported >= 20)); then
			reported=$SECONDS
			echo "      $name: $compiled packages compiled in $((SECONDS - started)) s, now at $line"
		fi
	else
		echo "$line"
	fi
done
echo "      $name: done in $((SECONDS - started)) s"

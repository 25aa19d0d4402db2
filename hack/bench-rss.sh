#!/usr/bin/env bash
# Prints the resident memory of a scheduler that has nothing to do, in a
# sandbox of four nodes: the smallest, the median and the largest of several
# samples. It is a measurement and never fails because of a number.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=.sandbox/bench-rss
samples=${SAMPLES:-15}
settle=${SETTLE:-20}

trap 'bin/sandbox down --dir "$dir"' EXIT
bin/sandbox up --dir "$dir" >/dev/null
pid=$(bin/sandbox status --dir "$dir" | awk '$1 == "muster-scheduler" {print $2}')

echo "Letting the scheduler settle for $settle s, then $samples samples, one every second ..."
sleep "$settle"
for ((i = 0; i < samples; i++)); do
	awk '$1 == "VmRSS:" {print $2}' "/proc/$pid/status"
	sleep 1
done | sort -n | awk '
	{ kib[NR] = $1 }
	END { printf "idle scheduler RSS in MiB: min %.1f, median %.1f, max %.1f\n", kib[1] / 1024, kib[int((NR + 1) / 2)] / 1024, kib[NR] / 1024 }'

package app

import (
	"os"
	"runtime/debug"
)

// gcPercent lets garbage grow to twice what is kept before it is collected: while that is
// done, reviews wait for a processor, and at Go's own 100 so many do that they make the
// 99th percentile. With a large cluster the webhook keeps about 45 MiB.
const gcPercent = 200

// collectLess sets how often garbage is collected, unless GOGC says it.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// Command reference prints the page of all metrics, docs/metrics.md.
package main

import (
	"fmt"
	"os"

	"github.com/muster-gpu/muster/metrics"
)

func main() {
	if err := metrics.WriteReference(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

//go:build cgo

package app

import (
	"github.com/muster-gpu/muster/agent/reader"
	"github.com/muster-gpu/muster/agent/reader/nvml"
)

// nvmlDriver is NVIDIA's driver by the library at that path, or by the loader's.
func nvmlDriver(library string) (reader.Driver, error) { return nvml.New(library), nil }

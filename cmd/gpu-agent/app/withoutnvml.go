//go:build !cgo

package app

import (
	"errors"

	"github.com/muster-gpu/muster/agent/reader"
)

// nvmlDriver is not there: NVIDIA's library is called through C.
func nvmlDriver(string) (reader.Driver, error) {
	return nil, errors.New("reader.kind: this gpu-agent was built without NVML, which needs CGO_ENABLED=1; it has the reader scripted")
}

//go:build cgo

package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/muster-gpu/muster/agent/reader"
)

// failure says which call failed and how, and what it is to the reader.
func failure(call string, ret nvml.Return) error {
	switch ret {
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED:
		return fmt.Errorf("%s: %w: %w", call, ret, reader.ErrLost)
	case nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_LIB_RM_VERSION_MISMATCH, nvml.ERROR_UNINITIALIZED:
		return fmt.Errorf("%s: %w: %w", call, ret, reader.ErrRestart)
	}
	return fmt.Errorf("%s: %w", call, ret)
}

// has says that the library has a function, in any of its versions.
func (d *Driver) has(function string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	lacks, known := d.lacks[function]
	if !known {
		lacks = true
		for _, version := range []string{"", "_v1", "_v2", "_v3"} {
			if d.library.Extensions().LookupSymbol(function+version) == nil {
				lacks = false
				break
			}
		}
		d.lacks[function] = lacks
	}
	return !lacks
}

// memory is what is remembered of the calls about a device.
type memory struct {
	// off are the functions that the device does not support.
	off map[string]bool
	// trouble is what the last call said that failed, for want of something better.
	trouble string
}

func (m *memory) lacks(function string) {
	if m.off == nil {
		m.off = map[string]bool{}
	}
	m.off[function] = true
}

// ask calls a function about a device. It is not ok where the library lacks it, the device
// does not support it, or it has failed otherwise, which is no error of the whole: that
// is only that the device is lost, or the driver gone.
func ask[T any](d *Driver, m *memory, function string, call func() (T, nvml.Return)) (value T, ok bool, err error) {
	if m.off[function] || !d.has(function) {
		return value, false, nil
	}
	value, ret := call()
	switch ret {
	case nvml.SUCCESS:
		return value, true, nil
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_ARGUMENT_VERSION_MISMATCH:
		m.lacks(function)
		return value, false, nil
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_LIB_RM_VERSION_MISMATCH, nvml.ERROR_UNINITIALIZED:
		return value, false, failure(function, ret)
	}
	m.trouble = failure(function, ret).Error()
	return value, false, nil
}

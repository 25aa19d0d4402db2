// Package nvml is a Driver that asks NVIDIA's, through libnvidia-ml.so.1, which is
// loaded when devices are listed first; without the library, or without the driver,
// that fails, and is tried again. It needs cgo: without it there is nothing here.
//
// Of activity it takes what is best of what the driver and the GPU have: GPM (Hopper
// and newer, slices too), the samples that the driver keeps, or a single counter. A
// function that the library lacks is never called, because that would end the program;
// one that a device does not support is asked for once. Start from New.
package nvml

package quota

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-gpu/muster/api/gpu"
)

// Requests are amounts of resources in Kueue's units: cpu in thousandths of a
// core, everything else in base units (bytes, devices, pods).
type Requests map[corev1.ResourceName]int64

// RequestsOf converts a ResourceList. Fractions of a unit are rounded up, a
// negative quantity counts as zero and one beyond int64 as the largest int64.
func RequestsOf(list corev1.ResourceList) Requests {
	r := make(Requests, len(list))
	for name, q := range list {
		r[name] = max(0, valueOf(name, q))
	}
	return r
}

// Times returns the requests of n pods, saturating at the largest int64.
// A negative n counts as zero.
func (r Requests) Times(n int32) Requests {
	out := make(Requests, len(r))
	for name, v := range r {
		out[name] = saturatingMul(v, int64(max(n, 0)))
	}
	return out
}

// String lists the amounts, devices first and the rest by name:
// "8 GPUs, 500m cpu, 2Gi memory".
func (r Requests) String() string {
	parts := make([]string, 0, len(r))
	for _, name := range sortedResources(maps.Keys(r)) {
		parts = append(parts, FormatAmount(name, r[name]))
	}
	return strings.Join(parts, ", ")
}

// FormatAmount prints an amount with its unit, as messages do: "8 GPUs",
// "500m cpu", "2Gi memory", "4 pods", "2 example.com/fpga".
func FormatAmount(name corev1.ResourceName, v int64) string {
	return FormatValue(name, v) + " " + unit(name, v)
}

// FormatValue prints an amount without its unit: "8", "500m", "2Gi". The largest
// int64 stands for all that are too large to count.
func FormatValue(name corev1.ResourceName, v int64) string {
	switch {
	case v == math.MaxInt64 && name == corev1.ResourceCPU:
		return "over 9P"
	case v == math.MaxInt64 && isBytes(name):
		return "over 7Ei"
	case v == math.MaxInt64:
		return "over 9E"
	case name == corev1.ResourceCPU:
		return resource.NewMilliQuantity(v, resource.DecimalSI).String()
	case isBytes(name):
		return resource.NewQuantity(v, resource.BinarySI).String()
	default:
		// A count of devices reads better in full than as "2k".
		return strconv.FormatInt(v, 10)
	}
}

func unit(name corev1.ResourceName, v int64) string {
	switch {
	case gpu.Whole(name) && v == 1:
		return "GPU"
	case gpu.Whole(name):
		return "GPUs"
	case name == corev1.ResourcePods && v == 1:
		return "pod"
	default:
		return string(name)
	}
}

func isBytes(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// sortedResources orders extended resources before the native ones, because a
// job that is short of GPUs and of cpu waits for the GPUs; then by name.
func sortedResources(names func(yield func(corev1.ResourceName) bool)) []corev1.ResourceName {
	return slices.SortedFunc(names, compareResources)
}

// compareResources is the order of sortedResources.
func compareResources(a, b corev1.ResourceName) int {
	return cmp.Or(cmp.Compare(nativeLast(a), nativeLast(b)), cmp.Compare(a, b))
}

func nativeLast(name corev1.ResourceName) int {
	if strings.Contains(string(name), "/") {
		return 0
	}
	return 1
}

// valueOf clamps: Quantity's own conversions wrap around beyond int64.
func valueOf(name corev1.ResourceName, q resource.Quantity) int64 {
	limit := int64(math.MaxInt64)
	if name == corev1.ResourceCPU {
		limit /= 1000
	}
	if q.CmpInt64(limit) > 0 {
		return math.MaxInt64
	}
	if q.CmpInt64(-limit) < 0 {
		return math.MinInt64
	}
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

func saturatingAdd(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	default:
		return a + b
	}
}

// saturatingMul multiplies two numbers that are not negative.
func saturatingMul(a, b int64) int64 {
	if b != 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}

// Quantity is v, in the units of Requests, as the API writes it.
func Quantity(name corev1.ResourceName, v int64) resource.Quantity {
	switch {
	case name == corev1.ResourceCPU:
		return *resource.NewMilliQuantity(v, resource.DecimalSI)
	case isBytes(name):
		return *resource.NewQuantity(v, resource.BinarySI)
	default:
		return *resource.NewQuantity(v, resource.DecimalSI)
	}
}

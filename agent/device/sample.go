package device

// Sample is what was measured on one device over the time since the sample before.
type Sample struct {
	// Failure says why there is nothing: the call failed, did not come back in time,
	// or there is no signal of activity for such a device. "" if it was measured.
	Failure string
	// Busy is the part of the time in which any kernel ran, 0..1, whatever it did.
	Busy Gauge
	// SM is the part of the multiprocessors that had work, 0..1, over that time.
	SM Gauge
	// Codec is the use of the busiest of the encoder, decoder and JPEG engines, 0..1.
	Codec Gauge
	// Power is what it draws, and PowerLimit what it may draw, in watts. A MIG slice
	// has none of its own.
	Power, PowerLimit Gauge
	// MemoryUsedBytes of its memory.
	MemoryUsedBytes uint64
	// Temperature in degrees Celsius.
	Temperature Gauge
	// Processes is how many processes have a context on it.
	Processes Gauge
}

// Gauge is a number that may be unknown, which is not the same as 0.
type Gauge struct {
	Value float64
	Known bool
}

// Is is a gauge that is known.
func Is(value float64) Gauge { return Gauge{Value: value, Known: true} }

// AtLeast says that it is known, and not below.
func (g Gauge) AtLeast(bound float64) bool { return g.Known && g.Value >= bound }

// Below says that it is known, and below.
func (g Gauge) Below(bound float64) bool { return g.Known && g.Value < bound }

package reader

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/muster-gpu/muster/agent/device"
)

// Periods are how often devices are asked, and how long for an answer.
type Periods struct {
	// Deadline is how long the answers of one poll are waited for.
	Deadline time.Duration
	// Devices is how often the list of devices is read, Processes how often that of
	// the processes on a device which is held, and Health how often a device is asked
	// how it is, and one that is lost whether it is back.
	Devices, Processes, Health time.Duration
	// Deaf is how long a call is out before its GPU counts as unhealthy.
	Deaf time.Duration
}

// DefaultPeriods suit a poll every 15 s. A list of processes costs a thousand times
// what a counter costs, and the driver does nothing else meanwhile.
func DefaultPeriods() Periods {
	return Periods{
		Deadline:  5 * time.Second,
		Devices:   60 * time.Second,
		Processes: 30 * time.Second,
		Health:    60 * time.Second,
		Deaf:      60 * time.Second,
	}
}

// Reading is what is known of one device after a poll.
type Reading struct {
	Device device.Device
	Sample device.Sample
	// Health is at most one period old, if the device answers.
	Health device.Health
}

// Poller reads all devices of a node. It is not safe for concurrent use.
type Poller struct {
	driver  Driver
	periods Periods
	roster  roster
	// gpus are the calls about GPUs and their slices, by the UUIDs of the GPUs.
	gpus map[string]*line
	// known is what was read last, by the UUID of the device.
	known map[string]*known
}

// known is what one device has said last, and when.
type known struct {
	// processes is how many there were when they could be counted last.
	processes         device.Gauge
	counted, examined time.Time
	health            device.Health
}

// NewPoller asks that driver.
func NewPoller(driver Driver, periods Periods) *Poller {
	return &Poller{driver: driver, periods: periods, gpus: map[string]*line{}, known: map[string]*known{}}
}

// Poll reads all devices; processes are only looked for on those that are held, which
// are given by their UUIDs. It returns by the deadline, or when ctx ends, whatever the
// driver does: what has not come by then has a Failure. The error says why the list of devices is
// missing or old, or that the driver must be loaded anew (ErrRestart); the readings
// are good in spite of it.
func (p *Poller) Poll(ctx context.Context, held map[string]bool) ([]Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, p.periods.Deadline)
	defer cancel()
	err := p.roster.refresh(ctx, p.driver, p.periods.Devices)
	p.forget()
	answers, asked := p.askAll(held)
	said := map[string]answer{}
	for late := false; !late && len(said) < asked; {
		select {
		case a := <-answers:
			said[a.uuid] = a
		case <-ctx.Done():
			late = true
		}
	}
	readings := make([]Reading, 0, len(p.roster.devices))
	for _, d := range p.roster.devices {
		a, ok := said[d.UUID]
		if !ok {
			readings = append(readings, p.silent(d))
			continue
		}
		if a.is(ErrRestart) {
			err = ErrRestart
		}
		readings = append(readings, p.take(d, a))
	}
	return readings, err
}

// askAll asks about the devices of all GPUs about which no call is out, and says how
// many answers are to come. Those that come after the poll go nowhere.
func (p *Poller) askAll(held map[string]bool) (answers chan answer, asked int) {
	questions := map[string][]question{}
	for _, d := range p.roster.devices {
		gpu := cmp.Or(d.Parent, d.UUID)
		if p.gpus[gpu] == nil {
			p.gpus[gpu] = &line{}
		}
		if p.known[d.UUID] == nil {
			p.known[d.UUID] = &known{}
		}
		if q, due := p.question(d.UUID, held[d.UUID]); due && !p.gpus[gpu].out() {
			questions[gpu] = append(questions[gpu], q)
			asked++
		}
	}
	answers = make(chan answer, asked)
	for gpu, all := range questions {
		p.gpus[gpu].start(func() {
			for _, q := range all {
				answers <- ask(p.driver, q)
			}
		})
	}
	return answers, asked
}

// question is what is due to be asked about a device.
func (p *Poller) question(uuid string, held bool) (q question, due bool) {
	k := p.known[uuid]
	q = question{
		uuid:      uuid,
		processes: held && time.Since(k.counted) >= p.periods.Processes,
		health:    time.Since(k.examined) >= p.periods.Health,
	}
	return q, q.health || !k.health.Lost
}

// take is the reading of a device that has answered.
func (p *Poller) take(d device.Device, a answer) Reading {
	k := p.known[d.UUID]
	if a.health {
		k.examined = time.Now()
		if a.conditionErr == nil {
			k.health = a.condition
		}
	}
	if a.is(ErrLost) {
		k.health.Lost, k.examined = true, time.Now()
	}
	if a.processes {
		k.counted, k.processes = time.Now(), device.Gauge{}
		if a.listErr == nil && a.sampleErr == nil {
			k.processes = device.Is(float64(len(a.list)))
		}
	}
	sample := a.sample
	if a.sampleErr != nil {
		sample = device.Sample{Failure: a.sampleErr.Error()}
	}
	// A count of a device that nobody has held since says nothing about now.
	if time.Since(k.counted) < 2*p.periods.Processes {
		sample.Processes = k.processes
	}
	return Reading{Device: d, Sample: sample, Health: k.health}
}

// silent is the reading of a device that has not answered, or was not asked.
func (p *Poller) silent(d device.Device) Reading {
	health := p.known[d.UUID].health
	l := p.gpus[cmp.Or(d.Parent, d.UUID)]
	if !l.out() {
		return Reading{Device: d, Sample: device.Sample{Failure: ErrLost.Error()}, Health: health}
	}
	if l.silence() >= p.periods.Deaf {
		health.Reasons = append(slices.Clip(health.Reasons), "the driver does not answer about it")
	}
	return Reading{Device: d, Sample: device.Sample{Failure: fmt.Sprintf("no answer for %s", l.silence())}, Health: health}
}

// forget drops what is known of devices that have gone. A call that is out is kept:
// its GPU may come back before it.
func (p *Poller) forget() {
	there := map[string]bool{}
	for _, d := range p.roster.devices {
		there[d.UUID], there[cmp.Or(d.Parent, d.UUID)] = true, true
	}
	for uuid := range p.known {
		if !there[uuid] {
			delete(p.known, uuid)
		}
	}
	for gpu, l := range p.gpus {
		if !there[gpu] && !l.out() {
			delete(p.gpus, gpu)
		}
	}
}

package reader

import (
	"errors"

	"github.com/muster-gpu/muster/agent/device"
)

// question is what is asked about one device in one poll.
type question struct {
	uuid string
	// processes and health are asked for beside the sample.
	processes, health bool
}

// answer is what the driver has said to a question.
type answer struct {
	question
	sample    device.Sample
	list      []device.Process
	condition device.Health
	// Each error is of one call; a call that was not made has none.
	sampleErr, listErr, conditionErr error
}

// ask puts a question to the driver, call after call. One that has lost the device is
// not asked further.
func ask(driver Driver, q question) answer {
	a := answer{question: q}
	if q.health {
		a.condition, a.conditionErr = safely(func() (device.Health, error) { return driver.Health(q.uuid) })
	}
	if a.is(ErrLost) || a.is(ErrRestart) {
		a.sampleErr = a.conditionErr
		return a
	}
	a.sample, a.sampleErr = safely(func() (device.Sample, error) { return driver.Sample(q.uuid) })
	if q.processes && a.sampleErr == nil {
		a.list, a.listErr = safely(func() ([]device.Process, error) { return driver.Processes(q.uuid) })
	}
	return a
}

// is says that any call has failed so.
func (a answer) is(target error) bool {
	return errors.Is(a.sampleErr, target) || errors.Is(a.listErr, target) || errors.Is(a.conditionErr, target)
}

package reader

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-gpu/muster/agent/device"
)

// roster is the list of devices. Reading it may take as long as any call; except for
// the first, it is read while the devices of the last one are asked.
type roster struct {
	devices []device.Device
	call    line
	// listed is when a list was asked for that has come.
	listed time.Time
	// err is what the last call that has come back has said.
	err error
	// answers has what the call that is out will say.
	answers chan listing
}

type listing struct {
	devices []device.Device
	err     error
}

// refresh asks for the list if it is older than the period, and takes in what has
// come. Only where there is no list it is waited for, until ctx ends.
func (r *roster) refresh(ctx context.Context, driver Driver, period time.Duration) error {
	r.collect()
	if !r.call.out() && (r.err != nil || time.Since(r.listed) >= period) {
		answers := make(chan listing, 1)
		r.answers = answers
		r.call.start(func() {
			devices, err := safely(driver.Devices)
			answers <- listing{devices, err}
		})
	}
	// It may be back already, with an answer that has not been taken in.
	if len(r.devices) == 0 && r.call.back != nil {
		select {
		case <-r.call.back:
			r.collect()
		case <-ctx.Done():
		}
	}
	switch {
	case r.call.out() && (len(r.devices) == 0 || r.call.silence() >= period):
		return fmt.Errorf("listing devices: no answer for %s", r.call.silence())
	case r.err != nil:
		return fmt.Errorf("listing devices: %w", r.err)
	}
	return nil
}

// collect takes in the answer that has come, if any.
func (r *roster) collect() {
	select {
	case said := <-r.answers:
		r.err = said.err
		if said.err == nil {
			r.devices, r.listed = said.devices, r.call.since
		}
	default:
	}
}

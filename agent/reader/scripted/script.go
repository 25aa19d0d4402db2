package scripted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/muster-gpu/muster/agent/device"
)

// Script is what devices there are and what they do, as a file of JSON has it.
type Script struct {
	Devices []ScriptedDevice `json:"devices"`
}

// ScriptedDevice is a device and what it does.
type ScriptedDevice struct {
	device.Device
	// Activity as ParseActivity reads it; "" while nobody holds the device.
	Activity string `json:"activity,omitempty"`
	// Since is when the activity began.
	Since time.Time `json:"since,omitzero"`
}

// followEvery is how often a script is read again.
const followEvery = time.Second

// Follow has the driver do what the script at that path says, until ctx ends. Before it
// can be read there are no devices, and Devices returns why; later, what was read last
// holds on.
func Follow(ctx context.Context, path string) *Driver {
	d := New()
	var last []byte
	look := func() {
		content, err := os.ReadFile(path)
		if err == nil && slices.Equal(content, last) {
			return
		}
		if err == nil {
			err = d.play(content)
		}
		if err != nil {
			d.fail(fmt.Errorf("reading the script of devices: %w", err))
			return
		}
		last = content
		d.fail(nil)
	}
	look()
	go func() {
		tick := time.NewTicker(followEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				look()
			}
		}
	}()
	return d
}

// play takes a script over, whole or not at all.
func (d *Driver) play(content []byte) error {
	var script Script
	if err := json.Unmarshal(content, &script); err != nil {
		return err
	}
	devices := make([]device.Device, len(script.Devices))
	does := map[string]doing{}
	for i, s := range script.Devices {
		if s.UUID == "" {
			return errors.New("a device has no UUID")
		}
		devices[i] = s.Device
		activity := Unused
		if s.Activity != "" {
			var err error
			if activity, err = ParseActivity(s.Activity); err != nil {
				return fmt.Errorf("device %s: %w", s.UUID, err)
			}
		}
		does[s.UUID] = doing{activity: activity, since: s.Since}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.devices, d.does = devices, does
	d.changed.Broadcast()
	return nil
}

// fail has Devices return that, where there are none yet.
func (d *Driver) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing = err
}

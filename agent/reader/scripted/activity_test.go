package scripted_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-gpu/muster/agent/device"
	"github.com/muster-gpu/muster/agent/reader/scripted"
)

func TestParseActivity(t *testing.T) {
	for _, text := range []string{"busy", "idle", "idle-after=60s", "stalled", "ghost", "hang", "lost"} {
		if _, err := scripted.ParseActivity(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"", "Busy", "idle-after=", "idle-after=-1s", "idle-after=soon", "sleeping"} {
		if _, err := scripted.ParseActivity(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestIdleAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := scripted.New(device.Device{UUID: "GPU-0"})
		a, err := scripted.ParseActivity("idle-after=60s")
		if err != nil {
			t.Fatal(err)
		}
		d.Set("GPU-0", a)
		for at := 0; at < 120; at += 15 {
			// The same again does not begin anew.
			d.Set("GPU-0", a)
			s, err := d.Sample("GPU-0")
			if err != nil {
				t.Fatal(err)
			}
			if works, want := s.Busy.AtLeast(0.5), at < 60; works != want {
				t.Errorf("after %d s: busy is %t", at, works)
			}
			time.Sleep(15 * time.Second)
		}
	})
}

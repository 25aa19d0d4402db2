package scripted_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-gpu/muster/agent/reader/scripted"
)

// await fails the test if it does not become so in a while.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func TestADriverDoesWhatItsScriptSays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "script.json")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := scripted.Follow(t.Context(), path)
	if _, err := d.Devices(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("without a script: %v", err)
	}
	write(`{"devices": [{"UUID": "GPU-0", "activity": "busy"}, {"UUID": "GPU-1", "activity": "hang"}]}`)
	await(t, "the devices do not come", func() bool { all, err := d.Devices(); return err == nil && len(all) == 2 })
	back := make(chan error, 1)
	go func() { _, err := d.Sample("GPU-1"); back <- err }()
	if s, err := d.Sample("GPU-0"); err != nil || !s.Busy.AtLeast(0.9) {
		t.Errorf("a busy device: %+v, %v", s, err)
	}
	await(t, "no call is out", func() bool { return d.Calls("Sample GPU-1") > 0 })

	write(`{"devices": [{"UUID": "GPU-0", "activity": "sleeping"}, {"UUID": "GPU-1", "activity": "idle"}]}`)
	time.Sleep(1100 * time.Millisecond)
	select {
	case err := <-back:
		t.Errorf("half of a script that is wrong has been taken over: %v", err)
	default:
	}
	write(`{"devices": [{"UUID": "GPU-0", "activity": "idle-after=60s", "since": "2026-11-30T10:00:00Z"}, {"UUID": "GPU-1", "activity": "idle"}]}`)
	if err := <-back; err != nil {
		t.Errorf("the call that hung: %v", err)
	}
	if s, err := d.Sample("GPU-0"); err != nil || !s.Busy.Below(0.1) {
		t.Errorf("a device that has been idle since long: %+v, %v", s, err)
	}
}

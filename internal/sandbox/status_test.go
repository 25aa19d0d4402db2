package sandbox

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestExportLineSurvivesAShell(t *testing.T) {
	for path, want := range map[string]string{
		"/home/me/.sandbox/kubeconfig": "export KUBECONFIG=/home/me/.sandbox/kubeconfig",
		"/tmp/a b/kubeconfig":          "export KUBECONFIG='/tmp/a b/kubeconfig'",
		"/tmp/it's/$HOME":              `export KUBECONFIG='/tmp/it'\''s/$HOME'`,
	} {
		if got := ExportLine(path); got != want {
			t.Errorf("ExportLine(%s) = %s, want %s", path, got, want)
		}
	}
}

func TestStatusTellsTheLivingFromTheDead(t *testing.T) {
	dir := t.TempDir()
	l := layout{dir: dir}
	if err := PrintStatus(dir, &strings.Builder{}, time.Now()); err == nil {
		t.Error("the status of an empty folder is not an error")
	}
	self, err := identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	living, _ := startSleeper(t, dir)
	now := time.Now()
	gone := Process{PID: living.PID, StartTicks: living.StartTicks + 1}
	state := &State{Phase: Ready, Supervisor: self, Started: now.Add(-time.Minute), Kubeconfig: "/k", Components: []Component{
		{Name: "etcd", Process: living, Started: now.Add(-30 * time.Second), Restarts: 2},
		{Name: "jobset", Process: gone, Exit: "signal: killed"},
		{Name: "trainer", Process: gone},
	}}
	if err := state.write(l); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := PrintStatus(dir, &out, now); err != nil {
		t.Fatal(err)
	}
	lines := map[string]string{}
	for line := range strings.Lines(out.String()) {
		if fields := strings.Fields(line); len(fields) > 2 {
			lines[fields[0]] = strings.Join(fields[2:], " ")
		}
	}
	for name, want := range map[string]string{
		"supervisor": "Ready 0 60s ", "etcd": "Running 2 30s", "jobset": "Ended (signal: killed) 0 -", "trainer": "Dead 0 -",
	} {
		if !strings.HasPrefix(lines[name]+" ", want) {
			t.Errorf("row of %s is %q, want %q", name, lines[name], want)
		}
	}
}

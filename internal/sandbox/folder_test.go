package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStateSurvivesWritingAndReading(t *testing.T) {
	l := layout{dir: t.TempDir()}
	if _, err := readState(l); !errors.Is(err, errNoSandbox) {
		t.Errorf("reading no state: %v, want %v", err, errNoSandbox)
	}
	want := &State{
		Phase: Ready, Supervisor: Process{PID: 1, StartTicks: 2}, ControlPort: 20000, Token: "t", Kubeconfig: "/k",
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Options: Options{Dir: "/d", Nodes: 4, With: []string{"jobset"}},
		Components: []Component{{Name: "etcd", Process: Process{PID: 3, StartTicks: 4}, Ports: map[string]int{"serving": 20001}, Log: "/l"}},
	}
	if err := want.write(l); err != nil {
		t.Fatal(err)
	}
	got, err := readState(l)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	entries, err := os.ReadDir(l.dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("writing left %v, %v in the folder, want the state alone", entries, err)
	}
	if got.component("etcd") == nil || got.component("nothing") != nil {
		t.Error("component does not find by name")
	}
	if diff := cmp.Diff([]Process{{1, 2}, {3, 4}}, got.processes()); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
}

func TestADamagedStateIsNamed(t *testing.T) {
	l := layout{dir: t.TempDir()}
	if err := os.WriteFile(l.state(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readState(l); err == nil || errors.Is(err, errNoSandbox) || !strings.Contains(err.Error(), l.state()) {
		t.Errorf("error = %v, want one that names %s", err, l.state())
	}
}

func TestTheLockIsHeldOnce(t *testing.T) {
	l := layout{dir: filepath.Join(t.TempDir(), "new")}
	if err := l.claim(); err != nil {
		t.Fatal(err)
	}
	lock, err := l.hold()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.hold(); !errors.Is(err, errLocked) {
		t.Errorf("second hold: %v, want %v", err, errLocked)
	}
	if err := refuseSecond(l); err == nil || !strings.Contains(err.Error(), "already runs in "+l.dir) {
		t.Errorf("refusal = %v", err)
	}
	lock.Close()
	if err := refuseSecond(l); err != nil {
		t.Errorf("after the lock is free: %v", err)
	}
}

func TestClaimRefusesAFolderOfSomethingElse(t *testing.T) {
	l := layout{dir: t.TempDir()}
	precious := filepath.Join(l.dir, "thesis.tex")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.claim(); err == nil || !strings.Contains(err.Error(), "is not a sandbox folder") {
		t.Errorf("claim = %v", err)
	}
}

func TestDownKillsWhatACrashLeftAndKeepsTheLogs(t *testing.T) {
	dir := t.TempDir()
	l := layout{dir: dir}
	if err := l.claim(); err != nil {
		t.Fatal(err)
	}
	recorded, _ := startSleeper(t, "elsewhere")
	unrecorded, _ := startSleeper(t, dir)
	bystander, _ := startSleeper(t, dir+"-other")
	state := &State{Supervisor: Process{PID: bystander.PID, StartTicks: bystander.StartTicks + 1},
		Components: []Component{{Name: "etcd", Process: recorded}}}
	if err := state.write(l); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.log("etcd"), []byte("last words\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Down(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if recorded.Alive() || unrecorded.Alive() {
		t.Errorf("alive after down: recorded %v, unrecorded %v", recorded.Alive(), unrecorded.Alive())
	}
	if !bystander.Alive() {
		t.Error("down killed a process that only has the pid of the dead supervisor")
	}
	if _, err := os.Stat(l.state()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state is still there: %v", err)
	}
	if got := lastLines(l.log("etcd"), 5); len(got) != 1 || got[0] != "last words" {
		t.Errorf("log = %q", got)
	}
	if err := Down(t.Context(), dir); err != nil {
		t.Errorf("a second down: %v", err)
	}
}

func TestDownOfAFolderThatIsNoSandboxTouchesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "config"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Down(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "config")); err != nil {
		t.Errorf("down deleted a folder that is not its own: %v", err)
	}
}

func TestClaimedPortsAreFreeAndNotSharedBetweenSandboxes(t *testing.T) {
	seen := map[int]bool{}
	for range 4 {
		ports, claim, err := claimPorts()
		if err != nil {
			t.Fatal(err)
		}
		defer claim.Close()
		if second, err := listenLoopback(ports.base); err == nil {
			second.Close()
			t.Errorf("port %d is claimed and can be bound again", ports.base)
		}
		for range portBlock - 1 {
			port := ports.next()
			if seen[port] {
				t.Errorf("port %d was handed out twice", port)
			}
			seen[port] = true
			listener, err := listenLoopback(port)
			if err != nil {
				t.Errorf("port %d is not free: %v", port, err)
				continue
			}
			listener.Close()
		}
	}
}

func TestABlockWithATakenPortIsNotChosen(t *testing.T) {
	ports, claim, err := claimPorts()
	if err != nil {
		t.Fatal(err)
	}
	defer claim.Close()
	taken, err := listenLoopback(ports.base + 5)
	if err != nil {
		t.Fatal(err)
	}
	if blockFree(ports.base) {
		t.Error("a block counts as free although one of its ports is bound")
	}
	taken.Close()
	if !blockFree(ports.base) {
		t.Error("a block counts as taken although only its first port is bound")
	}
}

func TestOptions(t *testing.T) {
	wrong := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(wrong, []byte("apiVersion: config.muster.dev/v1alpha1\nkind: SchedulerConfiguration\nunquoted: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name    string
		options Options
		wantErr string
	}{
		{name: "a configuration with an unknown field", options: Options{Config: wrong}, wantErr: "configuration " + wrong + ": unknown field \"unquoted\""},
		{name: "all defaults"},
		{name: "a comparison cluster", options: Options{With: []string{"trainer", "jobset", "kube-scheduler"}}},
		{name: "Kubeflow's version 1", options: Options{With: []string{"training-operator", "scheduler", "webhook"}}},
		{name: "two schedulers of different pods", options: Options{With: []string{"scheduler", "coscheduling"}}},
		{name: "too few nodes", options: Options{Nodes: -1}, wantErr: "nodes is -1, want 1 to 10000"},
		{name: "a part that does not exist", options: Options{With: []string{"istio"}}, wantErr: `with names "istio"`},
		{name: "the Trainer without JobSet", options: Options{With: []string{"trainer"}}, wantErr: "trainer without jobset"},
		{name: "two schedulers", options: Options{With: []string{"scheduler", "kube-scheduler"}}, wantErr: "choose one"},
		{name: "a configuration for nobody", options: Options{With: []string{"jobset"}, Config: "x"}, wantErr: "does not name scheduler"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			completed, err := c.options.complete()
			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Fatalf("error = %v, want one with %q", err, c.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !filepath.IsAbs(completed.Dir) || completed.Nodes != 4 || completed.GPUsPerNode != 8 {
				t.Errorf("completed = %+v", completed)
			}
		})
	}
}

func TestProgramsThatAreNotBuiltAreNamed(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", t.TempDir())
	bin := t.TempDir()
	for _, name := range []string{binaryEtcd, binaryAPIServer, binaryControllerManager, binarySandbox} {
		if err := os.WriteFile(filepath.Join(bin, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	options := Options{BinDir: bin, With: []string{WithJobSet, WithScheduler}}
	err := options.checkBinaries()
	want := "not built yet: " + filepath.Join(bin, "jobset-controller") + ", " + filepath.Join(bin, "scheduler")
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error = %v, want %s...", err, want)
	}
	assets := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "etcd")
	if got := options.binary(binaryEtcd); got != filepath.Join(bin, "etcd") {
		t.Errorf("etcd from an empty KUBEBUILDER_ASSETS: %s", got)
	}
	if err := os.WriteFile(assets, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := options.binary(binaryEtcd); got != assets {
		t.Errorf("etcd = %s, want that of KUBEBUILDER_ASSETS", got)
	}
}

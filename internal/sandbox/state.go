package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Phase is where a sandbox stands in its life.
type Phase string

// The phases, in the order in which a sandbox goes through them.
const (
	Starting Phase = "Starting"
	Ready    Phase = "Ready"
	Stopping Phase = "Stopping"
	Failed   Phase = "Failed"
)

// State is what a sandbox's folder says about it. The supervisor is its only
// writer.
type State struct {
	Phase Phase `json:"phase"`
	// Error is one sentence, set when Phase is Failed.
	Error string `json:"error,omitempty"`
	// Supervisor owns all other processes.
	Supervisor Process `json:"supervisor"`
	// ControlPort on 127.0.0.1 takes kill and restart, with Token.
	ControlPort int    `json:"controlPort"`
	Token       string `json:"token"`
	// Kubeconfig is the absolute path of the administrator's kubeconfig.
	Kubeconfig string    `json:"kubeconfig"`
	Started    time.Time `json:"started"`
	Options    Options   `json:"options"`
	// Components are in the order in which they were started.
	Components []Component `json:"components"`
}

// Component is one process of the control plane.
type Component struct {
	Name    string  `json:"name"`
	Process Process `json:"process"`
	// Ports by purpose: "serving", "webhook", "health", "peer".
	Ports map[string]int `json:"ports,omitempty"`
	// Log is the absolute path of its output.
	Log string `json:"log"`
	// Started is when the present process started.
	Started time.Time `json:"started"`
	// Restarts counts the starts after the first.
	Restarts int `json:"restarts"`
	// Exit says how the process ended, as "exit status 1"; empty while it runs.
	Exit string `json:"exit,omitempty"`
}

// errNoSandbox: the folder holds no state of a sandbox.
var errNoSandbox = errors.New("no sandbox")

// readState returns errNoSandbox, wrapped, when there is no state file.
func readState(l layout) (*State, error) {
	content, err := os.ReadFile(l.state())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s", errNoSandbox, l.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the sandbox's state: %w", err)
	}
	state := &State{}
	if err := json.Unmarshal(content, state); err != nil {
		return nil, fmt.Errorf("reading the sandbox's state %s: %w", l.state(), err)
	}
	return state, nil
}

func (s *State) write(l layout) error {
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the sandbox's state: %w", err)
	}
	return writeFile(l.state(), append(content, '\n'), 0o600)
}

// component returns the entry called name, or nil.
func (s *State) component(name string) *Component {
	for i := range s.Components {
		if s.Components[i].Name == name {
			return &s.Components[i]
		}
	}
	return nil
}

// processes lists every process that the state knows, the supervisor first.
func (s *State) processes() []Process {
	all := []Process{s.Supervisor}
	for _, c := range s.Components {
		all = append(all, c.Process)
	}
	return all
}

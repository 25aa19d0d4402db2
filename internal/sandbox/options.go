package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/simulator"
)

// The parts that Options.With chooses among.
const (
	WithTrainer       = "trainer"
	WithJobSet        = "jobset"
	WithScheduler     = "scheduler"
	WithWebhook       = "webhook"
	WithKubeScheduler = "kube-scheduler"
	WithKueue         = "kueue"

	WithTrainingOperator = "training-operator"

	// WithGPUAgent is Muster's GPU agent on the first nodes, GPUAgents of them.
	WithGPUAgent = "gpu-agent"

	// WithCoscheduling is the scheduler of scheduler-plugins with its plugin for
	// gangs. It serves CoschedulingName, beside any other scheduler.
	WithCoscheduling = "coscheduling"
	// WithPodGroups is the definition of scheduler-plugins' PodGroup alone, which
	// trainer and coscheduling bring too.
	WithPodGroups = "podgroups"
)

// CoschedulingName is the schedulerName of the pods that coscheduling schedules.
const CoschedulingName = "scheduler-plugins-scheduler"

// DefaultParts are those of a sandbox for which no others are asked.
var DefaultParts = []string{WithTrainer, WithJobSet, WithScheduler, WithWebhook, WithGPUAgent}

// maxGPUAgents is for how many a sandbox has ports.
const maxGPUAgents = 12

// DefaultDir is the folder of a sandbox that is given none, relative to the
// working folder. The demo and tests have folders beside it.
const DefaultDir = ".sandbox/default"

// Options say what sandbox to run. The zero value of each field is its
// default.
type Options struct {
	// Dir holds everything the sandbox writes. Default: DefaultDir in the
	// working folder.
	Dir string `json:"dir"`
	// BinDir holds the programs, and upstream/ with the manifests of the
	// upstream controllers. Default: the folder of the running executable.
	BinDir string `json:"binDir"`
	// Nodes is the number of simulated nodes (4), GPUsPerNode what each has
	// (8), GPUProduct their nvidia.com/gpu.product label.
	Nodes       int    `json:"nodes"`
	GPUsPerNode int    `json:"gpusPerNode"`
	GPUProduct  string `json:"gpuProduct"`
	// Devices has the nodes' GPUs published as ResourceSlices in place of a device
	// plugin's capacity, with the DeviceClass gpu.nvidia.com.
	Devices bool `json:"devices,omitempty"`
	// NodeLabels names a YAML file: node name, or "*" for all, to labels.
	NodeLabels string `json:"nodeLabels,omitempty"`
	// With lists the parts to run beside the control plane and the nodes.
	// Default: DefaultParts.
	With []string `json:"with"`
	// Config names a configuration file for Muster's scheduler; the sandbox
	// fills in the connection and the port.
	Config string `json:"config,omitempty"`
	// GPUAgents is on how many of the nodes, from node-0 up, a GPU agent runs, each a
	// process of some 40 MiB (all nodes, but no more than 4).
	GPUAgents int `json:"gpuAgents"`
	// GPUAgentConfig names a configuration file for the GPU agents; the sandbox fills
	// in the connection, the reader and the ports.
	GPUAgentConfig string `json:"gpuAgentConfig,omitempty"`
	// NativePodGroups turns Kubernetes' own PodGroups (scheduling.k8s.io) on in the
	// control plane.
	NativePodGroups bool `json:"nativePodGroups,omitempty"`
	// Audit has the API server write down what Muster's programs ask of it; see
	// AuditLog.
	Audit bool `json:"audit,omitempty"`
	// ClientQPS is how many requests a second Muster's scheduler, Kueue's manager
	// and coscheduling may send to the API server (500), and half of how many at
	// once.
	ClientQPS int `json:"clientQPS"`
	// Progress receives one line per step while the sandbox comes up.
	// Default: nothing is written.
	Progress io.Writer `json:"-"`
}

// Has says whether part is among the parts to run.
func (o Options) Has(part string) bool { return slices.Contains(o.With, part) }

// complete fills in the defaults, makes the paths absolute and validates.
func (o Options) complete() (Options, error) {
	if o.Dir == "" {
		o.Dir = DefaultDir
	}
	if o.BinDir == "" {
		executable, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("finding the folder of the programs: %w", err)
		}
		o.BinDir = filepath.Dir(executable)
	}
	for _, path := range []*string{&o.Dir, &o.BinDir, &o.NodeLabels, &o.Config, &o.GPUAgentConfig} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return o, fmt.Errorf("making %s absolute: %w", *path, err)
		}
		*path = absolute
	}
	if o.Nodes == 0 {
		o.Nodes = 4
	}
	if o.GPUsPerNode == 0 {
		o.GPUsPerNode = 8
	}
	if o.ClientQPS == 0 {
		o.ClientQPS = 500
	}
	if o.GPUProduct == "" {
		o.GPUProduct = simulator.DefaultGPUProduct
	}
	if len(o.With) == 0 {
		o.With = slices.Clone(DefaultParts)
	}
	if o.GPUAgents == 0 && o.Has(WithGPUAgent) {
		o.GPUAgents = min(o.Nodes, 4)
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	return o, o.validate()
}

func (o Options) validate() error {
	var errs []error
	if o.Nodes < 1 || o.Nodes > 10000 {
		errs = append(errs, fmt.Errorf("nodes is %d, want 1 to 10000", o.Nodes))
	}
	if o.Config != "" {
		// The scheduler gets a copy, and would name that one.
		if _, err := configv1alpha1.LoadScheduler(o.Config); err != nil {
			errs = append(errs, err)
		}
	}
	if o.GPUsPerNode < 0 || o.GPUsPerNode > 1024 {
		errs = append(errs, fmt.Errorf("gpus-per-node is %d, want 0 to 1024", o.GPUsPerNode))
	}
	if o.ClientQPS < 1 || o.ClientQPS > 100000 {
		errs = append(errs, fmt.Errorf("client-qps is %d, want 1 to 100000", o.ClientQPS))
	}
	if o.GPUAgentConfig != "" {
		if _, err := configv1alpha1.LoadGPUAgent(o.GPUAgentConfig); err != nil {
			errs = append(errs, err)
		}
	}
	if most := min(o.Nodes, maxGPUAgents); o.GPUAgents < 0 || o.GPUAgents > most {
		errs = append(errs, fmt.Errorf("gpu-agents is %d, want 0 to %d", o.GPUAgents, most))
	}
	if !o.Has(WithGPUAgent) && (o.GPUAgents > 0 || o.GPUAgentConfig != "") {
		errs = append(errs, errors.New("gpu-agents or gpu-agent-config is given, but with does not name gpu-agent"))
	}
	known := []string{WithTrainer, WithJobSet, WithScheduler, WithWebhook, WithGPUAgent, WithKubeScheduler, WithKueue, WithTrainingOperator, WithCoscheduling, WithPodGroups}
	for _, part := range o.With {
		if !slices.Contains(known, part) {
			errs = append(errs, fmt.Errorf("with names %q, want some of %s", part, strings.Join(known, ", ")))
		}
	}
	if o.Has(WithTrainer) && !o.Has(WithJobSet) {
		errs = append(errs, errors.New("with names trainer without jobset, on which the Trainer builds"))
	}
	if o.Has(WithScheduler) && o.Has(WithKubeScheduler) {
		errs = append(errs, errors.New("with names scheduler and kube-scheduler; both schedule pods of default-scheduler, choose one"))
	}
	if o.NodeLabels != "" {
		if _, err := simulator.ReadNodeLabels(o.NodeLabels); err != nil {
			errs = append(errs, err)
		}
	}
	if o.Config != "" && !o.Has(WithScheduler) {
		errs = append(errs, errors.New("config is given, but with does not name scheduler"))
	}
	return errors.Join(errs...)
}

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

	// WithCoscheduling is the scheduler of scheduler-plugins with its plugin for
	// gangs. It serves CoschedulingName, beside any other scheduler.
	WithCoscheduling = "coscheduling"
	// WithPodGroups is the definition of scheduler-plugins' PodGroup alone, which
	// trainer and coscheduling bring too.
	WithPodGroups = "podgroups"
)

// CoschedulingName is the schedulerName of the pods that coscheduling schedules.
const CoschedulingName = "scheduler-plugins-scheduler"

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
	// Default: trainer, jobset, scheduler, webhook.
	With []string `json:"with"`
	// Config names a configuration file for Muster's scheduler; the sandbox
	// fills in the connection and the port.
	Config string `json:"config,omitempty"`
	// NativePodGroups turns Kubernetes' own PodGroups (scheduling.k8s.io) on in the
	// control plane.
	NativePodGroups bool `json:"nativePodGroups,omitempty"`
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
	for _, path := range []*string{&o.Dir, &o.BinDir, &o.NodeLabels, &o.Config} {
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
		o.With = []string{WithTrainer, WithJobSet, WithScheduler, WithWebhook}
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
	known := []string{WithTrainer, WithJobSet, WithScheduler, WithWebhook, WithKubeScheduler, WithKueue, WithTrainingOperator, WithCoscheduling, WithPodGroups}
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

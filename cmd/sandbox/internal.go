package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-gpu/muster/internal/sandbox"
	"github.com/muster-gpu/muster/internal/simulator"
)

// newSimulate is the process that stands in for the nodes' kubelets.
func newSimulate() *cobra.Command {
	var kubeconfig, labels string
	var options simulator.Options
	command := &cobra.Command{
		Use: "simulate", Hidden: true, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return fmt.Errorf("reading the kubeconfig: %w", err)
			}
			if labels != "" {
				if options.Labels, err = simulator.ReadNodeLabels(labels); err != nil {
					return err
				}
			}
			return simulator.Run(command.Context(), config, options)
		},
	}
	flags := command.Flags()
	flags.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig to connect with")
	flags.IntVar(&options.HealthPort, "health-port", 0, "loopback port for /readyz")
	flags.IntVar(&options.Nodes, "nodes", 4, "number of nodes")
	flags.IntVar(&options.GPUsPerNode, "gpus-per-node", 8, "GPUs of each node")
	flags.StringVar(&options.GPUProduct, "gpu-product", simulator.DefaultGPUProduct, "label nvidia.com/gpu.product")
	flags.IntVar(&options.Agents, "agents", 0, "nodes that have what a GPU agent reads")
	flags.StringVar(&options.AgentDir, "agent-dir", "", "folder of what GPU agents read")
	flags.BoolVar(&options.Devices, "devices", false, "publish the GPUs as ResourceSlices")
	flags.StringVar(&labels, "node-labels", "", "YAML file with more labels")
	return command
}

// newRenderUpstream is a step of the build: it writes bin/upstream.
func newRenderUpstream() *cobra.Command {
	var modules sandbox.UpstreamModules
	var out string
	command := &cobra.Command{
		Use: "render-upstream", Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return sandbox.RenderUpstream(modules, out)
		},
	}
	flags := command.Flags()
	flags.StringVar(&modules.JobSet, "jobset", "", "folder of the module sigs.k8s.io/jobset")
	flags.StringVar(&modules.Trainer, "trainer", "", "folder of the module github.com/kubeflow/trainer/v2")
	flags.StringVar(&modules.SchedulerPlugins, "scheduler-plugins", "", "folder of the module sigs.k8s.io/scheduler-plugins")
	flags.StringVar(&modules.Kueue, "kueue", "", "folder of the module sigs.k8s.io/kueue")
	flags.StringVar(&modules.TrainingOperator, "training-operator", "", "folder of the module github.com/kubeflow/training-operator")
	flags.StringVar(&out, "out", "", "folder to write to")
	if err := command.MarkFlagRequired("out"); err != nil {
		panic(err) // A flag that is not defined above.
	}
	return command
}

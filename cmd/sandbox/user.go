package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/internal/sandbox"
	"github.com/muster-gpu/muster/internal/simulator"
)

func newUp() *cobra.Command {
	var options sandbox.Options
	command := &cobra.Command{
		Use:   "up",
		Short: "Start a sandbox in the background and wait until everything in it is ready",
		Long: `Start a sandbox in the background and wait until everything in it is ready.

Progress goes to standard error. The last line, on standard output, points
kubectl at the sandbox:

  eval "$(sandbox up)"`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if options.Nodes == 0 {
				// In the options it stands for the default.
				return errors.New("nodes is 0, want 1 to 10000")
			}
			options.Progress = command.ErrOrStderr()
			began := time.Now()
			s, err := sandbox.Up(command.Context(), options)
			if err != nil {
				return err
			}
			fmt.Fprintf(command.ErrOrStderr(), "ready after %.1f s\n", time.Since(began).Seconds())
			fmt.Fprintln(command.OutOrStdout(), sandbox.ExportLine(s.Kubeconfig()))
			return nil
		},
	}
	addDir(command, &options.Dir)
	flags := command.Flags()
	flags.IntVar(&options.Nodes, "nodes", 4, "number of simulated nodes")
	flags.IntVar(&options.GPUsPerNode, "gpus-per-node", 8, "GPUs of each node")
	flags.StringVar(&options.GPUProduct, "gpu-product", simulator.DefaultGPUProduct, "label nvidia.com/gpu.product of the nodes")
	flags.BoolVar(&options.Devices, "devices", false, "publish the nodes' GPUs as ResourceSlices, as NVIDIA's driver for dynamic resource allocation does, in place of the capacity of a device plugin")
	flags.StringVar(&options.NodeLabels, "node-labels", "", "YAML file with more labels: node name, or \"*\" for all, to labels")
	flags.StringSliceVar(&options.With, "with", sandbox.DefaultParts,
		"parts to run beside the control plane and the nodes; also kube-scheduler, in place of scheduler, kueue, training-operator, coscheduling, and podgroups, which is a definition only")
	flags.IntVar(&options.GPUAgents, "gpu-agents", 0, "nodes, from node-0 up, on which a GPU agent runs, each a process (default: all, but no more than 4)")
	flags.StringVar(&options.GPUAgentConfig, "gpu-agent-config", "", "configuration file for the GPU agents")
	flags.IntVar(&options.ClientQPS, "client-qps", 500, "requests a second that Muster's scheduler, Kueue and coscheduling may send to the API server, and half of how many at once")
	flags.BoolVar(&options.NativePodGroups, "native-pod-groups", false, "turn Kubernetes' own PodGroups (scheduling.k8s.io) on in the control plane")
	flags.StringVar(&options.Config, "config", "", "configuration file for Muster's scheduler")
	return command
}

func newDown() *cobra.Command {
	var dir string
	command := &cobra.Command{
		Use: "down", Short: "Stop a sandbox, or what a crash left of it, and leave no process", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return sandbox.Down(command.Context(), dir)
		},
	}
	addDir(command, &dir)
	return command
}

func newStatus() *cobra.Command {
	var dir string
	command := &cobra.Command{
		Use: "status", Short: "Show the components of a sandbox", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return sandbox.PrintStatus(dir, command.OutOrStdout(), time.Now())
		},
	}
	addDir(command, &dir)
	return command
}

func newLogs() *cobra.Command {
	var dir string
	var follow bool
	command := &cobra.Command{
		Use: "logs COMPONENT", Short: "Print the log of a component, or of the supervisor", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return sandbox.Logs(command.Context(), dir, args[0], command.OutOrStdout(), follow)
		},
	}
	addDir(command, &dir)
	command.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is added")
	return command
}

func newKill() *cobra.Command {
	var dir string
	command := &cobra.Command{
		Use: "kill COMPONENT", Short: "End a component with SIGKILL; nothing starts it again but restart", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			s, err := sandbox.Open(dir)
			if err != nil {
				return err
			}
			return s.Kill(command.Context(), args[0])
		},
	}
	addDir(command, &dir)
	return command
}

func newRestart() *cobra.Command {
	var dir string
	command := &cobra.Command{
		Use: "restart COMPONENT", Short: "Stop a component if it runs, start it and wait until it is ready", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			s, err := sandbox.Open(dir)
			if err != nil {
				return err
			}
			return s.Restart(command.Context(), args[0])
		},
	}
	addDir(command, &dir)
	return command
}

// newSupervise is the detached process that "up" starts.
func newSupervise() *cobra.Command {
	return &cobra.Command{
		Use: "supervise", Hidden: true, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return sandbox.Supervise(command.Context(), os.Stdin, sandbox.EventPipe())
		},
	}
}

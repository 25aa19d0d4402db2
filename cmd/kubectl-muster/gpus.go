package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/internal/show"
)

func newGPUs(c *connection) *cobra.Command {
	var output outputFlags
	var options show.GPUOptions
	command := &cobra.Command{
		Use: "gpus", Aliases: []string{"gpu"}, Short: "Show the GPUs, who holds them, and what the holders do with them", Args: cobra.NoArgs,
		Long: `Show the GPUs, who holds them, and what the holders do with them, as the GPU agents
have written it into GPUNodes; then how many each queue and namespace has, and the
GPU-hours for which those that are idle or stalled now have been so.`,
		Example: `  # GPUs that are held and not used, and what that has cost so far
  kubectl muster gpus --idle --price 2.50

  # Sums only
  kubectl muster gpus --summary`,
		RunE: func(command *cobra.Command, _ []string) error {
			o, err := output.output(command)
			if err != nil {
				return err
			}
			if options.Price < 0 {
				return errors.New("--price is less than 0")
			}
			cluster, err := c.cluster()
			if err != nil {
				return err
			}
			return cluster.ShowGPUs(command.Context(), o, options)
		},
	}
	output.add(command)
	flags := command.Flags()
	flags.StringVar(&options.Node, "node", "", "GPUs of one node")
	flags.StringVar(&options.Queue, "queue", "", "GPUs that are charged to a ClusterQueue")
	flags.BoolVar(&options.Idle, "idle", false, "GPUs that are held and idle or stalled")
	flags.BoolVar(&options.Summary, "summary", false, "no GPUs, but the sums by queue and namespace")
	flags.Float64Var(&options.Price, "price", 0, "price of an hour of one GPU, to tell what idle ones cost")
	complete(command, "node", c.named((*show.Cluster).GPUNodeNames))
	complete(command, "queue", c.named((*show.Cluster).QueueNames))
	return command
}

package main

import (
	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/internal/show"
)

func newQueues(c *connection) *cobra.Command {
	var output outputFlags
	var namespaces namespaceFlag
	command := &cobra.Command{
		Use: "queues [NAME]", Aliases: []string{"queue"}, Short: "Show the tree of queues, their quota and who uses it", Args: cobra.MaximumNArgs(1),
		Long: `Show the tree of queues: Cohorts, ClusterQueues and, with -n or -A, LocalQueues, with
their quota by flavor and resource, GPUs first.

USED is what admitted jobs have, BORROWED what of it is beyond the queue's nominal quota,
LENT what is left of its nominal quota and cannot be used now, because others of its
cohort use it.`,
		Example: `  # The whole tree
  kubectl muster queues

  # One ClusterQueue with its LocalQueues in all namespaces
  kubectl muster queues research -A`,
		ValidArgsFunction: completion(c.named((*show.Cluster).QueueNames), true),
		RunE: func(command *cobra.Command, args []string) error {
			o, err := output.output(command)
			if err != nil {
				return err
			}
			options := show.QueueOptions{Local: namespaces.all || *c.Namespace != ""}
			if options.Namespace, err = namespaces.of(c); err != nil {
				return err
			}
			if len(args) > 0 {
				options.Name = args[0]
			}
			cluster, err := c.cluster()
			if err != nil {
				return err
			}
			return cluster.ShowQueues(command.Context(), o, options)
		},
	}
	output.add(command)
	namespaces.add(command)
	return command
}

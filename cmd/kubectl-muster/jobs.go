package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/internal/show"
)

func newJobs(c *connection) *cobra.Command {
	var output outputFlags
	var namespaces namespaceFlag
	var options show.JobOptions
	command := &cobra.Command{
		Use: "jobs", Aliases: []string{"job"}, Short: "Show the jobs that run and wait", Args: cobra.NoArgs,
		Long: `Show the jobs that run and wait: their size, how many of their pods are ready, their
place among those that wait in their LocalQueue, for how long they have run or waited, and
why they wait. Jobs that have ended are shown with --state=finished.`,
		Example: `  # The jobs of a namespace
  kubectl muster jobs -n team-nlp

  # What waits in a ClusterQueue, with the reasons in full
  kubectl muster jobs -A --queue research --state pending -o wide`,
		RunE: func(command *cobra.Command, _ []string) error {
			o, err := output.output(command)
			if err != nil {
				return err
			}
			if options.Namespace, err = namespaces.of(c); err != nil {
				return err
			}
			cluster, err := c.cluster()
			if err != nil {
				return err
			}
			return cluster.ShowJobs(command.Context(), o, options)
		},
	}
	output.add(command)
	namespaces.add(command)
	command.Flags().StringVar(&options.Queue, "queue", "", "LocalQueue, or ClusterQueue")
	command.Flags().StringVar(&options.State, "state", "", "pending, running or finished")
	complete(command, "queue", c.named((*show.Cluster).QueueNames))
	complete(command, "state", func(context.Context, *cobra.Command) ([]string, error) { return show.States, nil })
	return command
}

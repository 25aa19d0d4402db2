package main

import (
	"github.com/spf13/cobra"
)

func newExplain(c *connection) *cobra.Command {
	var output outputFlags
	var reach schedulerFlags
	command := &cobra.Command{
		Use: "explain JOB", Short: "Show why a job waits, or where it runs and how well", Args: cobra.ExactArgs(1),
		Long: `Show why a job waits, its place in the queue and what holds the queue's quota; or where
it runs, how close its pods are to each other, and what it does with its GPUs.

With --scheduler the scheduler is asked too, so that the reason has the numbers of this
moment and the place is that in the ClusterQueue, also for jobs far behind.

JOB is a name, kind/name, or the name of one of the job's pods or of its Workload.`,
		Example: `  kubectl muster explain banana -n team-nlp
  kubectl muster explain trainjob/banana
  kubectl muster explain pod/apple-node-0-0-9rd2h`,
		ValidArgsFunction: completion(c.jobNames(), true),
		RunE: func(command *cobra.Command, args []string) error {
			o, err := output.output(command)
			if err != nil {
				return err
			}
			namespace, err := c.namespace()
			if err != nil {
				return err
			}
			cluster, err := c.cluster()
			if err != nil {
				return err
			}
			scheduler, err := reach.scheduler(c)
			if err != nil {
				return err
			}
			return cluster.ShowExplanation(command.Context(), o, namespace, args[0], scheduler)
		},
	}
	output.add(command)
	reach.add(command)
	return command
}

package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func newSimulate(c *connection) *cobra.Command {
	var output outputFlags
	var reach schedulerFlags
	var file string
	command := &cobra.Command{
		Use: "simulate -f FILE", Short: "Ask the scheduler what would become of a job, without creating it", Args: cobra.NoArgs,
		Long: `Ask the scheduler what would become of the jobs in a file if they were created now: on
which nodes they would start, whom they would preempt, or why they would wait. Each is
asked about as if it were the only one. Nothing is created, reserved or written.

Each job is first created as a dry run, with your rights, so that webhooks and policies
have their say, and the runtime of a TrainJob is read.`,
		Example: `  kubectl muster simulate -f job.yaml --scheduler https://127.0.0.1:10269`,
		RunE: func(command *cobra.Command, _ []string) error {
			o, err := output.output(command)
			if err != nil {
				return err
			}
			scheduler, err := reach.scheduler(c)
			if err != nil {
				return err
			}
			if scheduler == nil {
				return errNoScheduler
			}
			namespace, err := c.namespace()
			if err != nil {
				return err
			}
			cluster, err := c.cluster()
			if err != nil {
				return err
			}
			var in io.Reader = command.InOrStdin()
			if file != "-" {
				opened, err := os.Open(file)
				if err != nil {
					return fmt.Errorf("reading the jobs: %w", err)
				}
				defer opened.Close()
				in = opened
			}
			return cluster.ShowSimulation(command.Context(), o, in, namespace, scheduler)
		},
	}
	output.add(command)
	reach.add(command)
	command.Flags().StringVarP(&file, "filename", "f", "", "file with the jobs; \"-\" is the standard input")
	if err := command.MarkFlagRequired("filename"); err != nil {
		panic(err)
	}
	return command
}

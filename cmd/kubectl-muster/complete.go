package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/internal/show"
)

// completeWithin bounds how long the shell is kept waiting for names.
const completeWithin = 3 * time.Second

// suggestions are what may stand at a place of the command line.
type suggestions func(context.Context, *cobra.Command) ([]string, error)

// complete has the shell complete the values of a flag.
func complete(command *cobra.Command, flag string, of suggestions) {
	if err := command.RegisterFlagCompletionFunc(flag, completion(of, false)); err != nil {
		panic(err)
	}
}

// completion is how cobra asks. Only the first argument is completed where only is set.
func completion(of suggestions, only bool) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if only && len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx := command.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		ctx, stop := context.WithTimeout(ctx, completeWithin)
		defer stop()
		names, err := of(ctx, command)
		if err != nil {
			// A shell shows no errors.
			return nil, cobra.ShellCompDirectiveError
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// named suggests names that are in the cluster.
func (c *connection) named(names func(*show.Cluster, context.Context) ([]string, error)) suggestions {
	return func(ctx context.Context, _ *cobra.Command) ([]string, error) {
		cluster, err := c.cluster()
		if err != nil {
			return nil, err
		}
		return names(cluster, ctx)
	}
}

func (c *connection) jobNames() suggestions {
	return c.named(func(cluster *show.Cluster, ctx context.Context) ([]string, error) {
		namespace, err := c.namespace()
		if err != nil {
			return nil, err
		}
		return cluster.JobNames(ctx, namespace)
	})
}

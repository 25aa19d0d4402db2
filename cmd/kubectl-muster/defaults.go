package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/internal/explain"
)

func newDefaults(c *connection) *cobra.Command {
	command := &cobra.Command{Use: "defaults", Short: "What RuntimeDefaults make of pods"}
	command.AddCommand(newDefaultsExplain(c))
	return command
}

func newDefaultsExplain(c *connection) *cobra.Command {
	var options explain.Options
	command := &cobra.Command{
		Use:   "explain (POD | -f FILE)",
		Short: "Show from where the values of a pod are",
		Long: `Show from where the values of a pod are: from its author or runtime, or from which
RuntimeDefaults. Of a pod that exists, those that were used when it was created are
known by its annotation; of pods and JobSets in a file, what would be added is shown.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if (len(args) == 1) == (options.File != "") {
				return errors.New("name a pod, or a file with -f")
			}
			if len(args) == 1 {
				options.Pod = args[0]
			}
			config, err := c.config()
			if err != nil {
				return err
			}
			if options.Namespace, err = c.namespace(); err != nil {
				return err
			}
			options.Out, options.In = command.OutOrStdout(), command.InOrStdin()
			return explain.Run(command.Context(), config, options)
		},
	}
	command.Flags().StringVarP(&options.File, "filename", "f", "", "file with pods and JobSets; \"-\" is the standard input")
	return command
}

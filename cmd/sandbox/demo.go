package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/muster-gpu/muster/internal/demo"
)

func newDemo() *cobra.Command {
	var dir string
	command := &cobra.Command{
		Use:   "demo",
		Short: "Show two jobs that deadlock on a plain scheduler, and how Muster runs them",
		Long: `Starts two sandboxes below --dir, tells the story on them and takes them down.
Everything that is shown is checked: the exit status is 1 if the cluster did
something else.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return demo.Run(command.Context(), demo.Options{
				Dir:   dir,
				Out:   command.OutOrStdout(),
				Color: os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(os.Stdout.Fd())),
			})
		},
	}
	command.Flags().StringVar(&dir, "dir", filepath.Join(".sandbox", "demo"), "folder of the two sandboxes")
	return command
}

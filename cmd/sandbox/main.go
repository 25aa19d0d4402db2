// Command sandbox runs a real Kubernetes control plane with the Kubeflow
// Trainer, JobSet, Muster and simulated GPU nodes on this machine, without
// containers. Everything it does is in internal/sandbox and
// internal/simulator.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/internal/sandbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "sandbox",
		Short:         "A real Kubernetes control plane with simulated GPU nodes, on this machine, without containers",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newUp(), newDown(), newStatus(), newLogs(), newKill(), newRestart(), newDemo(),
		newSupervise(), newSimulate(), newRenderUpstream())
	return root
}

// addDir adds the flag that every command shares.
func addDir(command *cobra.Command, dir *string) {
	command.Flags().StringVar(dir, "dir", sandbox.DefaultDir, "folder of the sandbox; several run side by side in different folders")
}

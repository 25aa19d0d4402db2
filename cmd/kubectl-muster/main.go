// Command kubectl-muster is the admin's command line: as kubectl-muster in the
// path it is "kubectl muster". What its commands do is in internal packages.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/internal/doctor"
	"github.com/muster-gpu/muster/internal/policyfiles"
)

// exitFindings is the exit status of a command that has found something wrong, and
// has not mended it.
const exitFindings = 2

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	err := newCommand().ExecuteContext(ctx)
	switch {
	case errors.Is(err, doctor.ErrFindings), errors.Is(err, policyfiles.ErrFindings):
		os.Exit(exitFindings)
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	c := newConnection()
	root := &cobra.Command{
		Use: "kubectl-muster", Short: "Look after Muster", SilenceUsage: true, SilenceErrors: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl muster"},
	}
	c.AddFlags(root.PersistentFlags())
	root.AddCommand(newQueues(c), newJobs(c), newExplain(c), newGPUs(c), newSimulate(c), newDoctor(c), newPolicy(), newDefaults(c))
	return root
}

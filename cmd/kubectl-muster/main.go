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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-gpu/muster/internal/doctor"
	"github.com/muster-gpu/muster/internal/version"
)

// exitFindings is the exit status of a doctor that has found something, and has
// not mended it.
const exitFindings = 2

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	err := newCommand().ExecuteContext(ctx)
	switch {
	case errors.Is(err, doctor.ErrFindings):
		os.Exit(exitFindings)
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// connection says which cluster is meant, as with kubectl.
type connection struct{ kubeconfig, context string }

func (c *connection) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.UserAgent = "kubectl-muster/" + version.String()
	return config, nil
}

func newCommand() *cobra.Command {
	var c connection
	root := &cobra.Command{
		Use: "kubectl-muster", Short: "Look after Muster", SilenceUsage: true, SilenceErrors: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl muster"},
	}
	root.PersistentFlags().StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file; the default is kubectl's")
	root.PersistentFlags().StringVar(&c.context, "context", "", "context of the kubeconfig file")
	root.AddCommand(newDoctor(&c))
	return root
}

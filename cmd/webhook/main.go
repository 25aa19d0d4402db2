// Command webhook answers the API server's admission requests: queued jobs are
// created suspended and with Muster's scheduler name, and policies are asked. It serves with a
// certificate that it makes and renews itself, and any number of replicas may run.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/cmd/webhook/app"
	"github.com/muster-gpu/muster/internal/version"
)

func main() { os.Exit(cli.Run(command())) }

func command() *cobra.Command {
	var configFile string
	logging := logs.NewOptions()
	cmd := &cobra.Command{
		Use:     "webhook",
		Short:   "Makes queued jobs wait for admission from the moment they are created",
		Version: version.String(),
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := logsapi.ValidateAndApply(logging, nil); err != nil {
				return err
			}
			ctrllog.SetLogger(klog.Background())
			config := configv1alpha1.DefaultWebhook()
			if configFile != "" {
				var err error
				if config, err = configv1alpha1.LoadWebhook(configFile); err != nil {
					return err
				}
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			a, err := app.New(config)
			if err != nil {
				return err
			}
			return a.Run(ctx)
		},
	}
	cmd.Flags().StringVar(&configFile, "config", "", "path of a WebhookConfiguration file (default: every field at its default)")
	logsapi.AddFlags(logging, cmd.Flags())
	return cmd
}

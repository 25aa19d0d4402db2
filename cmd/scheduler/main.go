// Command scheduler is a kube-scheduler that admits whole jobs: quota and a
// node for every pod, in one decision.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/cmd/scheduler/app"
	"github.com/muster-gpu/muster/internal/version"
)

func main() { os.Exit(cli.Run(command())) }

func command() *cobra.Command {
	var configFile string
	logging := logs.NewOptions()
	cmd := &cobra.Command{
		Use:     "scheduler",
		Short:   "Schedules jobs that share GPUs: quota and nodes for the whole job, or nothing",
		Version: version.String(),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := logsapi.ValidateAndApply(logging, nil); err != nil {
				return err
			}
			ctrllog.SetLogger(klog.Background())
			config := configv1alpha1.DefaultScheduler()
			if configFile != "" {
				var err error
				if config, err = configv1alpha1.LoadScheduler(configFile); err != nil {
					return err
				}
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			klog.FromContext(ctx).Info("Starting Muster's scheduler", "version", version.String())
			a, err := app.New(ctx, config)
			if err != nil {
				return err
			}
			if err := a.Run(ctx); ctx.Err() == nil {
				return fmt.Errorf("scheduler stopped: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&configFile, "config", "", "path of a SchedulerConfiguration file (default: every field at its default)")
	// The kube-scheduler's library brings a --version of its own, which would
	// print the version of Kubernetes.
	cmd.Flags().Bool("version", false, "print the version and exit")
	logsapi.AddFlags(logging, cmd.Flags())
	return cmd
}

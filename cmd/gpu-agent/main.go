// Command gpu-agent says of each GPU of the node that it runs on who holds it and what
// the holder does with it: in the node's GPUNode, and in metrics. It changes nothing
// else.
package main

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/cmd/gpu-agent/app"
	"github.com/muster-gpu/muster/internal/version"
)

func main() { os.Exit(cli.Run(command())) }

func command() *cobra.Command {
	var configFile, node, reader string
	logging := logs.NewOptions()
	cmd := &cobra.Command{
		Use:     "gpu-agent",
		Short:   "Says who holds each GPU of a node, and whether it works",
		Version: version.String(),
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := logsapi.ValidateAndApply(logging, nil); err != nil {
				return err
			}
			config := configv1alpha1.DefaultGPUAgent()
			if configFile != "" {
				var err error
				if config, err = configv1alpha1.LoadGPUAgent(configFile); err != nil {
					return err
				}
			}
			config.NodeName, config.Reader.Kind = cmp.Or(node, config.NodeName), cmp.Or(reader, config.Reader.Kind)
			if err := config.Validate().ToAggregate(); err != nil {
				return err
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
	cmd.Flags().StringVar(&configFile, "config", "", "path of a GPUAgentConfiguration file (default: every field at its default)")
	cmd.Flags().StringVar(&node, "node-name", "", "the Node that the agent runs on, in place of the configuration's")
	cmd.Flags().StringVar(&reader, "reader", "", "nvml or scripted, in place of the configuration's")
	logsapi.AddFlags(logging, cmd.Flags())
	return cmd
}

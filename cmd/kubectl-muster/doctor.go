package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/internal/doctor"
)

func newDoctor(c *connection) *cobra.Command {
	var handOver bool
	var options doctor.Options
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Find what is wrong in the cluster, and mend it on request",
		Long: `Find what is wrong in the cluster, and mend it on request.

With --kueue-handover, what a Kueue manager that runs no more has left behind:
webhooks and conversions that nobody answers, objects stored in an old version,
finalizers and scheduling gates that nobody takes off.

The exit status is 0 if nothing is wrong or all of it was mended, 2 if something
is wrong, 1 if it could not be found out or mended.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if !handOver {
				return errors.New("say what to look for: --kueue-handover, what a Kueue manager that runs no more has left behind; \"kubectl muster doctor --help\" says more")
			}
			config, err := c.config()
			if err != nil {
				return err
			}
			options.Out = command.OutOrStdout()
			return doctor.HandOver(command.Context(), config, options)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&handOver, "kueue-handover", false, "look for what a Kueue manager has left behind")
	flags.BoolVar(&options.Fix, "fix", false, "mend what is found")
	flags.StringVar(&options.WebhookService, "webhook-service", "muster-system/muster-webhook", "namespace and name of the Service of Muster's webhook, which converts v1beta1 from then on")
	flags.StringVar(&options.WebhookURL, "webhook-url", "", "the webhook's URL, where it runs outside the cluster")
	return command
}

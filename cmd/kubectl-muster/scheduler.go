package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/muster-gpu/muster/internal/show"
)

// schedulerAddress is the variable that stands for --scheduler.
const schedulerAddress = "MUSTER_SCHEDULER"

// schedulerFlags say where the scheduler answers questions.
type schedulerFlags struct {
	url, ca    string
	unverified bool
}

func (f *schedulerFlags) add(command *cobra.Command) {
	command.Flags().StringVar(&f.url, "scheduler", os.Getenv(schedulerAddress), "URL at which the leading scheduler answers questions, https://HOST:PORT; the default is $"+schedulerAddress)
	command.Flags().StringVar(&f.ca, "scheduler-ca", "", "file with the authorities of the scheduler's certificate; without it the cluster's")
	command.Flags().BoolVar(&f.unverified, "scheduler-insecure-skip-tls-verify", false, "take any certificate of the scheduler, as for kubectl port-forward to one that makes its own: who listens there gets your credentials")
}

// scheduler is nil if no address is known.
func (f *schedulerFlags) scheduler(c *connection) (*show.Scheduler, error) {
	if f.url == "" {
		return nil, nil
	}
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	return show.ReachScheduler(config, f.url, f.ca, f.unverified)
}

var errNoScheduler = errors.New(`say where the scheduler answers, with --scheduler or $` + schedulerAddress + `; in a cluster it is reached with
  kubectl port-forward -n muster-system POD 10269
where POD is the holder of the Lease muster-system/muster-scheduler, then --scheduler https://127.0.0.1:10269 and --scheduler-ca, or --scheduler-insecure-skip-tls-verify`)

// Command webhook answers the API server's admission requests: queued jobs are
// created suspended and with Muster's scheduler name. It serves with a
// certificate that it makes and renews itself, and any number of replicas may run.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
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
			return run(ctx, config)
		},
	}
	cmd.Flags().StringVar(&configFile, "config", "", "path of a WebhookConfiguration file (default: every field at its default)")
	logsapi.AddFlags(logging, cmd.Flags())
	return cmd
}

// run serves until ctx ends.
func run(ctx context.Context, config *configv1alpha1.WebhookConfiguration) error {
	klog.FromContext(ctx).Info("Starting Muster's webhook", "version", version.String())
	connection, err := clientConfig(config.ClientConnection.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	reader, err := metadata.NewForConfig(connection)
	if err != nil {
		return fmt.Errorf("making a metadata client: %w", err)
	}
	s, err := newService(config, client, reader, clock.RealClock{})
	if err != nil {
		return err
	}
	l, err := listen(config)
	if err != nil {
		return err
	}
	return s.serve(ctx, l)
}

func clientConfig(kubeconfig string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	config.UserAgent = "muster-webhook/" + version.String()
	// The API server waits for these reads, and its own flow control says who
	// waits; client-go's default of 5 a second would queue a burst of jobs here.
	config.QPS = -1
	return config, nil
}

// listeners are open sockets; metrics is nil where the endpoint is off.
type listeners struct {
	webhook, health, metrics net.Listener
}

// listen opens all of them before anything is served, so that a taken port
// stops the program while it is still nobody's webhook.
func listen(config *configv1alpha1.WebhookConfiguration) (listeners, error) {
	var l listeners
	open := []struct {
		what    string
		address string
		to      *net.Listener
	}{
		{"webhook", net.JoinHostPort(config.Webhook.BindAddress, strconv.Itoa(int(config.Webhook.Port))), &l.webhook},
		{"health", config.Health.BindAddress, &l.health},
		{"metrics", config.Metrics.BindAddress, &l.metrics},
	}
	for _, o := range open {
		if o.address == configv1alpha1.MetricsOff {
			continue
		}
		var err error
		if *o.to, err = net.Listen("tcp", o.address); err != nil {
			return listeners{}, fmt.Errorf("%s.bindAddress: %w", o.what, err)
		}
	}
	return l, nil
}

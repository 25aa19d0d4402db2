package app

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/version"
)

// App is the webhook with its sockets open, and nothing served yet.
type App struct {
	service   *service
	listeners listeners
}

// New connects to the API server's configuration and opens the sockets, so
// that a taken port stops the program while it is still nobody's webhook. The
// error names the field whose address cannot be bound.
func New(config *configv1alpha1.WebhookConfiguration) (*App, error) {
	connection, err := clientConfig(config.ClientConnection.Kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	reader, err := metadata.NewForConfig(connection)
	if err != nil {
		return nil, fmt.Errorf("making a metadata client: %w", err)
	}
	objects, err := dynamic.NewForConfig(connection)
	if err != nil {
		return nil, fmt.Errorf("making a dynamic client: %w", err)
	}
	s, err := newService(config, client, reader, objects, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	l, err := listen(config)
	if err != nil {
		return nil, err
	}
	return &App{service: s, listeners: l}, nil
}

// Address is where the API server's calls are answered, over HTTPS.
func (a *App) Address() net.Addr { return a.listeners.webhook.Addr() }

// Run serves until ctx ends, then answers what is in flight and closes the
// sockets. It returns an error if a server fails, and may be called once.
func (a *App) Run(ctx context.Context) error {
	collectLess()
	klog.FromContext(ctx).Info("Starting Muster's webhook", "version", version.String())
	return a.service.serve(ctx, a.listeners)
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

// listen opens all of them, or none.
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
			l.close()
			return listeners{}, fmt.Errorf("%s.bindAddress: %w", o.what, err)
		}
	}
	return l, nil
}

func (l listeners) close() {
	for _, listener := range []net.Listener{l.webhook, l.health, l.metrics} {
		if listener != nil {
			_ = listener.Close()
		}
	}
}

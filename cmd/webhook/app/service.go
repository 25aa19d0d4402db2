package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/muster-gpu/muster/admission/conversion"
	"github.com/muster-gpu/muster/admission/queueing"
	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/certificate"
)

const (
	// drainTime is how long a terminating replica still answers: API servers
	// keep connections to it open and learn late that the endpoint is gone.
	drainTime = 5 * time.Second
	// finishTime bounds the wait for requests in flight after that; none takes
	// longer than the API server's time-out.
	finishTime = 10 * time.Second
)

// service is the running webhook: the certificate's keeper and three servers.
type service struct {
	keeper    *certificate.Keeper
	mutate    http.Handler
	drainTime time.Duration
	draining  atomic.Bool
}

func newService(config *configv1alpha1.WebhookConfiguration, client kubernetes.Interface, reader metadata.Interface, definitions dynamic.Interface, clock clock.Clock) (*service, error) {
	handler := queueing.NewHandler(reader, clock, queueing.Options{
		SchedulerName: config.SchedulerName,
		DefaultQueue:  config.Unqueued == configv1alpha1.UnqueuedDefault,
		Exempt:        config.ExemptNamespaces,
	})
	mutate, err := hook(handler)
	if err != nil {
		return nil, err
	}
	host := config.Webhook.ServiceName + "." + config.Webhook.SecretNamespace + ".svc"
	conversions := &certificate.Conversions{
		Client: definitions, Names: conversion.Definitions(), Service: config.Webhook.SecretNamespace + "/" + config.Webhook.ServiceName,
	}
	for _, h := range config.Webhook.Hosts {
		conversions.Addresses = append(conversions.Addresses, net.JoinHostPort(h, strconv.Itoa(int(config.Webhook.Port))))
	}
	return &service{
		keeper: certificate.New(client, clock, certificate.Options{
			SecretNamespace:   config.Webhook.SecretNamespace,
			SecretName:        config.Webhook.SecretName,
			ConfigurationName: config.Webhook.MutatingConfigurationName,
			Hosts:             slices.Concat([]string{host, host + ".cluster.local"}, config.Webhook.Hosts),
			Conversions:       conversions,
		}),
		mutate:    mutate,
		drainTime: drainTime,
	}, nil
}

// hook makes a handler answer AdmissionReviews. A panic must not become a
// refusal, which is what controller-runtime makes of one by itself: passed on,
// it breaks the connection, and the failure policy lets the object through.
func hook(handler admission.Handler) (http.Handler, error) {
	h, err := admission.StandaloneWebhook(
		(&admission.Webhook{Handler: handler}).WithRecoverPanic(false),
		admission.StandaloneOptions{Logger: klog.Background(), MetricsPath: queueing.Path})
	if err != nil {
		return nil, fmt.Errorf("making the webhook: %w", err)
	}
	return h, nil
}

// serve answers until ctx ends, then drains. It returns an error if a server
// fails; the others are stopped then.
func (s *service) serve(ctx context.Context, l listeners) error {
	asked := ctx
	ctx, fail := context.WithCancelCause(asked)
	defer fail(nil)

	hooks := http.NewServeMux()
	hooks.Handle("POST "+queueing.Path, s.mutate)
	hooks.Handle("POST "+conversion.Path, conversion.Handler())
	webhook := server(hooks)
	health := server(s.health())
	servers := []*http.Server{webhook, health}

	var running sync.WaitGroup
	start := func(name string, server *http.Server, listener net.Listener) {
		running.Go(func() {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				fail(fmt.Errorf("serving %s: %w", name, err))
			}
		})
	}
	start("webhook", webhook, tls.NewListener(l.webhook, &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: s.keeper.GetCertificate,
	}))
	start("health", health, l.health)
	if l.metrics != nil {
		if err := s.registerMetrics(); err != nil {
			fail(err)
		}
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.HandlerFor(ctrlmetrics.Registry, promhttp.HandlerOpts{}))
		metrics := server(mux)
		servers = append(servers, metrics)
		start("metrics", metrics, l.metrics)
	}
	running.Go(func() { s.keeper.Run(ctx) })

	<-ctx.Done()
	s.drain(webhook)
	for _, server := range servers {
		_ = server.Close()
	}
	running.Wait()
	if asked.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// drain lets API servers go elsewhere before the webhook stops: it is no longer
// ready, closes each connection with its next answer, and takes new ones for a while.
func (s *service) drain(webhook *http.Server) {
	s.draining.Store(true)
	webhook.SetKeepAlivesEnabled(false)
	time.Sleep(s.drainTime)
	ctx, cancel := context.WithTimeout(context.Background(), finishTime)
	defer cancel()
	if err := webhook.Shutdown(ctx); err != nil {
		klog.Background().Error(err, "Requests were cut off")
	}
}

func (s *service) health() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		err := s.keeper.Ready()
		if s.draining.Load() {
			err = errors.New("shutting down")
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// server bounds what one caller can hold.
func server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    64 << 10,
	}
}

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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/muster-gpu/muster/admission/audit"
	"github.com/muster-gpu/muster/admission/conversion"
	"github.com/muster-gpu/muster/admission/defaults"
	"github.com/muster-gpu/muster/admission/inventory"
	"github.com/muster-gpu/muster/admission/policies"
	"github.com/muster-gpu/muster/admission/queueing"
	"github.com/muster-gpu/muster/admission/serving"
	"github.com/muster-gpu/muster/admission/validate"
	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/certificate"
	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/policy/facts"
	"github.com/muster-gpu/muster/policy/library"
)

const (
	// drainTime is how long a terminating replica still answers: API servers
	// keep connections to it open and learn late that the endpoint is gone.
	drainTime = 5 * time.Second
	// finishTime bounds the wait for requests in flight after that; none takes
	// longer than the API server's time-out.
	finishTime = 10 * time.Second
)

// service is the running webhook: the certificate's keeper, what is known of
// RuntimeDefaults and policies, and three servers.
type service struct {
	keeper    *certificate.Keeper
	catalog   *defaults.Catalog
	engine    *policy.Engine
	feed      *policies.Feed
	reporter  *policies.Reporter
	inventory *inventory.Keeper
	// auditor is nil where nothing is audited.
	auditor *audit.Auditor
	// hooks answer the API server's requests, by path.
	hooks   map[string]http.Handler
	metrics *metrics.Webhook
	// measured is what a scrape reads.
	measured  prometheus.Gatherer
	drainTime time.Duration
	draining  atomic.Bool
}

func newService(config *configv1alpha1.WebhookConfiguration, client kubernetes.Interface, reader metadata.Interface, objects dynamic.Interface, clock clock.Clock) (*service, error) {
	queues := queueing.NewHandler(reader, clock, queueing.Options{
		SchedulerName: config.SchedulerName,
		DefaultQueue:  config.Unqueued == configv1alpha1.UnqueuedDefault,
		Exempt:        config.ExemptNamespaces,
	})
	catalog := defaults.NewCatalog(client, objects, reader)
	around := validate.NewCluster(objects, reader, clock)
	claims := around.Claims(configv1alpha1.DeviceClasses(config.Policies.DeviceClassMappings))
	engine := policy.New(policy.Options{Clock: clock, Describer: facts.NewReader(around, claims)})
	own, err := library.Configured(config.Policies.Library)
	if err != nil {
		return nil, err
	}
	feed := policies.NewFeed(engine, own, client, objects, config.Policies.ConfigMapNamespace)
	known := inventory.NewKeeper(catalog, objects, engine.SetInventory, clock)
	var auditor *audit.Auditor
	if interval := config.Policies.Audit.Interval.Duration; interval > 0 {
		auditor = audit.New(engine, objects, clock, audit.Options{
			Interval: interval, Chunk: config.Policies.Audit.ChunkSize, Exempt: config.ExemptNamespaces,
		})
	}
	measured := metrics.NewWebhook()
	hooks := map[string]http.Handler{conversion.Path: conversion.Handler()}
	for path, decide := range map[string]serving.Decide{
		queueing.Path: func(ctx context.Context, req admission.Request) (admission.Response, error) {
			return queues.Handle(ctx, req), nil
		},
		defaults.Path: defaults.NewHandler(catalog, config.ExemptNamespaces).Handle,
		validate.Path: validate.NewHandler(engine, func() error { return errors.Join(feed.Ready(), known.Ready()) }, config.ExemptNamespaces).Handle,
	} {
		hook, err := serving.New(path, decide, func(reason string) { measured.Unanswered(path, reason) })
		if err != nil {
			return nil, err
		}
		hooks[path] = measured.Timed(path, hook)
	}
	identity, err := identity()
	if err != nil {
		return nil, err
	}
	conversions := &certificate.Conversions{
		Client: objects, Names: conversion.Definitions(), Service: config.Webhook.SecretNamespace + "/" + config.Webhook.ServiceName,
	}
	for _, h := range config.Webhook.Hosts {
		conversions.Addresses = append(conversions.Addresses, net.JoinHostPort(h, strconv.Itoa(int(config.Webhook.Port))))
	}
	s := &service{
		keeper: certificate.New(client, clock, certificate.Options{
			SecretNamespace: config.Webhook.SecretNamespace,
			SecretName:      config.Webhook.SecretName,
			MutatingName:    config.Webhook.MutatingConfigurationName,
			ValidatingName:  config.Webhook.ValidatingConfigurationName,
			Hosts:           hosts(config),
			Conversions:     conversions,
		}),
		catalog:   catalog,
		engine:    engine,
		feed:      feed,
		inventory: known,
		auditor:   auditor,
		reporter:  policies.NewReporter(feed, engine, auditor, client, objects, config.Webhook.SecretNamespace, identity),
		hooks:     hooks,
		metrics:   measured,
		drainTime: drainTime,
	}
	if s.measured, err = s.gatherer(); err != nil {
		return nil, err
	}
	return s, nil
}

// hosts are the names and addresses under which API servers call the webhook.
func hosts(config *configv1alpha1.WebhookConfiguration) []string {
	service := config.Webhook.ServiceName + "." + config.Webhook.SecretNamespace + ".svc"
	return slices.Concat([]string{service, service + ".cluster.local"}, config.Webhook.Hosts)
}

// serve answers until ctx ends, then drains. It returns an error if a server
// fails; the others are stopped then.
func (s *service) serve(ctx context.Context, l listeners) error {
	asked := ctx
	ctx, fail := context.WithCancelCause(asked)
	defer fail(nil)

	hooks := http.NewServeMux()
	for path, hook := range s.hooks {
		hooks.Handle("POST "+path, hook)
	}
	webhook := server(s.lastAnswers(hooks))
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
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.HandlerFor(s.measured, promhttp.HandlerOpts{}))
		endpoint := server(mux)
		servers = append(servers, endpoint)
		start("metrics", endpoint, l.metrics)
	}
	running.Go(func() { s.keeper.Run(ctx) })
	running.Go(func() { s.catalog.Run(ctx) })
	running.Go(func() { s.feed.Run(ctx) })
	running.Go(func() { s.reporter.Run(ctx) })
	running.Go(func() { s.inventory.Run(ctx) })

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
	time.Sleep(s.drainTime)
	ctx, cancel := context.WithTimeout(context.Background(), finishTime)
	defer cancel()
	if err := webhook.Shutdown(ctx); err != nil {
		klog.Background().Error(err, "Requests were cut off")
	}
}

// lastAnswers has each answer say that it is the connection's last, once the webhook
// drains. Connections on which nothing is asked are not closed: what is sent on one just
// then would be lost.
func (s *service) lastAnswers(hooks http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		hooks.ServeHTTP(w, r)
	})
}

func (s *service) health() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		err := errors.Join(s.keeper.Ready(), s.catalog.Ready(), s.feed.Ready(), s.inventory.Ready())
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

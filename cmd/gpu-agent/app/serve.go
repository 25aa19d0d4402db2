package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
)

// deadAfter is how long no tick may end before the program is to be started anew. A
// tick ends whatever the driver, the kubelet and the API server do.
const deadAfter = 5 * time.Minute

// pulse is when the last tick has ended.
type pulse struct{ at atomic.Int64 }

func (p *pulse) beat(now time.Time) { p.at.Store(now.UnixNano()) }

// since is how long ago that was; false before the first.
func (p *pulse) since(now time.Time) (time.Duration, bool) {
	at := p.at.Load()
	return now.Sub(time.Unix(0, at)), at != 0
}

// listeners are open sockets; metrics is nil where the endpoint is off.
type listeners struct{ health, metrics net.Listener }

// listen opens all of them, or none.
func listen(config *configv1alpha1.GPUAgentConfiguration) (listeners, error) {
	var l listeners
	var err error
	if l.health, err = net.Listen("tcp", config.Health.BindAddress); err != nil {
		return listeners{}, fmt.Errorf("health.bindAddress: %w", err)
	}
	if config.Metrics.BindAddress == configv1alpha1.MetricsOff {
		return l, nil
	}
	if l.metrics, err = net.Listen("tcp", config.Metrics.BindAddress); err != nil {
		l.close()
		return listeners{}, fmt.Errorf("metrics.bindAddress: %w", err)
	}
	return l, nil
}

func (l listeners) close() {
	for _, listener := range []net.Listener{l.health, l.metrics} {
		if listener != nil {
			_ = listener.Close()
		}
	}
}

// serve answers on all sockets. The servers are to be closed; one that fails ends all.
func (a *App) serve(end context.CancelCauseFunc, running *sync.WaitGroup) []*http.Server {
	var servers []*http.Server
	start := func(name string, listener net.Listener, handler http.Handler) {
		server := &http.Server{
			Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
			WriteTimeout: 20 * time.Second, IdleTimeout: 90 * time.Second, MaxHeaderBytes: 16 << 10,
		}
		servers = append(servers, server)
		running.Go(func() {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				end(fmt.Errorf("serving %s: %w", name, err))
			}
		})
	}
	start("health", a.listeners.health, a.health(time.Now()))
	if a.listeners.metrics != nil {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2}))
		start("metrics", a.listeners.metrics, mux)
	}
	return servers
}

// health says that the agent is alive as long as it ticks, whatever the driver, the
// kubelet and the API server do, and ready after its first tick.
func (a *App) health(began time.Time) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		silent, ticked := a.pulse.since(time.Now())
		if !ticked {
			silent = time.Since(began)
		}
		if silent > deadAfter {
			http.Error(w, fmt.Sprintf("no tick has ended for %s", silent.Round(time.Second)), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if _, ticked := a.pulse.since(time.Now()); !ticked {
			http.Error(w, "nothing has been looked at yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/muster-gpu/muster/agent"
	"github.com/muster-gpu/muster/agent/holders"
	"github.com/muster-gpu/muster/agent/owners"
	"github.com/muster-gpu/muster/agent/publish"
	"github.com/muster-gpu/muster/agent/reader"
	"github.com/muster-gpu/muster/agent/verdict"
	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/internal/version"
	"github.com/muster-gpu/muster/metrics"
)

const (
	// closeTime is how long the driver may take to be given back. A process that
	// hangs on it is ended by the kubelet, much later.
	closeTime = 2 * time.Second
	// writeTimeout bounds one write of the GPUNode; longer, and samples are missed.
	writeTimeout = 5 * time.Second
	// tickTimeout bounds what of a tick heeds a context.
	tickTimeout = 30 * time.Second
	// saidEvery is how often it is logged what goes on to be wrong.
	saidEvery = time.Minute
)

// App is the agent with its sockets open, and nothing looked at yet.
type App struct {
	tick      time.Duration
	agent     *agent.Agent
	driver    reader.Driver
	stop      context.CancelFunc
	owners    *owners.Owners
	metrics   *metrics.GPUAgent
	registry  *prometheus.Registry
	listeners listeners
	shown     shown
	pulse     pulse
}

// New opens what the configuration names. The error names the field that is wrong. A
// driver, a kubelet or an API server that is not there is no error: the agent waits for
// it, and says so.
func New(config *configv1alpha1.GPUAgentConfiguration) (*App, error) {
	if config.NodeName == "" {
		return nil, errors.New("nodeName: the name of the Node is needed; set it, or the flag --node-name")
	}
	connection, err := clientConfig(config.ClientConnection.Kubeconfig)
	if err != nil {
		return nil, err
	}
	a, err := assemble(config, connection, holders.Client{Path: config.Kubelet.Socket})
	if err != nil {
		return nil, err
	}
	if a.listeners, err = listen(config); err != nil {
		a.stop()
		return nil, err
	}
	return a, nil
}

// assemble is the agent without sockets of its own.
func assemble(config *configv1alpha1.GPUAgentConfiguration, connection *rest.Config, kubelet agent.Kubelet) (*App, error) {
	node := config.NodeName
	pods, err := owners.New(connection, node)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(connection)
	if err != nil {
		return nil, fmt.Errorf("making a dynamic client: %w", err)
	}
	a := &App{tick: config.Tick.Duration, owners: pods, registry: prometheus.NewRegistry()}
	if a.metrics, err = metrics.NewGPUAgent(a.registry); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	for _, c := range []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), metrics.NodeGPUs(node, a.shown.read)} {
		if err := a.registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	var following context.Context
	following, a.stop = context.WithCancel(context.Background())
	if a.driver, err = driverOf(following, config.Reader); err != nil {
		a.stop()
		return nil, err
	}
	a.driver = reader.Timed(a.driver, calls{a.metrics})
	a.agent = agent.New(node, agent.Sources{
		Driver:  a.driver,
		Kubelet: kubelet,
		Owner:   pods.Owner,
		UUIDs:   pods.UUIDs,
	}, settings(config), writer{publish.Applier{Client: objects}, a.metrics})
	return a, nil
}

// Run looks at everything with each tick until ctx ends, and then gives the driver
// back. It returns an error if a server fails, and none if the driver was replaced: the
// program is to be started anew then. It may be called once.
func (a *App) Run(asked context.Context) error {
	log := klog.FromContext(asked)
	log.Info("Starting Muster's GPU agent", "version", version.String())
	ctx, end := context.WithCancelCause(asked)
	defer end(nil)
	var running sync.WaitGroup
	servers := a.serve(end, &running)
	a.look(ctx, end)
	for _, s := range servers {
		_ = s.Close()
	}
	a.release(log)
	running.Wait()
	if cause := context.Cause(ctx); asked.Err() == nil && !errors.Is(cause, reader.ErrRestart) {
		return cause
	}
	log.Info("Stopped", "because", context.Cause(ctx))
	return nil
}

// look looks at everything with each tick until ctx ends.
func (a *App) look(ctx context.Context, end context.CancelCauseFunc) {
	// It only reads, and may take long to end while the API server is away.
	go a.owners.Run(ctx)
	log := klog.FromContext(ctx)
	ticker := time.NewTicker(a.tick)
	defer ticker.Stop()
	began := time.Now()
	wrong, said := false, time.Time{}
	for ctx.Err() == nil {
		start := time.Now()
		ticking, cancel := context.WithTimeout(ctx, tickTimeout)
		err := a.agent.Tick(ticking, verdict.Instant{Elapsed: start.Sub(began), Wall: start})
		cancel()
		a.shown.take(a.agent.Devices(), a.agent.Spent())
		a.pulse.beat(time.Now())
		a.metrics.Ticked(time.Since(start), time.Now(), err == nil)
		for _, c := range a.agent.Conditions() {
			a.metrics.Condition(c.Type, c.Status == metav1.ConditionTrue)
		}
		// What goes on to be wrong is not said with each tick.
		if ctx.Err() == nil && (err != nil) != wrong || err != nil && time.Since(said) >= saidEvery {
			wrong, said = err != nil, time.Now()
			log.Info("Looked at the GPUs", "wrong", err)
		}
		if errors.Is(err, reader.ErrRestart) {
			end(reader.ErrRestart)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// release gives the driver back, so that it can be replaced.
func (a *App) release(log klog.Logger) {
	closed := make(chan error, 1)
	go func() { closed <- a.driver.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			log.Error(err, "Giving the driver back")
		}
	case <-time.After(closeTime):
		log.Info("The driver does not take itself back; the end of the process gives it back")
	}
	a.stop()
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
	config.UserAgent = "muster-gpu-agent/" + version.String()
	return config, nil
}

// settings are the rules that the configuration has.
func settings(config *configv1alpha1.GPUAgentConfiguration) verdict.Settings {
	v := config.Verdicts
	overrides := func(given map[string]configv1alpha1.GPUAgentOverride) map[string]verdict.Override {
		out := map[string]verdict.Override{}
		for name, o := range given {
			out[name] = verdict.Override{
				IdleAfter: o.IdleAfter.Duration, IdleAge: o.IdleAge.Duration, StalledAfter: o.StalledAfter.Duration,
				ReclaimAfter: o.ReclaimAfter.Duration, ReclaimAge: o.ReclaimAge.Duration, ReclaimStalled: o.ReclaimStalled,
			}
		}
		return out
	}
	return verdict.Settings{
		Rules: verdict.Rules{
			Tick:      config.Tick.Duration,
			IdleAfter: v.IdleAfter.Duration, IdleAge: v.IdleAge.Duration, StalledAfter: v.StalledAfter.Duration,
			ReclaimAfter: v.ReclaimAfter.Duration, ReclaimAge: v.ReclaimAge.Duration, ReclaimStalled: v.ReclaimStalled,
			BlindAfter: v.BlindAfter.Duration, Covered: v.Covered,
			BusyFrom: v.BusyFrom, SpinningFrom: v.SpinningFrom, SpinningPower: v.SpinningPower,
		},
		Kinds: overrides(v.Kinds), Queues: overrides(v.Queues),
	}
}

// writer bounds each write, and counts it.
type writer struct {
	to      publish.Writer
	metrics *metrics.GPUAgent
}

// Write implements publish.Writer.
func (w writer) Write(ctx context.Context, node string, status v1alpha1.GPUNodeStatus) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := w.to.Write(ctx, node, status)
	w.metrics.Wrote(err)
	return err
}

// calls counts the calls into the driver.
type calls struct{ metrics *metrics.GPUAgent }

// Began implements reader.Watcher.
func (c calls) Began(name string) { c.metrics.CallBegan(name) }

// Ended implements reader.Watcher.
func (c calls) Ended(call reader.Call) { c.metrics.CallEnded(call.Name, call.Took, call.Err) }

package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	basecompatibility "k8s.io/component-base/compatibility"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedulerconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/placement/islands"
	"github.com/muster-gpu/muster/plugins/coscheduling"
	"github.com/muster-gpu/muster/plugins/gpudevices"
	"github.com/muster-gpu/muster/plugins/gputopology"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/scheduling"
	"github.com/muster-gpu/muster/workload"
)

// App is a scheduler that is built and not running yet.
type App struct {
	Core *scheduling.Core

	config *schedulerconfig.CompletedConfig
	// questionsPort is where questions are answered, 0 for nowhere.
	questionsPort int32
	sched         *scheduler.Scheduler
	// events are those that the scheduler records about its pods.
	events events.EventBroadcaster
}

// New builds the scheduler that c describes. Informers and servers start with
// Run.
func New(ctx context.Context, c *configv1alpha1.SchedulerConfiguration) (*App, error) {
	api, err := clientConfig(c)
	if err != nil {
		return nil, err
	}
	opts, err := schedulerOptions(ctx, c, api)
	if err != nil {
		return nil, err
	}
	configFile, err := configPipe(c)
	if err != nil {
		return nil, err
	}
	defer configFile.Close()
	opts.ConfigFile = fmt.Sprintf("/proc/self/fd/%d", configFile.Fd())

	core, err := newCore(ctx, c, api)
	if err != nil {
		return nil, err
	}
	if err := metrics.RegisterScheduler(c.Metrics.KueueNames); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	metrics.SetKueueRole(c.LeaderElection.LeaderElect)
	var handle fwk.Handle
	build := coscheduling.Factory(core.Ledger, c.Admission.BarrierTimeout.Duration)
	cc, sched, err := app.Setup(ctx, opts, app.WithPlugin(coscheduling.Name, func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		// One plugin is built for each profile; they share queue, cache and
		// waiting pods, so any handle serves the Core.
		handle = h
		return build(ctx, args, h)
	}), app.WithPlugin(gputopology.Name, gputopology.Factory(core.Ledger, core.Mix())),
		app.WithPlugin(gpudevices.Name, gpudevices.Factory(core.Mix())))
	if err != nil {
		return nil, fmt.Errorf("building the scheduler: %w", err)
	}
	if handle == nil {
		return nil, errors.New("building the scheduler: no profile has the gang plugin")
	}
	recorder := cc.EventBroadcaster.DeprecatedNewLegacyRecorder("muster-scheduler")
	if err := core.Install(ctx, sched, handle, cc.InformerFactory, recorder); err != nil {
		return nil, err
	}
	// With a client of their own they take no turn from requests that pods wait for.
	eventClient, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(cc.KubeConfig), "events"))
	if err != nil {
		return nil, fmt.Errorf("building the client of events: %w", err)
	}
	paced := scheduling.PaceEvents(sched, &events.EventSinkImpl{Interface: eventClient.EventsV1()})
	return &App{Core: core, config: cc, questionsPort: c.SecureServing.QuestionsPort, sched: sched, events: paced}, nil
}

// Run schedules until ctx is done or the lease is lost.
func (a *App) Run(ctx context.Context) error {
	if err := a.events.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("starting to write events: %w", err)
	}
	defer a.events.Shutdown()
	ended, err := a.serveQuestions(ctx)
	if err != nil {
		return err
	}
	defer ended()
	return app.Run(ctx, a.config, a.sched)
}

// clientConfig is how the API server is reached, by everything in the process.
func clientConfig(c *configv1alpha1.SchedulerConfiguration) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.ClientConnection.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("clientConnection: %w", err)
	}
	cfg.QPS, cfg.Burst = c.ClientConnection.QPS, int(c.ClientConnection.Burst)
	return rest.AddUserAgent(cfg, "muster-scheduler"), nil
}

func newCore(ctx context.Context, c *configv1alpha1.SchedulerConfiguration, api *rest.Config) (*scheduling.Core, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(kueue.AddToScheme(scheme))
	utilruntime.Must(jobset.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	objects, err := cache.New(api, cache.Options{Scheme: scheme, DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return nil, fmt.Errorf("building the cache of queues and jobs: %w", err)
	}
	direct, err := client.New(api, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("building the client: %w", err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(api)
	if err != nil {
		return nil, fmt.Errorf("building the discovery client: %w", err)
	}
	return scheduling.NewCore(ctx, scheduling.Config{
		SchedulerNames: c.Profiles,
		Unqueued:       unqueued(c),
		FollowKueue:    c.Quota.Provider == configv1alpha1.ProviderKueue,
		FairSharing:    fairSharing(c.Quota.FairSharing),
		Timing: scheduling.Timing{
			StartTimeout:     c.Admission.StartTimeout.Duration,
			RecoveryTimeout:  c.Admission.RecoveryTimeout.Duration,
			ReadyTimeout:     c.Admission.ReadyTimeout.Duration,
			NodeLossGrace:    c.Admission.NodeLossGrace.Duration,
			ReservationAfter: c.Admission.ReservationAfter.Duration,
			ReservationFor:   c.Admission.ReservationFor.Duration,
			Backoff:          backoff(c.Admission.Requeue),
		},
		Provisioning: scheduling.Provisioning{
			ClassName: c.Autoscaling.ProvisioningRequests.ClassName, Parameters: c.Autoscaling.ProvisioningRequests.Parameters,
			Retry: backoff(c.Autoscaling.ProvisioningRequests.Retry),
		},
		PassBudget: c.Admission.PassBudget.Duration,
		Levels:     c.Topology.LevelsOf, PreferredLevel: c.Topology.PreferredLevelOf,
		DeviceClasses: configv1alpha1.DeviceClasses(c.Quota.DeviceClassMappings),
		Islands:       placement.Enforcement(c.Islands.Enforcement),
		Arranged:      arranged(c.Islands.Products),
		DryRun:        c.Admission.Rendering == configv1alpha1.RenderingDryRun,
		Clock:         clock.RealClock{},
		Cache:         objects,
		Client:        direct,
		Discovery:     kinds,
	}), nil
}

func backoff(b configv1alpha1.Backoff) scheduling.Backoff {
	return scheduling.Backoff{Base: b.BackoffBase.Duration, Max: b.BackoffMax.Duration, Limit: b.LimitCount}
}

// fairSharing are the strategies of fair sharing, none where it is off.
func fairSharing(f configv1alpha1.FairSharing) []quota.FairStrategy {
	if !f.Enable {
		return nil
	}
	out := make([]quota.FairStrategy, len(f.PreemptionStrategies))
	for i, s := range f.PreemptionStrategies {
		out[i] = quota.FairStrategy(s)
	}
	return out
}

// arranged is how the GPUs of products are joined for which it is configured.
func arranged(products []configv1alpha1.ProductIslands) map[string]islands.Arrangement {
	out := make(map[string]islands.Arrangement, len(products))
	for _, p := range products {
		out[p.Product] = islands.Arrangement(p.Arrangement)
	}
	return out
}

// unqueued is what happens to GPU pods without a queue. Where Kueue decides, it
// is Kueue that gives them the default queue.
func unqueued(c *configv1alpha1.SchedulerConfiguration) workload.Unqueued {
	if c.Quota.Provider == configv1alpha1.ProviderKueue && c.Unqueued == configv1alpha1.UnqueuedDefault {
		return workload.UnqueuedRun
	}
	return workload.Unqueued(c.Unqueued)
}

func schedulerOptions(ctx context.Context, c *configv1alpha1.SchedulerConfiguration, api *rest.Config) (*options.Options, error) {
	opts := options.NewOptions()
	gates := map[string]bool{
		// A pod that waits at Permit would cost a status write each time.
		string(features.NominatedNodeNameForExpectation): false,
	}
	taintRules, err := serves(ctx, api, "resource.k8s.io/v1", "devicetaintrules")
	if err != nil {
		return nil, err
	}
	if !taintRules {
		// Older API servers do not have it, and the scheduler would wait for
		// its informer for ever.
		gates[string(features.DRADeviceTaintRules)] = false
	}
	if err := opts.ComponentGlobalsRegistry.SetFallback(); err != nil {
		return nil, fmt.Errorf("setting versions and feature gates: %w", err)
	}
	if fg := opts.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent); fg == nil {
		return nil, errors.New("the process has no feature gates")
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
		return nil, fmt.Errorf("setting feature gates: %w", err)
	}
	opts.SecureServing.BindAddress = net.ParseIP(c.SecureServing.BindAddress)
	opts.SecureServing.BindPort = int(c.SecureServing.Port)
	opts.SecureServing.ServerCert.CertDirectory = c.SecureServing.CertDir
	opts.SecureServing.ServerCert.PairName = "tls"
	opts.Authentication.RemoteKubeConfigFile = c.ClientConnection.Kubeconfig
	opts.Authorization.RemoteKubeConfigFile = c.ClientConnection.Kubeconfig
	// Leader election is set in the file; flags of the same meaning must not
	// override it.
	opts.LeaderElection = nil
	opts.Flags = nil
	return opts, nil
}

// discoveryPatience is how long the API server may refuse to say what it
// serves before the process gives up.
const discoveryPatience = 30 * time.Second

// serves says whether the API server has a resource.
func serves(ctx context.Context, api *rest.Config, groupVersion, resource string) (bool, error) {
	d, err := discovery.NewDiscoveryClientForConfig(api)
	if err != nil {
		return false, fmt.Errorf("building the discovery client: %w", err)
	}
	var list *metav1.APIResourceList
	var last error
	err = wait.PollUntilContextTimeout(ctx, time.Second, discoveryPatience, true, func(context.Context) (bool, error) {
		list, last = d.ServerResourcesForGroupVersion(groupVersion)
		return last == nil || discovery.IsGroupDiscoveryFailedError(last) || apierrors.IsNotFound(last), nil
	})
	if err != nil {
		return false, fmt.Errorf("discovering %s: %w", groupVersion, cmp.Or(last, err))
	}
	if last != nil {
		return false, nil
	}
	for _, r := range list.APIResources {
		if r.Name == resource {
			return true, nil
		}
	}
	return false, nil
}

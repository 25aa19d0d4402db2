package simulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// UserName is the user as which the simulator connects, and the name of its
// role and binding.
const UserName = "muster-sandbox-simulator"

// PolicyRules are the permissions that the simulator needs: those of a kubelet
// and a driver of devices for all its nodes, and reading Jobs.
func PolicyRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch", "create"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"pods/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "patch"}},
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"deviceclasses", "resourceslices"}, Verbs: []string{"create"}},
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims"}, Verbs: []string{"get"}},
	}
}

// Options say which nodes to simulate.
type Options struct {
	// Nodes is how many nodes to create, node-0 and up.
	Nodes int
	// GPUsPerNode is how many GPUs each has.
	GPUsPerNode int
	// Devices has the GPUs published as ResourceSlices, as NVIDIA's driver for dynamic
	// resource allocation does, with the DeviceClass that stands for nvidia.com/gpu.
	// Otherwise they are the nvidia.com/gpu capacity of the nodes, as its device plugin
	// has it.
	Devices bool
	// GPUProduct is the nvidia.com/gpu.product label of each.
	GPUProduct string
	// Labels are added to the nodes when they are created.
	Labels NodeLabels
	// Agents is for how many of the nodes, from node-0 up, there is what a GPU agent
	// reads on its node, in a folder of the node's name below AgentDir: the kubelet's
	// PodResources socket, KubeletSocket, and the file GPUScript, which says what GPUs
	// there are and what they do.
	Agents   int
	AgentDir string
	// HealthPort on 127.0.0.1 answers /readyz with 200 once the nodes exist
	// and pods are looked after. Zero: no port.
	HealthPort int
}

// workers is how many gangs are looked at side by side.
const workers = 8

// simulator is one running simulator.
type simulator struct {
	options Options
	client  kubernetes.Interface
	clock   clock.Clock
	nodes   corelisters.NodeLister
	pods    cache.Indexer
	// podsSeen says whether each pod of the first list went through its handler.
	podsSeen cache.InformerSynced
	jobs     cache.Indexer
	gpus     *gpuBook
	queue    workqueue.TypedRateLimitingInterface[string]
	// decidedOn maps a pod to the version on which the last successful write
	// was decided, so that a cached copy from before the write is left alone.
	decidedOn sync.Map
	// address counts the pods that were given one.
	address atomic.Int64
	ready   atomic.Bool
}

// Run simulates until ctx ends. It returns an error when the nodes cannot be
// created.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	config = rest.CopyConfig(config)
	config.UserAgent = UserName
	// Hundreds of pods of one gang change at once; kubelets would have a limit
	// each.
	config.QPS, config.Burst = 2000, 4000
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("building the simulator's client: %w", err)
	}
	return newSimulator(client, clock.RealClock{}, options).run(ctx)
}

func newSimulator(client kubernetes.Interface, c clock.WithTicker, options Options) *simulator {
	return &simulator{
		options: options, client: client, clock: c, gpus: newGPUBook(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](20*time.Millisecond, 5*time.Second),
			workqueue.TypedRateLimitingQueueConfig[string]{Clock: c}),
	}
}

func (s *simulator) run(ctx context.Context) error {
	defer s.queue.ShutDown()
	if err := s.serveHealth(ctx); err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(s.client, 0)
	if err := s.watch(factory); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("reading the present %s: %w", kind, context.Cause(ctx))
		}
	}
	// A cache that is filled is not yet one whose pods all went through the
	// handlers: before the last did, GPUs that a pod holds since before a restart
	// would be given to another.
	if !cache.WaitForCacheSync(ctx.Done(), s.podsSeen) {
		return fmt.Errorf("reading which GPUs the present pods hold: %w", context.Cause(ctx))
	}
	if err := s.registerNodes(ctx); err != nil {
		return err
	}
	kubelets, err := s.serveKubelets(ctx)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	group.Go(func() { s.renewLeases(ctx) })
	for range workers {
		group.Go(func() {
			for s.next(ctx) {
			}
		})
	}
	group.Go(func() { s.writeScripts(ctx) })
	s.ready.Store(true)
	klog.FromContext(ctx).Info("Simulating", "nodes", s.options.Nodes, "gpusPerNode", s.options.GPUsPerNode)
	<-ctx.Done()
	s.queue.ShutDown()
	kubelets.Stop()
	group.Wait()
	return nil
}

// The indexes of pods; Jobs have gangIndex too.
const (
	gangIndex = "gang"
	nodeIndex = "node"
)

// watch registers what wakes a gang: a change of one of its pods or Jobs, or
// of a node.
func (s *simulator) watch(factory informers.SharedInformerFactory) error {
	nodes := factory.Core().V1().Nodes()
	s.nodes = nodes.Lister()
	if err := s.watchNodes(nodes.Informer()); err != nil {
		return err
	}
	pods := factory.InformerFor(&corev1.Pod{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		// Pods that are not bound are no kubelet's business.
		return coreinformers.NewFilteredPodInformer(client, corev1.NamespaceAll, resync, cache.Indexers{}, func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		})
	})
	if err := s.watchPods(pods); err != nil {
		return err
	}
	return s.watchJobs(factory.Batch().V1().Jobs().Informer())
}

// forget drops everything that is kept about a pod.
func (s *simulator) forget(uid types.UID) {
	s.gpus.release(uid)
	s.decidedOn.Delete(uid)
}

func (s *simulator) serveHealth(ctx context.Context) error {
	if s.options.HealthPort == 0 {
		return nil
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(s.options.HealthPort))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serving health: %w", err)
	}
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready.Load() {
			http.Error(w, "the nodes are not there yet", http.StatusServiceUnavailable)
		}
	})}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "Serving health", "address", address)
		}
	}()
	return nil
}

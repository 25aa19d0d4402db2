package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// GroupVersion is the apiVersion of every configuration file.
const GroupVersion = "config.muster.dev/v1alpha1"

// SchedulerKind is the kind of the scheduler's file.
const SchedulerKind = "SchedulerConfiguration"

// Who may decide about quota.
const (
	// ProviderNative: Muster itself decides.
	ProviderNative = "native"
	// ProviderKueue: a running Kueue manager decides; Muster places what it
	// admits, whole.
	ProviderKueue = "kueue"
)

// When a job may preempt others of its cohort to borrow itself, with fair
// sharing.
const (
	// FinalShare: the queue of the other one keeps at least the share that the
	// job's own queue then has.
	FinalShare = "LessThanOrEqualToFinalShare"
	// InitialShare: the queue of the other one has a larger share before it leaves
	// than the job's own queue then has.
	InitialShare = "LessThanInitialShare"
)

// What may happen to GPU pods without a queue.
const (
	// UnqueuedDefault sends pods without an owner that Muster manages to the
	// default LocalQueue of their namespace; where there is none they run.
	UnqueuedDefault = "default-queue"
	// UnqueuedRun lets them run on room that nobody holds, charged to nobody.
	UnqueuedRun = "run"
	// UnqueuedHold keeps them waiting.
	UnqueuedHold = "hold"
)

// The values of admission.rendering.
const (
	// RenderingDryRun has the API server render pods, without keeping them.
	RenderingDryRun = "dry-run"
	// RenderingLocal renders pods in this process, which knows no webhooks.
	RenderingLocal = "local"
)

// SchedulerConfiguration configures the scheduler.
type SchedulerConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	ClientConnection SchedulerClientConnection `json:"clientConnection"`
	LeaderElection   LeaderElection            `json:"leaderElection"`
	SecureServing    SecureServing             `json:"secureServing"`
	// Profiles are the scheduler names that this process answers to, all with
	// the same plugins and the same ledger. Adding "default-scheduler" keeps
	// pods that name no scheduler off space that is held for a gang.
	Profiles []string `json:"profiles"`
	Quota    Quota    `json:"quota"`
	Topology Topology `json:"topology"`
	Islands  Islands  `json:"islands"`
	// Unqueued says what happens to GPU pods without a queue: UnqueuedDefault,
	// UnqueuedRun or UnqueuedHold.
	Unqueued    string           `json:"unqueued"`
	Admission   Admission        `json:"admission"`
	Autoscaling Autoscaling      `json:"autoscaling"`
	Metrics     SchedulerMetrics `json:"metrics"`
}

// SchedulerClientConnection is how the scheduler reaches the API server.
type SchedulerClientConnection struct {
	// Kubeconfig is the path of a kubeconfig file; empty means the service
	// account of the pod.
	Kubeconfig string `json:"kubeconfig"`
	// QPS is the sustained number of requests per second. One pod costs about
	// two, a binding and a status.
	QPS float32 `json:"qps"`
	// Burst is the number of requests that may go out at once.
	Burst int32 `json:"burst"`
}

// LeaderElection lets several replicas run, of which one decides.
type LeaderElection struct {
	LeaderElect bool `json:"leaderElect"`
	// ResourceNamespace and ResourceName name the Lease.
	ResourceNamespace string `json:"resourceNamespace"`
	ResourceName      string `json:"resourceName"`
	// LeaseDuration is how long a standby waits after the last renewal.
	LeaseDuration metav1.Duration `json:"leaseDuration"`
	// RenewDeadline is how long a leader tries to renew before it gives up.
	RenewDeadline metav1.Duration `json:"renewDeadline"`
	// RetryPeriod is the time between two tries.
	RetryPeriod metav1.Duration `json:"retryPeriod"`
}

// SecureServing is the HTTPS endpoint for health and metrics.
type SecureServing struct {
	// BindAddress is an IP address.
	BindAddress string `json:"bindAddress"`
	Port        int32  `json:"port"`
	// QuestionsPort is where "kubectl muster" asks why a job waits, and what would become
	// of one, with the same certificate; 0: nowhere.
	QuestionsPort int32 `json:"questionsPort"`
	// CertDir holds tls.crt and tls.key; empty means a self-signed certificate
	// that lives as long as the process.
	CertDir string `json:"certDir"`
}

// Quota says who decides whether a job has quota.
type Quota struct {
	// Provider is ProviderNative or ProviderKueue.
	Provider    string      `json:"provider"`
	FairSharing FairSharing `json:"fairSharing"`
	// DeviceClassMappings say which devices that pods claim count as which resources,
	// as in Kueue's configuration. Devices of other classes are not counted.
	DeviceClassMappings []DeviceClassMapping `json:"deviceClassMappings"`
}

// DeviceClassMapping has the devices of some DeviceClasses counted as a resource.
type DeviceClassMapping struct {
	// Name is the resource that ClusterQueues have quota for.
	Name string `json:"name"`
	// DeviceClassNames are the DeviceClasses, each of one mapping.
	DeviceClassNames []string `json:"deviceClassNames"`
}

// FairSharing is Kueue's: ClusterQueues and Cohorts share what they borrow by
// their fairSharing.weight. It is for ProviderNative; Kueue has a configuration
// of its own.
type FairSharing struct {
	Enable bool `json:"enable"`
	// PreemptionStrategies say when a job may preempt others in the cohort to
	// borrow: FinalShare, InitialShare, or FinalShare and then InitialShare.
	PreemptionStrategies []string `json:"preemptionStrategies"`
}

// Admission is how jobs are admitted, and the timing of it.
type Admission struct {
	// PassBudget is how long one admission pass may keep the scheduling
	// goroutine before a pod is let through.
	PassBudget metav1.Duration `json:"passBudget"`
	// StartTimeout is how long a pod that should be on its node may be missing
	// there before the whole job is released.
	StartTimeout metav1.Duration `json:"startTimeout"`
	// RecoveryTimeout is that time for a pod whose place had one on its node before,
	// as of a node that was lost; 0 means StartTimeout.
	RecoveryTimeout metav1.Duration `json:"recoveryTimeout"`
	// ReadyTimeout is how long pods that start together and are all on their
	// nodes may take until each has been ready, or has succeeded, before the
	// whole job is released; 0 means for ever.
	ReadyTimeout metav1.Duration `json:"readyTimeout"`
	// NodeLossGrace is how long a pod's place is kept on a node that is cordoned,
	// not ready or unreachable, before another node is looked for; 0 means not
	// at all.
	NodeLossGrace metav1.Duration `json:"nodeLossGrace"`
	// ReservationAfter is how long a job that has quota and no place waits until
	// nodes are kept for it; 0 means for ever.
	ReservationAfter metav1.Duration `json:"reservationAfter"`
	// ReservationFor is how long they are kept at most; 0 means until the job
	// starts.
	ReservationFor metav1.Duration `json:"reservationFor"`
	// BarrierTimeout is how long the first pods of a start group wait for the
	// others before they bind.
	BarrierTimeout metav1.Duration `json:"barrierTimeout"`
	// Rendering says how it is found out what the pods of a waiting job will
	// be: RenderingDryRun or RenderingLocal. Without the policy that allows the
	// scheduler nothing but dry runs, pods are rendered locally.
	Rendering string `json:"rendering"`
	// Requeue is what happens to a job whose start failed; at the limit it is
	// deactivated.
	Requeue Backoff `json:"requeue"`
}

// Backoff is how what has failed is tried again: the wait doubles from BackoffBase to
// BackoffMax with each failure in a row.
type Backoff struct {
	BackoffBase metav1.Duration `json:"backoffBase"`
	BackoffMax  metav1.Duration `json:"backoffMax"`
	// LimitCount is how often in a row it is tried again; nil (null in the file)
	// means for ever.
	LimitCount *int32 `json:"limitCount"`
}

// Autoscaling is how an autoscaler learns of nodes that jobs wait for.
type Autoscaling struct {
	ProvisioningRequests ProvisioningRequests `json:"provisioningRequests"`
}

// ProvisioningRequests (autoscaling.x-k8s.io/v1) are made for jobs without pods that
// have quota and no nodes, one for each, where their kind is served.
type ProvisioningRequests struct {
	// ClassName is their provisioningClassName; empty means that none are made.
	ClassName string `json:"className"`
	// Parameters are handed to the class as they are.
	Parameters map[string]string `json:"parameters"`
	// Retry is how one that has failed is made anew; at the limit it stands.
	Retry Backoff `json:"retry"`
}

// SchedulerMetrics are what is served at /metrics of SecureServing.
type SchedulerMetrics struct {
	// KueueNames serves what Kueue's manager serves too also under its names, with its
	// labels. It is for ProviderNative; with the other one Kueue serves them itself.
	KueueNames bool `json:"kueueNames"`
}

// DefaultScheduler returns the configuration of an empty file.
func DefaultScheduler() *SchedulerConfiguration {
	return &SchedulerConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion, Kind: SchedulerKind},
		// client-go's own limit of 50 requests per second would cap a gang's
		// start at 25 pods per second.
		ClientConnection: SchedulerClientConnection{QPS: 500, Burst: 1000},
		LeaderElection: LeaderElection{
			LeaderElect:       true,
			ResourceNamespace: "muster-system",
			ResourceName:      "muster-scheduler",
			LeaseDuration:     duration(15 * time.Second),
			RenewDeadline:     duration(10 * time.Second),
			RetryPeriod:       duration(2 * time.Second),
		},
		SecureServing: SecureServing{BindAddress: "0.0.0.0", Port: 10259, QuestionsPort: 10269},
		Profiles:      []string{"muster"},
		Quota: Quota{
			Provider:            ProviderNative,
			FairSharing:         FairSharing{PreemptionStrategies: []string{FinalShare, InitialShare}},
			DeviceClassMappings: defaultDeviceClasses(),
		},
		Topology: Topology{Levels: []string{}, Flavors: []FlavorTopology{}},
		Islands:  Islands{Enforcement: IslandsPredict, Products: []ProductIslands{}},
		Unqueued: UnqueuedDefault,
		Admission: Admission{
			PassBudget:       duration(20 * time.Millisecond),
			StartTimeout:     duration(5 * time.Minute),
			ReadyTimeout:     duration(30 * time.Minute),
			NodeLossGrace:    duration(time.Minute),
			ReservationAfter: duration(15 * time.Minute),
			ReservationFor:   duration(24 * time.Hour),
			BarrierTimeout:   duration(10 * time.Second),
			Rendering:        RenderingDryRun,
			Requeue: Backoff{
				BackoffBase: duration(time.Minute),
				BackoffMax:  duration(time.Hour),
				LimitCount:  ptr.To[int32](5),
			},
		},
		Autoscaling: Autoscaling{ProvisioningRequests: ProvisioningRequests{
			Parameters: map[string]string{},
			Retry:      Backoff{BackoffBase: duration(time.Minute), BackoffMax: duration(30 * time.Minute)},
		}},
	}
}

func duration(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

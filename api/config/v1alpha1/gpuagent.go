package v1alpha1

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// GPUAgentKind is the kind of the GPU agent's file.
const GPUAgentKind = "GPUAgentConfiguration"

// The readers of a node's GPUs.
const (
	// ReaderNVML asks NVIDIA's driver.
	ReaderNVML = "nvml"
	// ReaderScripted reads from a file what GPUs there are and what they do.
	ReaderScripted = "scripted"
)

// GPUAgentConfiguration configures the agent that runs on each node with GPUs.
type GPUAgentConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	ClientConnection GPUAgentClientConnection `json:"clientConnection"`
	// NodeName is the Node that the agent runs on; the flag --node-name comes first.
	NodeName string          `json:"nodeName"`
	Kubelet  GPUAgentKubelet `json:"kubelet"`
	Reader   GPUAgentReader  `json:"reader"`
	Health   GPUAgentHealth  `json:"health"`
	Metrics  GPUAgentMetrics `json:"metrics"`
	// Tick is how often everything is looked at.
	Tick     metav1.Duration  `json:"tick"`
	Verdicts GPUAgentVerdicts `json:"verdicts"`
}

// GPUAgentClientConnection is how the agent reaches the API server.
type GPUAgentClientConnection struct {
	// Kubeconfig is the path of a kubeconfig file; empty means the service
	// account of the pod.
	Kubeconfig string `json:"kubeconfig"`
}

// GPUAgentKubelet is how the agent learns which pods hold which GPUs.
type GPUAgentKubelet struct {
	// Socket is the path of the kubelet's PodResources socket.
	Socket string `json:"socket"`
}

// GPUAgentReader is how the agent learns what GPUs there are and what they do.
type GPUAgentReader struct {
	// Kind is ReaderNVML or ReaderScripted; the flag --reader comes first.
	Kind string `json:"kind"`
	// Library is the path of libnvidia-ml.so.1; empty means that the loader looks for
	// it.
	Library string `json:"library"`
	// Script is the path of the file of ReaderScripted.
	Script string `json:"script"`
}

// GPUAgentHealth is the plain HTTP endpoint for probes.
type GPUAgentHealth struct {
	// BindAddress is host:port; an empty host means every address.
	BindAddress string `json:"bindAddress"`
}

// GPUAgentMetrics is the plain HTTP endpoint for metrics.
type GPUAgentMetrics struct {
	// BindAddress is host:port, or MetricsOff.
	BindAddress string `json:"bindAddress"`
}

// GPUAgentVerdicts are the times and bounds by which what a pod does with its GPU is
// judged; see verdict.Rules.
type GPUAgentVerdicts struct {
	// IdleAfter is the window in which at most one sample may be busy, and IdleAge the
	// age that a container has at least when it is called idle.
	IdleAfter metav1.Duration `json:"idleAfter"`
	IdleAge   metav1.Duration `json:"idleAge"`
	// StalledAfter is for how long kernels run without work before they are stalled.
	StalledAfter metav1.Duration `json:"stalledAfter"`
	// ReclaimAfter is how long a GPU is idle without a break before it is
	// reclaimable, and ReclaimAge the age that its container has then at least.
	ReclaimAfter metav1.Duration `json:"reclaimAfter"`
	ReclaimAge   metav1.Duration `json:"reclaimAge"`
	// ReclaimStalled has stalled GPUs be reclaimable too.
	ReclaimStalled bool `json:"reclaimStalled"`
	// BlindAfter is how long nothing may be measured before a GPU is unknown.
	BlindAfter metav1.Duration `json:"blindAfter"`
	// Covered is the part of a window that samples must cover, 0..1.
	Covered float64 `json:"covered"`
	// BusyFrom is the use from which a sample is busy, and SpinningFrom the part of the
	// time in which kernels run from which one may be stalled: it is if the
	// multiprocessors have less work than BusyFrom, or if the device draws less than
	// SpinningPower of its limit. All are 0..1.
	BusyFrom      float64 `json:"busyFrom"`
	SpinningFrom  float64 `json:"spinningFrom"`
	SpinningPower float64 `json:"spinningPower"`
	// Kinds change that for kinds of workloads, as Notebook, and Queues for
	// ClusterQueues, which come before the kinds.
	Kinds  map[string]GPUAgentOverride `json:"kinds"`
	Queues map[string]GPUAgentOverride `json:"queues"`
}

// GPUAgentOverride changes some verdicts. What is left out stays as it is.
type GPUAgentOverride struct {
	IdleAfter      metav1.Duration `json:"idleAfter,omitzero"`
	IdleAge        metav1.Duration `json:"idleAge,omitzero"`
	StalledAfter   metav1.Duration `json:"stalledAfter,omitzero"`
	ReclaimAfter   metav1.Duration `json:"reclaimAfter,omitzero"`
	ReclaimAge     metav1.Duration `json:"reclaimAge,omitzero"`
	ReclaimStalled *bool           `json:"reclaimStalled,omitempty"`
}

// DefaultGPUAgent returns the configuration of an empty file.
func DefaultGPUAgent() *GPUAgentConfiguration {
	seconds := func(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Second} }
	return &GPUAgentConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion, Kind: GPUAgentKind},
		Kubelet:  GPUAgentKubelet{Socket: "/var/lib/kubelet/pod-resources/kubelet.sock"},
		Reader:   GPUAgentReader{Kind: ReaderNVML},
		Health:   GPUAgentHealth{BindAddress: ":8081"},
		Metrics:  GPUAgentMetrics{BindAddress: ":8080"},
		Tick:     seconds(15),
		Verdicts: GPUAgentVerdicts{
			IdleAfter:     seconds(600),
			IdleAge:       seconds(900),
			StalledAfter:  seconds(900),
			ReclaimAfter:  seconds(300),
			ReclaimAge:    seconds(1800),
			BlindAfter:    seconds(60),
			Covered:       0.8,
			BusyFrom:      0.01,
			SpinningFrom:  0.99,
			SpinningPower: 0.2,
			Kinds:         map[string]GPUAgentOverride{"Notebook": {IdleAfter: seconds(1800)}},
			Queues:        map[string]GPUAgentOverride{},
		},
	}
}

// Validate returns everything that is wrong with the configuration, by field.
func (c *GPUAgentConfiguration) Validate() field.ErrorList {
	var errs field.ErrorList
	if c.NodeName != "" {
		errs = append(errs, objectName(field.NewPath("nodeName"), c.NodeName)...)
	}
	if c.Kubelet.Socket == "" {
		errs = append(errs, field.Required(field.NewPath("kubelet", "socket"), "the path of the kubelet's PodResources socket"))
	}
	reader := field.NewPath("reader")
	switch c.Reader.Kind {
	case ReaderNVML:
	case ReaderScripted:
		if c.Reader.Script == "" {
			errs = append(errs, field.Required(reader.Child("script"), "the reader is scripted"))
		}
	default:
		errs = append(errs, field.NotSupported(reader.Child("kind"), c.Reader.Kind, []string{ReaderNVML, ReaderScripted}))
	}
	errs = append(errs, hostPort(field.NewPath("health", "bindAddress"), c.Health.BindAddress)...)
	if c.Metrics.BindAddress != MetricsOff {
		errs = append(errs, hostPort(field.NewPath("metrics", "bindAddress"), c.Metrics.BindAddress)...)
	}
	errs = append(errs, between(field.NewPath("tick"), c.Tick, time.Second, time.Minute)...)
	return append(errs, c.Verdicts.validate(field.NewPath("verdicts"), c.Tick.Duration)...)
}

// maxVerdictTime is as long as samples can be kept.
const maxVerdictTime = 24 * time.Hour

func (v *GPUAgentVerdicts) validate(at *field.Path, tick time.Duration) field.ErrorList {
	// Four samples are the least that says anything.
	window := 4 * tick
	errs := between(at.Child("blindAfter"), v.BlindAfter, window, maxVerdictTime)
	given := GPUAgentOverride{IdleAfter: v.IdleAfter, IdleAge: v.IdleAge, StalledAfter: v.StalledAfter, ReclaimAfter: v.ReclaimAfter, ReclaimAge: v.ReclaimAge}
	for name, d := range given.windows() {
		errs = append(errs, between(at.Child(name), d, window, maxVerdictTime)...)
	}
	for name, d := range given.ages() {
		errs = append(errs, between(at.Child(name), d, 0, maxVerdictTime)...)
	}
	for name, part := range map[string]float64{"covered": v.Covered, "busyFrom": v.BusyFrom, "spinningFrom": v.SpinningFrom, "spinningPower": v.SpinningPower} {
		if !(part > 0 && part <= 1) {
			errs = append(errs, field.Invalid(at.Child(name), part, "must be greater than 0 and at most 1"))
		}
	}
	for of, overrides := range map[string]map[string]GPUAgentOverride{"kinds": v.Kinds, "queues": v.Queues} {
		for key, o := range overrides {
			for name, d := range o.windows() {
				if d.Duration != 0 {
					errs = append(errs, between(at.Child(of).Key(key).Child(name), d, window, maxVerdictTime)...)
				}
			}
			for name, d := range o.ages() {
				errs = append(errs, between(at.Child(of).Key(key).Child(name), d, 0, maxVerdictTime)...)
			}
		}
	}
	return errs
}

func (o GPUAgentOverride) windows() map[string]metav1.Duration {
	return map[string]metav1.Duration{"idleAfter": o.IdleAfter, "stalledAfter": o.StalledAfter}
}

func (o GPUAgentOverride) ages() map[string]metav1.Duration {
	return map[string]metav1.Duration{"idleAge": o.IdleAge, "reclaimAfter": o.ReclaimAfter, "reclaimAge": o.ReclaimAge}
}

func between(at *field.Path, d metav1.Duration, least, most time.Duration) field.ErrorList {
	if d.Duration < least || d.Duration > most {
		return field.ErrorList{field.Invalid(at, d.Duration.String(), fmt.Sprintf("must be from %s to %s", least, most))}
	}
	return nil
}

package v1alpha1

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

const (
	// maxPassBudget keeps pods outside gangs schedulable beside a long queue.
	maxPassBudget = time.Second
	// maxBarrier is the longest that the scheduling framework lets a pod wait
	// at Permit.
	maxBarrier = 15 * time.Minute
	// maxParameters and maxParameter bound the parameters of a ProvisioningRequest
	// in number and in characters.
	maxParameters = 100
	maxParameter  = 255
	// renewJitter is client-go's: a leader retries after up to this many
	// retry periods.
	renewJitter = 1.2
)

// Validate returns everything that is wrong with the configuration, by field.
func (c *SchedulerConfiguration) Validate() field.ErrorList {
	errs := c.ClientConnection.validate(field.NewPath("clientConnection"))
	errs = append(errs, c.LeaderElection.validate(field.NewPath("leaderElection"))...)
	errs = append(errs, ipAddress(field.NewPath("secureServing", "bindAddress"), c.SecureServing.BindAddress)...)
	errs = append(errs, port(field.NewPath("secureServing", "port"), c.SecureServing.Port)...)
	if c.SecureServing.QuestionsPort != 0 {
		errs = append(errs, port(field.NewPath("secureServing", "questionsPort"), c.SecureServing.QuestionsPort)...)
	}
	errs = append(errs, profiles(field.NewPath("profiles"), c.Profiles)...)
	if providers := []string{ProviderNative, ProviderKueue}; !slices.Contains(providers, c.Quota.Provider) {
		errs = append(errs, field.NotSupported(field.NewPath("quota", "provider"), c.Quota.Provider, providers))
	}
	errs = append(errs, c.Quota.FairSharing.validate(field.NewPath("quota", "fairSharing"), c.Quota.Provider)...)
	errs = append(errs, deviceClassMappings(field.NewPath("quota", "deviceClassMappings"), c.Quota.DeviceClassMappings)...)
	errs = append(errs, c.Topology.validate(field.NewPath("topology"))...)
	errs = append(errs, c.Islands.validate(field.NewPath("islands"))...)
	errs = append(errs, unqueued(field.NewPath("unqueued"), c.Unqueued)...)
	errs = append(errs, c.Admission.validate(field.NewPath("admission"))...)
	if c.Metrics.KueueNames && c.Quota.Provider == ProviderKueue {
		errs = append(errs, field.Forbidden(field.NewPath("metrics", "kueueNames"), "Kueue's manager serves these metrics itself where quota.provider is kueue"))
	}
	return append(errs, c.Autoscaling.ProvisioningRequests.validate(field.NewPath("autoscaling", "provisioningRequests"), c.Quota.Provider)...)
}

// Validate returns everything that is wrong with the configuration, by field.
func (c *WebhookConfiguration) Validate() field.ErrorList {
	errs := c.Webhook.validate(field.NewPath("webhook"))
	errs = append(errs, hostPort(field.NewPath("health", "bindAddress"), c.Health.BindAddress)...)
	if c.Metrics.BindAddress != MetricsOff {
		errs = append(errs, hostPort(field.NewPath("metrics", "bindAddress"), c.Metrics.BindAddress)...)
	}
	errs = append(errs, objectName(field.NewPath("schedulerName"), c.SchedulerName)...)
	errs = append(errs, unqueued(field.NewPath("unqueued"), c.Unqueued)...)
	exempt := field.NewPath("exemptNamespaces")
	for i, ns := range c.ExemptNamespaces {
		errs = append(errs, namespaceName(exempt.Index(i), ns)...)
	}
	return append(errs, c.Policies.validate(field.NewPath("policies"))...)
}

func (c *SchedulerClientConnection) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !(c.QPS > 0) {
		errs = append(errs, field.Invalid(at.Child("qps"), c.QPS, "must be greater than 0"))
	}
	if c.Burst < 1 {
		errs = append(errs, field.Invalid(at.Child("burst"), c.Burst, "must be at least 1"))
	}
	return errs
}

func (f *FairSharing) validate(at *field.Path, provider string) field.ErrorList {
	var errs field.ErrorList
	if f.Enable && provider != ProviderNative {
		errs = append(errs, field.Invalid(at.Child("enable"), f.Enable, "Kueue decides quota: turn fair sharing on in its configuration"))
	}
	for _, valid := range [][]string{{FinalShare}, {InitialShare}, {FinalShare, InitialShare}} {
		if slices.Equal(valid, f.PreemptionStrategies) {
			return errs
		}
	}
	return append(errs, field.Invalid(at.Child("preemptionStrategies"), f.PreemptionStrategies,
		fmt.Sprintf("must be [%s, %s] or one of them", FinalShare, InitialShare)))
}

func (r *ProvisioningRequests) validate(at *field.Path, provider string) field.ErrorList {
	var errs field.ErrorList
	if r.ClassName != "" {
		errs = append(errs, objectName(at.Child("className"), r.ClassName)...)
		if provider != ProviderNative {
			errs = append(errs, field.Invalid(at.Child("className"), r.ClassName, "Kueue decides quota: it asks for nodes by an AdmissionCheck"))
		}
	}
	if len(r.Parameters) > maxParameters {
		errs = append(errs, field.TooMany(at.Child("parameters"), len(r.Parameters), maxParameters))
	}
	for _, key := range slices.Sorted(maps.Keys(r.Parameters)) {
		if len(r.Parameters[key]) > maxParameter {
			errs = append(errs, field.TooLong(at.Child("parameters").Key(key), "", maxParameter))
		}
	}
	return append(errs, r.Retry.validate(at.Child("retry"))...)
}

func (l *LeaderElection) validate(at *field.Path) field.ErrorList {
	if !l.LeaderElect {
		return nil
	}
	errs := namespaceName(at.Child("resourceNamespace"), l.ResourceNamespace)
	errs = append(errs, objectName(at.Child("resourceName"), l.ResourceName)...)
	errs = append(errs, positive(at.Child("retryPeriod"), l.RetryPeriod)...)
	if float64(l.RenewDeadline.Duration) <= renewJitter*float64(l.RetryPeriod.Duration) {
		errs = append(errs, field.Invalid(at.Child("renewDeadline"), l.RenewDeadline.Duration.String(),
			fmt.Sprintf("must be greater than %v times retryPeriod (%s)", renewJitter, l.RetryPeriod.Duration)))
	}
	if l.LeaseDuration.Duration <= l.RenewDeadline.Duration {
		errs = append(errs, field.Invalid(at.Child("leaseDuration"), l.LeaseDuration.Duration.String(),
			fmt.Sprintf("must be greater than renewDeadline (%s)", l.RenewDeadline.Duration)))
	}
	return errs
}

func (a *Admission) validate(at *field.Path) field.ErrorList {
	errs := within(at.Child("passBudget"), a.PassBudget, maxPassBudget)
	errs = append(errs, positive(at.Child("startTimeout"), a.StartTimeout)...)
	if d := a.RecoveryTimeout.Duration; d < 0 {
		errs = append(errs, field.Invalid(at.Child("recoveryTimeout"), d.String(), "must be at least 0, which means startTimeout"))
	}
	if d := a.ReadyTimeout.Duration; d < 0 {
		errs = append(errs, field.Invalid(at.Child("readyTimeout"), d.String(), "must be at least 0, which means no limit"))
	}
	if a.NodeLossGrace.Duration < 0 {
		errs = append(errs, field.Invalid(at.Child("nodeLossGrace"), a.NodeLossGrace.Duration.String(), "must be at least 0"))
	}
	if d := a.ReservationAfter.Duration; d < 0 {
		errs = append(errs, field.Invalid(at.Child("reservationAfter"), d.String(), "must be at least 0, which means never"))
	}
	if d := a.ReservationFor.Duration; d < 0 {
		errs = append(errs, field.Invalid(at.Child("reservationFor"), d.String(), "must be at least 0, which means no limit"))
	}
	errs = append(errs, within(at.Child("barrierTimeout"), a.BarrierTimeout, maxBarrier)...)
	if modes := []string{RenderingDryRun, RenderingLocal}; !slices.Contains(modes, a.Rendering) {
		errs = append(errs, field.NotSupported(at.Child("rendering"), a.Rendering, modes))
	}
	return append(errs, a.Requeue.validate(at.Child("requeue"))...)
}

func (b *Backoff) validate(at *field.Path) field.ErrorList {
	errs := positive(at.Child("backoffBase"), b.BackoffBase)
	if b.BackoffMax.Duration < b.BackoffBase.Duration {
		errs = append(errs, field.Invalid(at.Child("backoffMax"), b.BackoffMax.Duration.String(),
			fmt.Sprintf("must be at least backoffBase (%s)", b.BackoffBase.Duration)))
	}
	if n := b.LimitCount; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(at.Child("limitCount"), *n, "must be at least 0, or null for no limit"))
	}
	return errs
}

func (w *WebhookServing) validate(at *field.Path) field.ErrorList {
	errs := ipAddress(at.Child("bindAddress"), w.BindAddress)
	errs = append(errs, port(at.Child("port"), w.Port)...)
	errs = append(errs, namespaceName(at.Child("secretNamespace"), w.SecretNamespace)...)
	errs = append(errs, objectName(at.Child("secretName"), w.SecretName)...)
	errs = append(errs, invalid(at.Child("serviceName"), w.ServiceName, validation.IsDNS1035Label(w.ServiceName))...)
	errs = append(errs, objectName(at.Child("mutatingConfigurationName"), w.MutatingConfigurationName)...)
	errs = append(errs, objectName(at.Child("validatingConfigurationName"), w.ValidatingConfigurationName)...)
	for i, host := range w.Hosts {
		if netutils.ParseIPSloppy(host) == nil {
			errs = append(errs, objectName(at.Child("hosts").Index(i), host)...)
		}
	}
	return errs
}

func unqueued(at *field.Path, mode string) field.ErrorList {
	if modes := []string{UnqueuedDefault, UnqueuedRun, UnqueuedHold}; !slices.Contains(modes, mode) {
		return field.ErrorList{field.NotSupported(at, mode, modes)}
	}
	return nil
}

func profiles(at *field.Path, names []string) field.ErrorList {
	if len(names) == 0 {
		return field.ErrorList{field.Required(at, "at least one scheduler name")}
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, name := range names {
		errs = append(errs, objectName(at.Index(i), name)...)
		if seen.Has(name) {
			errs = append(errs, field.Duplicate(at.Index(i), name))
		}
		seen.Insert(name)
	}
	return errs
}

func positive(at *field.Path, d metav1.Duration) field.ErrorList {
	if d.Duration > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, d.Duration.String(), "must be greater than 0")}
}

func within(at *field.Path, d metav1.Duration, limit time.Duration) field.ErrorList {
	if d.Duration > limit {
		return field.ErrorList{field.Invalid(at, d.Duration.String(), fmt.Sprintf("must be at most %s", limit))}
	}
	return positive(at, d)
}

func port(at *field.Path, p int32) field.ErrorList {
	return invalid(at, p, validation.IsValidPortNum(int(p)))
}

func ipAddress(at *field.Path, address string) field.ErrorList {
	return validation.IsValidIP(at, address)
}

func hostPort(at *field.Path, address string) field.ErrorList {
	host, number, err := net.SplitHostPort(address)
	if err != nil {
		return field.ErrorList{field.Invalid(at, address, "must be host:port or :port")}
	}
	p, err := strconv.Atoi(number)
	if err != nil {
		return field.ErrorList{field.Invalid(at, address, "its port must be a number")}
	}
	errs := invalid(at, address, validation.IsValidPortNum(p))
	if host != "" && netutils.ParseIPSloppy(host) == nil {
		errs = append(errs, objectName(at, host)...)
	}
	return errs
}

func namespaceName(at *field.Path, name string) field.ErrorList {
	return invalid(at, name, validation.IsDNS1123Label(name))
}

func objectName(at *field.Path, name string) field.ErrorList {
	return invalid(at, name, validation.IsDNS1123Subdomain(name))
}

func invalid(at *field.Path, value any, problems []string) field.ErrorList {
	var errs field.ErrorList
	for _, p := range problems {
		errs = append(errs, field.Invalid(at, value, p))
	}
	return errs
}

package v1alpha1

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// WebhookPolicies are the policies that the webhook asks beside AdmissionPolicies.
type WebhookPolicies struct {
	// Library changes policies of Muster's own library, by their names. The others are
	// at their default levels.
	Library map[string]LibraryPolicy `json:"library"`
	// ConfigMapNamespace is where ConfigMaps with the label openpolicyagent.org/policy=rego
	// are policies; empty for none. Whoever may write them there decides what the
	// cluster takes.
	ConfigMapNamespace string `json:"configMapNamespace"`
	// DeviceClassMappings say which devices that pods claim count as which resources, as
	// in the scheduler's configuration.
	DeviceClassMappings []DeviceClassMapping `json:"deviceClassMappings"`
	Audit               WebhookAudit         `json:"audit"`
}

// WebhookAudit is how objects that exist are looked at.
type WebhookAudit struct {
	// Interval is the time from the end of an audit to the next one; 0 for none.
	Interval metav1.Duration `json:"interval"`
	// ChunkSize is how many objects are read at a time.
	ChunkSize int64 `json:"chunkSize"`
}

// Levels of a policy of the library: it is not asked, warns, or refuses.
const (
	PolicyOff  = "off"
	PolicyWarn = "warn"
	PolicyDeny = "deny"
)

// LibraryPolicy changes one policy of the library.
type LibraryPolicy struct {
	// Level is PolicyOff, PolicyWarn, PolicyDeny, or empty for the policy's own.
	Level string `json:"level"`
	// Parameters replace those of the same names.
	Parameters map[string]any `json:"parameters"`
	// Exempt are requests of which it is not asked.
	Exempt LibraryExemptions `json:"exempt"`
}

// LibraryExemptions are requests of which a policy is not asked.
type LibraryExemptions struct {
	// Namespaces are names that may end in '*'.
	Namespaces []string `json:"namespaces"`
	// Users make the request, and Groups are those of the user.
	Users  []string `json:"users"`
	Groups []string `json:"groups"`
}

func (p *WebhookPolicies) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	levels := []string{PolicyOff, PolicyWarn, PolicyDeny}
	for _, name := range slices.Sorted(maps.Keys(p.Library)) {
		if level := p.Library[name].Level; level != "" && !slices.Contains(levels, level) {
			errs = append(errs, field.NotSupported(at.Child("library").Key(name).Child("level"), level, levels))
		}
	}
	if p.ConfigMapNamespace != "" {
		errs = append(errs, namespaceName(at.Child("configMapNamespace"), p.ConfigMapNamespace)...)
	}
	errs = append(errs, deviceClassMappings(at.Child("deviceClassMappings"), p.DeviceClassMappings)...)
	if d := p.Audit.Interval.Duration; d < 0 || (d > 0 && d < minAuditInterval) {
		errs = append(errs, field.Invalid(at.Child("audit", "interval"), d.String(), "must be 0 for none, or at least "+minAuditInterval.String()))
	}
	if n := p.Audit.ChunkSize; n < 1 {
		errs = append(errs, field.Invalid(at.Child("audit", "chunkSize"), n, "must be at least 1"))
	}
	return errs
}

// minAuditInterval keeps audits from being most of what the API server does.
const minAuditInterval = 10 * time.Second

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// AdmissionPolicy is a policy in Rego that is asked whether an object may be created
// or changed. Rules that were written for Gatekeeper (violation), OPA (deny) or
// conftest (deny and warn of the object alone) are taken as they are.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=admissionpolicies,scope=Cluster,singular=admissionpolicy,categories=muster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Enforcement",type=string,JSONPath=`.spec.enforcement`
// +kubebuilder:printcolumn:name="Compiled",type=string,JSONPath=`.status.conditions[?(@.type=="Compiled")].status`
// +kubebuilder:printcolumn:name="Denied",type=integer,JSONPath=`.status.counts.denied`
// +kubebuilder:printcolumn:name="Warned",type=integer,JSONPath=`.status.counts.warned`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.counts.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AdmissionPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AdmissionPolicySpec `json:"spec"`
	// +optional
	Status AdmissionPolicyStatus `json:"status,omitempty"`
}

// AdmissionPolicyList is a list of AdmissionPolicies.
//
// +kubebuilder:object:root=true
type AdmissionPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AdmissionPolicy `json:"items"`
}

// PolicyEnforcement says what a violation does.
//
// +kubebuilder:validation:Enum=deny;warn;dryrun
type PolicyEnforcement string

// A violation refuses the request, is told to the user, or is only recorded.
const (
	EnforcementDeny   PolicyEnforcement = "deny"
	EnforcementWarn   PolicyEnforcement = "warn"
	EnforcementDryRun PolicyEnforcement = "dryrun"
)

// AdmissionPolicySpec says what is asked, about what, and what comes of it.
type AdmissionPolicySpec struct {
	// Rego is the policy: one module with a rule named violation, deny or warn, or one
	// of these with _ and more behind it. It gives strings, or objects with a msg;
	// details with a key, and a number as value, say what an update has made worse.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	Rego string `json:"rego"`
	// Libs are further modules that it imports.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=262144
	Libs []string `json:"libs,omitempty"`
	// RegoVersion is the language of all modules. Without it, it is the one in which they
	// can be read, v1 before v0.
	//
	// +optional
	// +kubebuilder:validation:Enum=v0;v1
	RegoVersion string `json:"regoVersion,omitempty"`
	// Input says what input is: admission, the request, as Gatekeeper and OPA know it,
	// with input.parameters and input.workload; or manifest, the object alone, as
	// conftest knows it. Without it, it is what the rules read.
	//
	// +optional
	// +kubebuilder:validation:Enum=admission;manifest
	Input string `json:"input,omitempty"`
	// Enforcement says what a violation does. Rules named warn never refuse.
	//
	// +kubebuilder:default=deny
	Enforcement PolicyEnforcement `json:"enforcement,omitempty"`
	// OnError says what happens where neither the policy nor a version of it from
	// before can be evaluated. Without it, it is what a violation does, and a warning
	// for a policy that has never compiled.
	//
	// +optional
	OnError PolicyEnforcement `json:"onError,omitempty"`
	// Match says which requests the policy is asked about: every part that is given
	// must hold. Without it, all that reach the webhook.
	//
	// +optional
	Match PolicyMatch `json:"match,omitempty"`
	// Exempt are requests that it is not asked about.
	//
	// +optional
	Exempt PolicyExemptions `json:"exempt,omitempty"`
	// Parameters are input.parameters.
	//
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`
}

// PolicyMatch selects requests.
type PolicyMatch struct {
	// Kinds of the object. Empty means any.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Kinds []PolicyKinds `json:"kinds,omitempty"`
	// Namespaces are names that may end in '*'. Empty means any; otherwise an object
	// without a namespace is none of them.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=64
	Namespaces []string `json:"namespaces,omitempty"`
	// ExcludedNamespaces are names that may end in '*'.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=64
	ExcludedNamespaces []string `json:"excludedNamespaces,omitempty"`
	// Operations are CREATE and UPDATE if none are given.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=CREATE;UPDATE;DELETE;CONNECT
	Operations []string `json:"operations,omitempty"`
}

// PolicyKinds are all kinds of these names in all of these groups.
type PolicyKinds struct {
	// APIGroups; "*", or none, is any, and "" is the core group.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	APIGroups []string `json:"apiGroups,omitempty"`
	// Kinds; "*", or none, is any.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	Kinds []string `json:"kinds,omitempty"`
}

// PolicyExemptions are requests that a policy is not asked about.
type PolicyExemptions struct {
	// Namespaces are names that may end in '*'.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=64
	Namespaces []string `json:"namespaces,omitempty"`
	// Users make the request.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	Users []string `json:"users,omitempty"`
	// Groups are those of the user.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	Groups []string `json:"groups,omitempty"`
}

// ConditionCompiled of an AdmissionPolicy is true if its newest version compiles.
const ConditionCompiled = "Compiled"

// AdmissionPolicyStatus is what has become of a policy.
type AdmissionPolicyStatus struct {
	// ObservedGeneration is that of the spec that the rest is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// LastGoodGeneration is that of the newest version that compiled, which is the one
	// that is asked.
	//
	// +optional
	LastGoodGeneration int64 `json:"lastGoodGeneration,omitempty"`
	// RegoVersion and Input are those of that version, also where the spec leaves them
	// out.
	//
	// +optional
	RegoVersion string `json:"regoVersion,omitempty"`
	// +optional
	Input string `json:"input,omitempty"`
	// QuarantinedUntil is set while the policy is not asked because it did not end in
	// time.
	//
	// +optional
	QuarantinedUntil *metav1.Time `json:"quarantinedUntil,omitempty"`
	// Errors are why the spec does not compile, or else why it could not be evaluated
	// when it was last asked.
	//
	// +optional
	// +listType=atomic
	Errors []PolicyError `json:"errors,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Counts are since the webhook began.
	//
	// +optional
	Counts PolicyCounts `json:"counts,omitempty"`
	// LastViolations are the last ones, the newest last.
	//
	// +optional
	// +listType=atomic
	LastViolations []PolicyViolation `json:"lastViolations,omitempty"`
	// Audit is what was last found among objects that exist.
	//
	// +optional
	Audit *PolicyAudit `json:"audit,omitempty"`
}

// PolicyAudit is what a policy says of objects that exist.
type PolicyAudit struct {
	At metav1.Time `json:"at"`
	// Violations is how many there are, and Failed how often the policy could not be
	// evaluated.
	Violations int64 `json:"violations"`
	Failed     int64 `json:"failed"`
	// Found are the first of them.
	//
	// +optional
	// +listType=atomic
	Found []PolicyViolation `json:"found,omitempty"`
}

// PolicyError is one thing that is wrong with a policy.
type PolicyError struct {
	// File is rego, or libs[0] and so on; Row and Column count from 1. They are left out
	// where no place is known.
	//
	// +optional
	File string `json:"file,omitempty"`
	// +optional
	Row int32 `json:"row,omitempty"`
	// +optional
	Column  int32  `json:"column,omitempty"`
	Message string `json:"message"`
}

// PolicyCounts are numbers of reviews, of violations and of failures.
type PolicyCounts struct {
	// Reviews is how often the policy was asked.
	Reviews int64 `json:"reviews"`
	// Denied, Warned and DryRun are violations by what they did.
	Denied int64 `json:"denied"`
	Warned int64 `json:"warned"`
	DryRun int64 `json:"dryrun"`
	// Standing are those that were there before an update, which refuse nothing.
	Standing int64 `json:"standing"`
	// Failed is how often the policy could not be evaluated.
	Failed int64 `json:"failed"`
}

// PolicyViolation is one violation.
type PolicyViolation struct {
	Kind string `json:"kind"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name ends in '*' where it was to be generated.
	Name    string      `json:"name"`
	Message string      `json:"message"`
	At      metav1.Time `json:"at"`
}

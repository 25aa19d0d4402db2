// Package static says with ValidatingAdmissionPolicies of the API server (CEL) what some
// policies of the library say in Rego, for clusters that want no webhook.
//
// Only what an object says itself can be asked about: no runtime, no owner, no queue, and
// no number of pods. Both say the same of an object otherwise, with the same parameters,
// levels and exemptions, and an update is refused only for what the old object did not
// have. Nothing is applied here. Start from Generate.
package static

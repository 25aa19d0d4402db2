// Package rendering says what the pods of a job will be before they exist: a
// pod template is not what a node gets. LimitRanges add requests, a
// RuntimeClass adds overhead and a node selector, webhooks add sidecars.
//
// Each template is rendered twice. Local does what the API server's own
// admission does, and is what the job is charged for. The dry run asks the API
// server to create the pod without keeping it, and is what the nodes must take.
// Where no dry run may be made or it is refused, the local rendering serves for
// both, and the pods are compared with it when they appear (Difference).
//
// It never creates a pod: a dry run is made only while a
// ValidatingAdmissionPolicy denies this process anything else. A rendering
// never fails because a dry run does. Start from Renderer.
package rendering

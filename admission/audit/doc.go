// Package audit asks the policies about objects that exist: those from before a policy,
// from before a stricter version of it, or from while the webhook was away.
//
// It only looks: nothing is changed, and no review that waits is delayed by more than
// one object. Start from Auditor.
package audit

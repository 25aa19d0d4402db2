// Package v1alpha1 is the configuration files of Muster's programs, group
// config.muster.dev: one file per program, versioned, and decoded strictly.
//
// A field that is left out has the default that DefaultScheduler or
// DefaultWebhook gives it; a field that is unknown, given twice or out of range
// is an error that names it. manifests/config holds a commented file for each
// program with every field at its default. Nothing here is read from the
// cluster or from the environment, and log verbosity is a flag. Start from
// LoadScheduler and LoadWebhook.
package v1alpha1

// Package manifests carries the kustomize bases with which Muster is
// installed, so that programs can apply them from any folder.
package manifests

import "embed"

// FS holds this folder: base is what the sandbox applies.
//
//go:embed *
var FS embed.FS

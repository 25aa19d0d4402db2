// Package version knows which Muster this is. The Kubernetes libraries keep
// a version of their own, which decides feature gates and must stay theirs.
package version

import "runtime/debug"

// Version is set when a release is built; empty otherwise.
var Version string

// String is the release, else the commit, else "devel".
func String() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return "devel-" + s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return "devel"
}

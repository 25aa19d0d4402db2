package sandbox

import (
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/muster-gpu/muster/manifests"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	sigsyaml "sigs.k8s.io/yaml"
)

// musterNamespace is where the base puts Muster's service accounts, which are
// called like the components.
const musterNamespace = "muster-system"

// loadMuster renders the overlay that an administrator of such a cluster installs, and the
// example of RuntimeDefaults.
func loadMuster(o Options) ([]*unstructured.Unstructured, error) {
	overlay := "default"
	switch {
	case o.Has(WithKueue):
		overlay = "kueue"
	case !o.Has(WithWebhook):
		overlay = "no-webhook"
	}
	var objects []*unstructured.Unstructured
	for _, folder := range []string{"overlays/" + overlay, "base/defaults"} {
		part, err := buildKustomization(folder, map[string]fs.FS{"": manifests.FS}, nil)
		if err != nil {
			return nil, fmt.Errorf("rendering Muster's manifests: %w", err)
		}
		objects = append(objects, part...)
	}
	return keepKinds(objects), nil
}

func (s *setup) musterSchedulerProgram() (program, error) {
	port, questions := s.ports.next(), s.ports.next()
	base := map[string]any{
		"apiVersion": "config.muster.dev/v1alpha1",
		"kind":       "SchedulerConfiguration",
		// No other scheduler runs here, so plain pods are its business too.
		"profiles": []any{"muster", "default-scheduler"},
	}
	if s.options.Config != "" {
		content, err := os.ReadFile(s.options.Config)
		if err != nil {
			return program{}, fmt.Errorf("reading the scheduler's configuration: %w", err)
		}
		base = nil
		if err := sigsyaml.UnmarshalStrict(content, &base); err != nil {
			return program{}, fmt.Errorf("reading the scheduler's configuration %s: %w", s.options.Config, err)
		}
	}
	path := s.config("muster-scheduler.yaml")
	err := writeConfiguration(path, mergeFields(base, map[string]any{
		"clientConnection": map[string]any{"kubeconfig": s.identity(componentMusterScheduler), "qps": s.options.ClientQPS, "burst": 2 * s.options.ClientQPS},
		"leaderElection":   map[string]any{"leaderElect": false},
		"secureServing":    map[string]any{"bindAddress": "127.0.0.1", "port": port, "questionsPort": questions},
	}))
	if err != nil {
		return program{}, err
	}
	return program{
		name: componentMusterScheduler, path: s.options.binary(binaryScheduler), args: []string{"--config=" + path},
		ports: map[string]int{"serving": port, "questions": questions},
		ready: httpReady("https://" + loopback(port) + "/readyz"),
		wait:  60 * time.Second, grace: 3 * time.Second,
	}, nil
}

func (s *setup) musterWebhookProgram() (program, error) {
	webhook, health := s.ports.next(), s.ports.next()
	path := s.config("muster-webhook.yaml")
	err := writeConfiguration(path, map[string]any{
		"apiVersion":       "config.muster.dev/v1alpha1",
		"kind":             "WebhookConfiguration",
		"clientConnection": map[string]any{"kubeconfig": s.identity(componentMusterWebhook)},
		"webhook":          map[string]any{"bindAddress": "127.0.0.1", "port": webhook, "hosts": []any{"127.0.0.1"}},
		"health":           map[string]any{"bindAddress": loopback(health)},
		"metrics":          map[string]any{"bindAddress": "0"},
	})
	if err != nil {
		return program{}, err
	}
	return program{
		name: componentMusterWebhook, path: s.options.binary(binaryWebhook), args: []string{"--config=" + path},
		ports: map[string]int{"webhook": webhook, "health": health},
		ready: httpReady("http://" + loopback(health) + "/readyz"),
		wait:  60 * time.Second, grace: 3 * time.Second,
	}, nil
}

func writeConfiguration(path string, fields map[string]any) error {
	content, err := sigsyaml.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encoding the configuration %s: %w", path, err)
	}
	return writeFile(path, content, 0o600)
}

// mergeFields returns base with the fields of over laid over it, map by map.
// What the sandbox must decide (connection, port) wins over a user's file.
func mergeFields(base, over map[string]any) map[string]any {
	merged := make(map[string]any, len(base)+len(over))
	for key, value := range base {
		merged[key] = value
	}
	for key, value := range over {
		below, isMap := merged[key].(map[string]any)
		if above, ok := value.(map[string]any); ok && isMap {
			value = mergeFields(below, above)
		}
		merged[key] = value
	}
	return merged
}

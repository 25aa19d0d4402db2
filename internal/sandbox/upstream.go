package sandbox

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// UpstreamModules are the folders of the modules whose manifests the sandbox
// needs, as "go list -m -f {{.Dir}}" prints them.
type UpstreamModules struct {
	JobSet, Trainer, SchedulerPlugins string
}

// The files that RenderUpstream writes.
const (
	upstreamJobSet   = "jobset.yaml"
	upstreamTrainer  = "trainer.yaml"
	upstreamPodGroup = "podgroup.yaml"
)

// trainerKustomization composes the parts of the Trainer's manifests that its
// own overlay composes, without the JobSet that the overlay fetches from the
// network.
const trainerKustomization = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: kubeflow-system
resources:
- namespace.yaml
- ../trainer/base/crds
- ../trainer/base/rbac
- ../trainer/base/webhook
- ../trainer/overlays/runtimes
`

const trainerNamespace = `apiVersion: v1
kind: Namespace
metadata:
  name: kubeflow-system
`

// RenderUpstream writes the upstream controllers' definitions, permissions,
// webhooks and training runtimes into folder out, each from the kustomization
// that the module ships. Deployments are left out: the sandbox runs processes.
func RenderUpstream(modules UpstreamModules, out string) error {
	jobset, err := buildKustomization("jobset/default", map[string]fs.FS{
		"jobset": os.DirFS(filepath.Join(modules.JobSet, "config")),
	}, nil)
	if err != nil {
		return fmt.Errorf("rendering JobSet's manifests: %w", err)
	}
	trainer, err := buildKustomization("sandbox", map[string]fs.FS{
		"trainer": os.DirFS(filepath.Join(modules.Trainer, "manifests")),
	}, map[string]string{
		"sandbox/kustomization.yaml": trainerKustomization,
		"sandbox/namespace.yaml":     trainerNamespace,
	})
	if err != nil {
		return fmt.Errorf("rendering the Trainer's manifests: %w", err)
	}
	podGroup, err := readObjects(filepath.Join(modules.SchedulerPlugins, "manifests", "coscheduling", "crd.yaml"))
	if err != nil {
		return fmt.Errorf("rendering the PodGroup definition: %w", err)
	}
	for name, objects := range map[string][]*unstructured.Unstructured{
		upstreamJobSet: jobset, upstreamTrainer: trainer, upstreamPodGroup: podGroup,
	} {
		if err := writeObjects(filepath.Join(out, name), keepKinds(objects)); err != nil {
			return err
		}
	}
	return nil
}

// loadUpstream reads the manifests that the chosen parts need.
func loadUpstream(o Options) ([]*unstructured.Unstructured, error) {
	var names []string
	if o.Has(WithJobSet) {
		names = append(names, upstreamJobSet)
	}
	if o.Has(WithTrainer) {
		names = append(names, upstreamTrainer, upstreamPodGroup)
	}
	var all []*unstructured.Unstructured
	for _, name := range names {
		objects, err := readObjects(filepath.Join(o.BinDir, "upstream", name))
		if err != nil {
			return nil, fmt.Errorf("%w (run \"make sandbox\")", err)
		}
		for _, object := range objects {
			dropConversion(object)
		}
		all = append(all, objects...)
	}
	return all, nil
}

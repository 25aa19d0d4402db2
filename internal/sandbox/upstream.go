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
	JobSet, Trainer, SchedulerPlugins, Kueue, TrainingOperator string
}

// The files that RenderUpstream writes.
const (
	upstreamJobSet   = "jobset.yaml"
	upstreamTrainer  = "trainer.yaml"
	upstreamPodGroup = "podgroup.yaml"
	upstreamKueue    = "kueue.yaml"

	upstreamTrainingOperator = "training-operator.yaml"
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

// RenderUpstream writes the definitions, permissions, webhooks and training
// runtimes of those upstream controllers into folder out whose modules are
// given, each from the kustomization that the module ships. Deployments are left
// out: the sandbox runs processes.
func RenderUpstream(modules UpstreamModules, out string) error {
	for _, m := range []struct {
		what, folder, file string
		render             func(folder string) ([]*unstructured.Unstructured, error)
	}{
		{"JobSet's manifests", modules.JobSet, upstreamJobSet, renderJobSet},
		{"the Trainer's manifests", modules.Trainer, upstreamTrainer, renderTrainer},
		{"the PodGroup definition", modules.SchedulerPlugins, upstreamPodGroup, renderPodGroup},
		{"Kueue's manifests", modules.Kueue, upstreamKueue, renderKueue},
		{"the Training Operator's manifests", modules.TrainingOperator, upstreamTrainingOperator, renderTrainingOperator},
	} {
		if m.folder == "" {
			continue
		}
		objects, err := m.render(m.folder)
		if err != nil {
			return fmt.Errorf("rendering %s: %w", m.what, err)
		}
		if err := writeObjects(filepath.Join(out, m.file), keepKinds(objects)); err != nil {
			return err
		}
	}
	return nil
}

func renderJobSet(folder string) ([]*unstructured.Unstructured, error) {
	return buildKustomization("jobset/default", map[string]fs.FS{"jobset": os.DirFS(filepath.Join(folder, "config"))}, nil)
}

func renderTrainer(folder string) ([]*unstructured.Unstructured, error) {
	return buildKustomization("sandbox", map[string]fs.FS{
		"trainer": os.DirFS(filepath.Join(folder, "manifests")),
	}, map[string]string{
		"sandbox/kustomization.yaml": trainerKustomization,
		"sandbox/namespace.yaml":     trainerNamespace,
	})
}

func renderPodGroup(folder string) ([]*unstructured.Unstructured, error) {
	return readObjects(filepath.Join(folder, "manifests", "coscheduling", "crd.yaml"))
}

func renderKueue(folder string) ([]*unstructured.Unstructured, error) {
	return buildKustomization("kueue/default", map[string]fs.FS{"kueue": os.DirFS(filepath.Join(folder, "config"))}, nil)
}

// loadUpstream reads the manifests that the chosen parts need.
func loadUpstream(o Options) ([]*unstructured.Unstructured, error) {
	var names []string
	if o.Has(WithJobSet) {
		names = append(names, upstreamJobSet)
	}
	if o.Has(WithTrainer) {
		names = append(names, upstreamTrainer)
	}
	if o.Has(WithTrainer) || o.Has(WithCoscheduling) || o.Has(WithPodGroups) {
		names = append(names, upstreamPodGroup)
	}
	if o.Has(WithKueue) {
		names = append(names, upstreamKueue)
	}
	if o.Has(WithTrainingOperator) {
		names = append(names, upstreamTrainingOperator)
	}
	var all []*unstructured.Unstructured
	for _, name := range names {
		objects, err := readObjects(filepath.Join(o.BinDir, "upstream", name))
		if err != nil {
			return nil, fmt.Errorf("%w (run \"make sandbox\", for kueue \"make sandbox-kueue\", for training-operator \"make sandbox-training-operator\")", err)
		}
		if name != upstreamKueue {
			for _, object := range objects {
				dropConversion(object)
			}
		}
		all = append(all, objects...)
	}
	return all, nil
}

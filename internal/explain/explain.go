package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/muster-gpu/muster/admission/defaults"
)

// readWithin bounds the reading of the cluster's RuntimeDefaults.
const readWithin = 15 * time.Second

// Options say what is explained, and to whom.
type Options struct {
	Out io.Writer
	// Namespace is that of the pod, and of objects in the file that name none.
	Namespace string
	// Pod is the name of a pod that exists, or pod/NAME as kubectl prints it. It or File is
	// given.
	Pod string
	// File has pods and JobSets in YAML or JSON; "-" is In.
	File string
	In   io.Reader
}

// Run prints a table for the pod, or for each pod and each pod template of a JobSet
// in the file.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a dynamic client: %w", err)
	}
	reader, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a metadata client: %w", err)
	}
	return explain(ctx, defaults.NewCatalog(client, objects, reader), objects, options)
}

func explain(ctx context.Context, catalog *defaults.Catalog, reader dynamic.Interface, options Options) error {
	explained, err := read(ctx, reader, options)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go catalog.Follow(ctx)
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, readWithin, true, func(context.Context) (bool, error) { return catalog.Ready() == nil, nil })
	if err != nil {
		return fmt.Errorf("reading the cluster: %w", errors.Join(catalog.Ready(), err))
	}
	for _, object := range explained {
		explanations, err := catalog.Explain(ctx, object)
		if err != nil {
			return err
		}
		for i := range explanations {
			if err := print(options.Out, object, &explanations[i]); err != nil {
				return fmt.Errorf("printing: %w", err)
			}
		}
	}
	return nil
}

// read reads what is to be explained.
func read(ctx context.Context, reader dynamic.Interface, options Options) ([]*unstructured.Unstructured, error) {
	if options.File == "" {
		name := strings.TrimPrefix(options.Pod, "pod/")
		pod, err := reader.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(options.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("reading pod %s/%s: %w", options.Namespace, name, err)
		}
		return []*unstructured.Unstructured{pod}, nil
	}
	in := options.In
	if options.File != "-" {
		file, err := os.Open(options.File)
		if err != nil {
			return nil, fmt.Errorf("reading what is to be explained: %w", err)
		}
		defer file.Close()
		in = file
	}
	var all []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(in, 64<<10)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("reading %s, object %d: %w", options.File, len(all)+1, err)
		case len(object.Object) == 0:
			continue
		}
		if object.GetNamespace() == "" {
			object.SetNamespace(options.Namespace)
		}
		all = append(all, object)
	}
}

// print prints one table.
func print(out io.Writer, object *unstructured.Unstructured, e *defaults.Explanation) error {
	title := fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), object.GetName())
	if e.Template != "" {
		title += ", pods of " + e.Template
	}
	selected := "selected by no RuntimeDefaults"
	if len(e.Chosen) > 0 {
		selected = "selected by RuntimeDefaults " + strings.Join(e.Chosen, ", ")
	}
	if len(e.Applied) > 0 {
		selected += "; changed by " + strings.Join(e.Applied, ", ")
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "%s: %s\n", title, selected)
	if len(e.Values) > 0 {
		fmt.Fprintln(w, "FIELD\tVALUE\tFROM")
	}
	for _, l := range e.Lines() {
		fmt.Fprintf(w, "%s\t%s\t%s\n", l.Field, l.Value, l.Source)
	}
	for _, refusal := range e.Refusals {
		fmt.Fprintf(w, "refused: %s\n", refusal)
	}
	return w.Flush()
}

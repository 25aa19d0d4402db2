package v1alpha1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// LoadScheduler reads, defaults and validates the scheduler's file. The error
// names the file and every field that is wrong.
func LoadScheduler(path string) (*SchedulerConfiguration, error) {
	c := DefaultScheduler()
	if err := load(path, SchedulerKind, c, c.Validate); err != nil {
		return nil, err
	}
	return c, nil
}

// LoadWebhook reads, defaults and validates the webhook's file. The error names
// the file and every field that is wrong.
func LoadWebhook(path string) (*WebhookConfiguration, error) {
	c := DefaultWebhook()
	if err := load(path, WebhookKind, c, c.Validate); err != nil {
		return nil, err
	}
	return c, nil
}

// LoadGPUAgent reads, defaults and validates the GPU agent's file. The error names
// the file and every field that is wrong.
func LoadGPUAgent(path string) (*GPUAgentConfiguration, error) {
	c := DefaultGPUAgent()
	if err := load(path, GPUAgentKind, c, c.Validate); err != nil {
		return nil, err
	}
	return c, nil
}

// load decodes the file over into, which holds the defaults, so that a field
// set to zero on purpose is told from one that is left out.
func load(path, kind string, into any, validate func() field.ErrorList) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	if err := decode(data, kind, into); err != nil {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	if err := validate().ToAggregate(); err != nil {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	return nil
}

func decode(data []byte, kind string, into any) error {
	doc, err := onlyDocument(data)
	if err != nil {
		return err
	}
	asJSON, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return err
	}
	// The type is looked at first: against another kind's fields, every one of
	// them would be called unknown.
	var meta metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(asJSON, &meta); err != nil {
		return err
	}
	if meta.APIVersion != GroupVersion || meta.Kind != kind {
		return fmt.Errorf("apiVersion %q, kind %q: want apiVersion %q, kind %q",
			meta.APIVersion, meta.Kind, GroupVersion, kind)
	}
	var given map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(asJSON, &given); err != nil {
		return err
	}
	dropLists(reflect.ValueOf(into).Elem(), given)
	strict, err := kjson.UnmarshalStrict(asJSON, into)
	if err != nil {
		return err
	}
	return errors.Join(strict...)
}

// dropLists empties the lists of the defaults that are given too. A list is given
// whole: the decoder would fill its first entries over those of the default, and a
// field that is left out would have the default's value.
func dropLists(defaults reflect.Value, given map[string]any) {
	for i := range defaults.NumField() {
		name, _, _ := strings.Cut(defaults.Type().Field(i).Tag.Get("json"), ",")
		value, found := given[name]
		switch field := defaults.Field(i); {
		case name == "" && field.Kind() == reflect.Struct:
			dropLists(field, given)
		case found && field.Kind() == reflect.Slice:
			field.SetZero()
		case found && field.Kind() == reflect.Struct:
			if inner, ok := value.(map[string]any); ok {
				dropLists(field, inner)
			}
		}
	}
}

// onlyDocument refuses a second YAML document, which the decoder would drop
// without a word.
func onlyDocument(data []byte) ([]byte, error) {
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var only []byte
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return only, nil
		}
		if err != nil {
			return nil, err
		}
		if empty(doc) {
			continue
		}
		if only != nil {
			return nil, errors.New("holds more than one YAML document")
		}
		only = doc
	}
}

func empty(doc []byte) bool {
	var content any
	err := yaml.Unmarshal(doc, &content)
	return err == nil && content == nil
}

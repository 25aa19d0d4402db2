package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"
)

// Formats are the values of -o, but for "", which is a table.
var Formats = []string{"wide", "json", "yaml", "name"}

// Output is where and how something is shown.
type Output struct {
	Out io.Writer
	// Format is one of Formats, or "".
	Format    string
	NoHeaders bool
	// Color has lines that need attention coloured.
	Color bool
}

// Validate says what is wrong with the format.
func (o Output) Validate() error {
	if o.Format == "" || slices.Contains(Formats, o.Format) {
		return nil
	}
	return fmt.Errorf("unknown output format %q: it is one of %s", o.Format, strings.Join(Formats, ", "))
}

// structured says that programs read what is shown.
func (o Output) structured() bool { return o.Format == "json" || o.Format == "yaml" }

// list is what JSON and YAML have around a list.
type list[T any] struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Items      []T    `json:"items"`
}

// listOf makes no items an empty list.
func listOf[T any](kind string, items []T) list[T] {
	return list[T]{APIVersion: outputVersion, Kind: kind + "List", Items: append([]T{}, items...)}
}

// outputVersion is the version of all that is written as JSON or YAML.
const outputVersion = "cli.muster.dev/v1alpha1"

// encode writes v as JSON or YAML.
func (o Output) encode(v any) error {
	text, err := json.MarshalIndent(v, "", "    ")
	if err == nil && o.Format == "yaml" {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	_, err = fmt.Fprintln(o.Out, strings.TrimSuffix(string(text), "\n"))
	return err
}

// tone is how much attention a row needs.
type tone int

const (
	plain tone = iota
	good
	warning
	bad
)

var tones = map[tone]string{good: "\x1b[32m", warning: "\x1b[33m", bad: "\x1b[31m"}

const toneEnds = "\x1b[0m"

// table is rows of text.
type table struct {
	columns []metav1.TableColumnDefinition
	rows    []metav1.TableRow
	tones   []tone
}

// newTable has the columns that are named; those behind "|" are shown with -o wide only.
func newTable(columns ...string) *table {
	t := &table{}
	wide := int32(0)
	for _, name := range columns {
		if name == "|" {
			wide = 1
			continue
		}
		t.columns = append(t.columns, metav1.TableColumnDefinition{Name: name, Type: "string", Priority: wide})
	}
	return t
}

func (t *table) add(tone tone, cells ...string) {
	row := metav1.TableRow{}
	for _, c := range cells {
		row.Cells = append(row.Cells, c)
	}
	t.rows, t.tones = append(t.rows, row), append(t.tones, tone)
}

// table writes a table. A row is coloured whole, so that its columns stay in line.
func (o Output) table(t *table) error {
	var text bytes.Buffer
	printer := printers.NewTablePrinter(printers.PrintOptions{Wide: o.Format == "wide", NoHeaders: o.NoHeaders})
	if err := printer.PrintObj(&metav1.Table{ColumnDefinitions: t.columns, Rows: t.rows}, &text); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	head := 1
	if o.NoHeaders {
		head = 0
	}
	for i, line := range lines {
		line = strings.TrimRight(line, " ")
		if row := i - head; o.Color && row >= 0 && row < len(t.tones) && tones[t.tones[row]] != "" {
			line = tones[t.tones[row]] + line + toneEnds
		}
		if _, err := fmt.Fprintln(o.Out, line); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
	}
	return nil
}

// names writes one name a line, as kubectl's -o name.
func (o Output) names(names []string) error {
	for _, name := range names {
		if _, err := fmt.Fprintln(o.Out, name); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
	}
	return nil
}

// none is what stands for nothing in a column, as in kubectl's tables.
const none = "<none>"

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}

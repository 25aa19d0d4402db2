// Command dashboards writes Muster's Grafana dashboards into a folder, one file each.
// They read the recording rules of manifests/monitoring/rules, and where there is none the
// metrics of docs/metrics.md; test/rules looks at what is written.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dashboards FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1], gpus(), queues(), programs()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write makes FOLDER/UID.json of each dashboard.
func write(folder string, builders ...*dashboard.DashboardBuilder) error {
	for _, b := range builders {
		d, err := b.Build()
		if err != nil {
			return err
		}
		number(d)
		showLinks(d)
		content, err := indented(d)
		if err != nil {
			return fmt.Errorf("dashboard %q: %w", *d.Title, err)
		}
		if err := os.WriteFile(filepath.Join(folder, *d.Uid+".json"), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// number gives panels the ids by which links and alerts find them.
func number(d dashboard.Dashboard) {
	for i, p := range d.Panels {
		id := uint32(i + 1)
		if p.Panel != nil {
			p.Panel.Id = &id
		} else {
			p.RowPanel.Id = id
		}
	}
}

// showLinks has links where people see them: the library puts each into a menu, and refuses
// all else.
func showLinks(d dashboard.Dashboard) {
	for i := range d.Links {
		d.Links[i].Placement = nil
	}
	for _, p := range d.Panels {
		if p.Panel == nil {
			continue
		}
		for i := range p.Panel.Links {
			p.Panel.Links[i].Placement = nil
		}
	}
}

// indented is JSON that people can read: the library's own has <, > and & escaped.
func indented(d dashboard.Dashboard) ([]byte, error) {
	raw, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	var plain map[string]any
	if err := json.Unmarshal(raw, &plain); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(plain)
	return out.Bytes(), err
}

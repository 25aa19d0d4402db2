package rules

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql"
)

// dashboard is what Grafana reads of a dashboard that the tests look at.
type dashboard struct {
	UID, Title, Description string
	SchemaVersion           int
	Tags                    []string
	Panels                  []panel
	Templating              struct {
		List []variable
	}
}

type variable struct{ Name, Type, Query string }

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Datasource               struct{ UID string }
	Links                    []struct{ URL string }
	Targets                  []target
	FieldConfig              struct {
		Defaults  struct{ Unit string }
		Overrides []override
	}
	Transformations []struct {
		ID      string
		Options struct{ RenameByName map[string]string }
	}
}

// override is what is said of a column of a table, or of a line, by its name.
type override struct{ Matcher struct{ ID, Options string } }

type target struct{ RefID, Expr, LegendFormat string }

// dashboards are those that are generated, by the names of their files.
func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "manifests/monitoring/dashboards/*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 3 {
		t.Fatalf("there are %d dashboards", len(files))
	}
	all := map[string]dashboard{}
	for _, file := range files {
		var d dashboard
		if err := json.Unmarshal([]byte(read(t, file)), &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[filepath.Base(file)] = d
	}
	return all
}

// everyPanel has check look at each panel with queries.
func everyPanel(t *testing.T, check func(t *testing.T, d dashboard, p panel)) {
	t.Helper()
	for file, d := range dashboards(t) {
		looked := 0
		for _, p := range d.Panels {
			if p.Type != "row" {
				looked++
				t.Run(file+"/"+p.Title, func(t *testing.T) { check(t, d, p) })
			}
		}
		if looked < 10 {
			t.Errorf("%s has %d panels", file, looked)
		}
	}
}

// spans are what Grafana puts in place of its own variables that stand for a time, and
// chosen what it puts in place of all.
var (
	spans  = strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h")
	chosen = strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h",
		"$namespace", ".*", "$queue", ".*", "$cluster_queue", ".*", "$node", "a", "$resource", "nvidia.com/gpu")
)

func TestDashboardsAreWhatGrafanaReads(t *testing.T) {
	for file, d := range dashboards(t) {
		if d.UID+".json" != file || d.Title == "" || d.SchemaVersion < 39 || !slices.Contains(d.Tags, "muster") {
			t.Errorf("%s has the uid %q, the title %q, schema %d and tags %v", file, d.UID, d.Title, d.SchemaVersion, d.Tags)
		}
		if !strings.Contains(d.Description, "DO NOT EDIT") {
			t.Errorf("%s does not say that it is generated", file)
		}
		if len(d.Templating.List) == 0 || d.Templating.List[0].Type != "datasource" {
			t.Errorf("%s does not let choose a data source", file)
		}
		ids := map[int]bool{}
		for _, p := range d.Panels {
			if p.ID == 0 || ids[p.ID] {
				t.Errorf("%s: panel %q has the id %d, which another has too", file, p.Title, p.ID)
			}
			ids[p.ID] = true
		}
	}
}

func TestPanelsDoNotOverlap(t *testing.T) {
	for file, d := range dashboards(t) {
		taken := map[[2]int]string{}
		for _, p := range d.Panels {
			at := p.GridPos
			if at.W < 1 || at.H < 1 || at.X < 0 || at.X+at.W > 24 {
				t.Errorf("%s: panel %q is at %+v, of 24 columns", file, p.Title, at)
			}
			for x := at.X; x < at.X+at.W; x++ {
				for y := at.Y; y < at.Y+at.H; y++ {
					if other, ok := taken[[2]int{x, y}]; ok {
						t.Fatalf("%s: %q lies upon %q", file, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}

func TestPanelsExplainThemselves(t *testing.T) {
	everyPanel(t, func(t *testing.T, _ dashboard, p panel) {
		if p.Description == "" || p.Title == "" {
			t.Error("no title or no description")
		}
		if p.FieldConfig.Defaults.Unit == "" {
			t.Error("no unit")
		}
		if p.Datasource.UID != "${datasource}" {
			t.Errorf("reads the data source %q", p.Datasource.UID)
		}
		for _, l := range p.Links {
			page, ok := strings.CutPrefix(l.URL, "${runbooks}/")
			if !ok {
				t.Errorf("links to %s", l.URL)
				continue
			}
			read(t, filepath.Join(root, runbooks, page))
		}
	})
}

func TestColumnsOfTablesHaveNamesAndUnits(t *testing.T) {
	everyPanel(t, func(t *testing.T, _ dashboard, p panel) {
		if p.Type != "table" {
			return
		}
		names := map[string]string{}
		for _, by := range p.Transformations {
			for value, name := range by.Options.RenameByName {
				names[value] = name
			}
		}
		for _, q := range p.Targets {
			value := "Value #" + q.RefID
			if len(p.Targets) == 1 {
				value = "Value"
			}
			has := slices.ContainsFunc(p.FieldConfig.Overrides, func(o override) bool { return o.Matcher.Options == names[value] })
			if names[value] == "" || !has {
				t.Errorf("%s is called %q, with a unit: %v", value, names[value], has)
			}
		}
	})
}

func TestDashboardsReadWhatIsServed(t *testing.T) {
	c := newCluster(t)
	everyPanel(t, func(t *testing.T, _ dashboard, p panel) {
		if len(p.Targets) == 0 {
			t.Error("asks nothing")
		}
		for _, q := range p.Targets {
			c.has(t, chosen.Replace(q.Expr))
		}
	})
	for file, d := range dashboards(t) {
		for _, v := range d.Templating.List {
			if v.Type != "query" {
				continue
			}
			m := labelValues.FindStringSubmatch(v.Query)
			if m == nil {
				t.Errorf("%s: variable %s asks %s", file, v.Name, v.Query)
				continue
			}
			c.has(t, chosen.Replace(m[1]))
			for _, s := range selected(t, m[1]) {
				if !slices.Contains(c.labels[s.Name], m[2]) {
					t.Errorf("%s: variable %s takes the label %s of %s", file, v.Name, m[2], m[1])
				}
			}
		}
	}
}

var labelValues = regexp.MustCompile(`^label_values\((.+), ([a-zA-Z_]+)\)$`)

// used is a variable in an expression or a title.
var used = regexp.MustCompile(`\$\{?([a-zA-Z_]+)`)

func TestDashboardsHaveTheVariablesThatTheyUse(t *testing.T) {
	for file, d := range dashboards(t) {
		var names []string
		texts := []string{}
		for _, v := range d.Templating.List {
			names = append(names, v.Name)
			texts = append(texts, v.Query)
		}
		for _, p := range d.Panels {
			texts = append(texts, p.Title, p.Datasource.UID)
			for _, q := range p.Targets {
				texts = append(texts, spans.Replace(q.Expr))
			}
			for _, l := range p.Links {
				texts = append(texts, l.URL)
			}
		}
		all := used.FindAllStringSubmatch(strings.Join(texts, "\n"), -1)
		for _, m := range all {
			if !slices.Contains(names, m[1]) {
				t.Errorf("%s uses $%s, which is no variable of it", file, m[1])
			}
		}
		for _, name := range names {
			if !slices.ContainsFunc(all, func(m []string) bool { return m[1] == name }) {
				t.Errorf("%s has the variable %s, which nothing uses", file, name)
			}
		}
	}
}

// inLegend is a label in a legend.
var inLegend = regexp.MustCompile(`\{\{([a-zA-Z_]+)\}\}`)

// TestPanelsShowEachSeriesUnderItsOwnName has Prometheus's engine answer each panel, where
// all that is served is there.
func TestPanelsShowEachSeriesUnderItsOwnName(t *testing.T) {
	c := newCluster(t)
	everyPanel(t, func(t *testing.T, _ dashboard, p panel) {
		named := map[string]string{}
		for _, q := range p.Targets {
			// Where a number is 0 if there is nothing, there is something.
			result := c.ask(t, chosen.Replace(strings.TrimSuffix(q.Expr, " or vector(0)")))
			if len(result) == 0 {
				t.Errorf("%s returns nothing", q.Expr)
			}
			if p.Type == "stat" && len(result) != 1 {
				t.Errorf("%s returns %d numbers", q.Expr, len(result))
			}
			if p.Type != "timeseries" {
				continue
			}
			for _, m := range inLegend.FindAllStringSubmatch(q.LegendFormat, -1) {
				if !slices.ContainsFunc(result, func(s promql.Sample) bool { return s.Metric.Has(m[1]) }) {
					t.Errorf("the legend %q names a label that no series of %s has", q.LegendFormat, q.Expr)
				}
			}
			for _, s := range result {
				name := inLegend.ReplaceAllStringFunc(q.LegendFormat, func(l string) string { return s.Metric.Get(strings.Trim(l, "{}")) })
				if other, ok := named[name]; ok {
					t.Errorf("%s and %s are both called %q", other, s.Metric, name)
				}
				named[name] = s.Metric.String()
			}
		}
	})
}

package rules

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

const (
	rulesFile = "../../manifests/monitoring/rules/muster.yaml"
	reference = "../../docs/metrics.md"
	runbooks  = "docs/runbooks"
	// root is the repository's.
	root = "../.."
)

func load(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(rulesFile, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.Default())
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	var all []rulefmt.Rule
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// selected are the metrics that an expression reads.
func selected(t *testing.T, expr string) []*parser.VectorSelector {
	t.Helper()
	return parts[*parser.VectorSelector](t, expr)
}

// parts of an expression that are of a type.
func parts[T parser.Node](t *testing.T, expr string) []T {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Fatal(err)
	}
	var all []T
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if part, ok := n.(T); ok {
			all = append(all, part)
		}
		return nil
	})
	return all
}

// row is a metric of the reference: name, type, unit, labels.
var row = regexp.MustCompile("(?m)^\\| `((?:muster|kueue)_[a-z0-9_]+)` \\| ([a-z]+) \\| [^|]* \\| ([^|]*) \\|")

// series are those that the programs serve, with their labels.
func series(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(read(t, reference), -1) {
		name, labels := m[1], strings.Split(strings.NewReplacer("`", "", " ", "").Replace(m[3]), ",")
		if m[2] != "histogram" {
			out[name] = labels
			continue
		}
		out[name+"_bucket"] = append(slices.Clone(labels), "le")
		out[name+"_count"], out[name+"_sum"] = labels, labels
	}
	return out
}

func TestRulesReadWhatIsServed(t *testing.T) {
	served := series(t)
	if len(served) < 50 {
		t.Fatalf("the reference has %d series", len(served))
	}
	rules := load(t)
	recorded := map[string]bool{}
	for _, r := range rules {
		recorded[r.Record] = r.Record != ""
	}
	for _, r := range rules {
		for _, s := range selected(t, r.Expr) {
			of, ok := served[s.Name]
			if !ok && !recorded[s.Name] {
				t.Errorf("%s%s reads %s, which no program serves and no rule records", r.Record, r.Alert, s.Name)
			}
			for _, m := range s.LabelMatchers {
				if ok && m.Name != model.MetricNameLabel && !slices.Contains(of, m.Name) {
					t.Errorf("%s%s selects %s by %s, which it has not", r.Record, r.Alert, s.Name, m.Name)
				}
			}
		}
	}
}

func TestEveryAlertHasARunbookAndEveryRunbookAnAlert(t *testing.T) {
	var alerts []string
	for _, r := range load(t) {
		if r.Alert == "" {
			continue
		}
		alerts = append(alerts, r.Alert)
		if want := runbooks + "/" + r.Alert + ".md"; r.Annotations["runbook_url"] != want {
			t.Errorf("the runbook of %s is %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		if severity := r.Labels["severity"]; !slices.Contains([]string{"info", "warning", "critical"}, severity) {
			t.Errorf("%s has the severity %q", r.Alert, severity)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s lacks a summary or a description", r.Alert)
		}
	}
	slices.Sort(alerts)
	files, err := filepath.Glob(filepath.Join(root, runbooks, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var pages []string
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".md")
		pages = append(pages, name)
		content := read(t, file)
		for _, part := range []string{"# " + name + "\n", "\n## Meaning\n", "\n## Impact\n", "\n## Diagnosis\n", "\n## Mitigation\n"} {
			if !strings.Contains(content, part) {
				t.Errorf("%s lacks %q", file, strings.TrimSpace(part))
			}
		}
	}
	if !slices.Equal(alerts, pages) {
		t.Errorf("alerts %v\nand runbooks %v", alerts, pages)
	}
}

func TestEveryRuleIsTested(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, file := range files {
		tests.WriteString(read(t, file))
	}
	for _, r := range load(t) {
		if r.Record != "" && !strings.Contains(tests.String(), "- expr: "+r.Record+"\n") && !strings.Contains(tests.String(), "("+r.Record+")\n") {
			t.Errorf("no test looks at the values of %s", r.Record)
		}
		if r.Alert == "" {
			continue
		}
		// One that is expected without alerts, and one with.
		silent := regexp.MustCompile(`alertname: ` + r.Alert + `(, eval_time: [0-9a-z]+\}|\n    eval_time: [0-9a-z]+)\n(  -|\n|$)`)
		fires := regexp.MustCompile(`alertname: ` + r.Alert + `\n    eval_time: [0-9a-z]+\n    exp_alerts:`)
		if !silent.MatchString(tests.String()) {
			t.Errorf("no test has %s silent", r.Alert)
		}
		if !fires.MatchString(tests.String()) {
			t.Errorf("no test has %s fire", r.Alert)
		}
	}
}

// metric is a name of ours in a page.
var metric = regexp.MustCompile(`\b(?:[a-z_]+:)?muster_[a-z0-9_]+(?::[a-z0-9_]+)?`)

func TestRunbooksNameMetricsThatExist(t *testing.T) {
	served := series(t)
	for _, r := range load(t) {
		served[r.Record] = nil
	}
	files, err := filepath.Glob(filepath.Join(root, runbooks, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, filepath.Join(root, "docs/monitoring.md")) {
		for _, name := range metric.FindAllString(read(t, file), -1) {
			if _, ok := served[name]; !ok {
				t.Errorf("%s names %s, which no program serves and no rule records", file, name)
			}
		}
	}
}

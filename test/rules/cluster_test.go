package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/util/teststorage"
)

// cluster is an hour of all series that Muster's programs serve, with those that the rules
// record of them.
type cluster struct {
	storage *teststorage.TestStorage
	engine  *promql.Engine
	// labels of each series, by its name.
	labels map[string][]string
}

const (
	interval = 30 * time.Second
	samples  = 120
)

var now = time.Unix(0, 0).Add(samples * interval)

// ofOthers are series that Muster's programs serve and others defined, with their labels:
// the libraries of Go's runtime and of Kubernetes' clients.
var ofOthers = map[string][]string{
	"process_resident_memory_bytes": nil,
	"process_cpu_seconds_total":     nil,
	"process_start_time_seconds":    nil,
	"go_goroutines":                 nil,
	"rest_client_requests_total":    {"code", "host", "method"},
}

// vary are the values of a label, of which the first is that of most series; those of
// other labels are a and b.
var vary = map[string][]string{
	"GPU_I_ID":      {"", "3"},
	"GPU_I_PROFILE": {"", "1g.18gb"},
	"code":          {"200", "503"},
	"job":           {"muster-system/muster-scheduler", "muster-system/muster-webhook", "muster-system/muster-gpu-agent"},
	"le":            {"0.1", "1", "+Inf"},
	"method":        {"POST", "PATCH", "GET"},
	"resource":      {"nvidia.com/gpu", "cpu"},
	"result":        {"success", "error"},
	"verdict":       {"idle", "stalled", "active"},
}

// together are labels of which none changes without the others: a GPU's, an agent's, and a
// ClusterQueue's, which has one cohort.
var together = [][]string{
	{"gpu", "UUID", "device", "modelName"}, {"Hostname", "instance"}, {"GPU_I_ID", "GPU_I_PROFILE"}, {"cluster_queue", "cohort"},
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{labels: series(t), engine: promqltest.NewTestEngine(t, false, 0, 1e6)}
	for name := range c.labels {
		// However it is found what is scraped, these are there.
		c.labels[name] = append(slices.DeleteFunc(slices.Clone(c.labels[name]), func(l string) bool { return l == "" }), "instance")
	}
	for name, of := range ofOthers {
		c.labels[name] = append(slices.Clone(of), "instance", "job")
	}
	var hour strings.Builder
	fmt.Fprintf(&hour, "load %s\n", interval)
	for _, name := range slices.Sorted(maps.Keys(c.labels)) {
		for i, of := range variants(c.labels[name]) {
			fmt.Fprintf(&hour, "  %s%s %s\n", name, of, course(name, i))
		}
	}
	c.storage = promqltest.LoadedStorage(t, hour.String())
	// Rules read what those above them record.
	for _, r := range load(t) {
		if r.Record != "" {
			c.record(t, r.Record, r.Expr)
		}
	}
	return c
}

// alwaysNo are series that say whether all is well, and are 0 for all.
var alwaysNo = []string{"muster_cluster_queue_active"}

// course is how a series goes on: counters count, and of gauges the first is 0.
func course(name string, i int) string {
	for _, counted := range []string{"_total", "_bucket", "_sum", "_count"} {
		if strings.HasSuffix(name, counted) {
			return fmt.Sprintf("0+1x%d", samples)
		}
	}
	if slices.Contains(alwaysNo, name) {
		i = 0
	}
	return fmt.Sprintf("%d+0x%d", min(i, 1), samples)
}

// variants are series of which each differs from the first in one label, or in those that
// change together.
func variants(names []string) []labels.Labels {
	first := map[string]string{}
	for _, l := range names {
		first[l] = valuesOf(l)[0]
	}
	all := []labels.Labels{labels.FromMap(first)}
	for _, l := range names {
		for i := 1; i < len(valuesOf(l)); i++ {
			other := maps.Clone(first)
			for _, too := range with(l) {
				if _, ok := other[too]; ok {
					other[too] = valuesOf(too)[i]
				}
			}
			all = append(all, labels.FromMap(other))
		}
	}
	slices.SortStableFunc(all[1:], labels.Compare)
	return slices.CompactFunc(all, labels.Equal)
}

func valuesOf(label string) []string {
	if values, ok := vary[label]; ok {
		return values
	}
	return []string{"a", "b"}
}

func with(label string) []string {
	for _, all := range together {
		if slices.Contains(all, label) {
			return all
		}
	}
	return []string{label}
}

// record what a rule makes of the hour, as Prometheus does after each scrape.
func (c *cluster) record(t *testing.T, name, expr string) {
	t.Helper()
	q, err := c.engine.NewRangeQuery(t.Context(), c.storage, nil, expr, time.Unix(0, 0), now, interval)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer q.Close()
	matrix, err := q.Exec(t.Context()).Matrix()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if len(matrix) == 0 {
		t.Errorf("%s records nothing", name)
	}
	c.labels[name] = []string{}
	app := c.storage.Appender(t.Context())
	for _, s := range matrix {
		of := labels.NewBuilder(s.Metric).Set(model.MetricNameLabel, name).Labels()
		s.Metric.Range(func(l labels.Label) { c.labels[name] = append(c.labels[name], l.Name) })
		for _, p := range s.Floats {
			if _, err := app.Append(0, of, p.T, p.F); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
}

// ask what an expression is now.
func (c *cluster) ask(t *testing.T, expr string) promql.Vector {
	t.Helper()
	q, err := c.engine.NewInstantQuery(t.Context(), c.storage, nil, expr, now)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	result, err := q.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return slices.Clone(result)
}

// has checks that an expression reads series that there are, and selects and groups them
// by labels that they have.
func (c *cluster) has(t *testing.T, expr string) {
	t.Helper()
	for _, s := range selected(t, expr) {
		of, ok := c.labels[s.Name]
		if !ok {
			t.Errorf("%s reads %s, which no program serves and no rule records", expr, s.Name)
		}
		for _, m := range s.LabelMatchers {
			if m.Name != model.MetricNameLabel && !slices.Contains(of, m.Name) {
				t.Errorf("%s selects %s by %s, which it has not", expr, s.Name, m.Name)
			}
		}
	}
	for _, a := range parts[*parser.AggregateExpr](t, expr) {
		for _, s := range selected(t, a.Expr.String()) {
			for _, l := range a.Grouping {
				if !slices.Contains(c.labels[s.Name], l) {
					t.Errorf("%s groups %s by %s, which it has not", expr, s.Name, l)
				}
			}
		}
	}
}

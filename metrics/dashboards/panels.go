package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// The grid is 24 wide.
const (
	eighth = 3
	sixth  = 4
	third  = 8
	half   = 12
	whole  = 24
)

// query is an expression, and how its series are called.
type query struct{ expr, legend string }

func targets(queries []query) []cog.Builder[variants.Dataquery] {
	var all []cog.Builder[variants.Dataquery]
	for i, q := range queries {
		all = append(all, prometheus.NewDataqueryBuilder().
			Datasource(dataSource()).RefId(refID(i)).Expr(q.expr).LegendFormat(q.legend).Range())
	}
	return all
}

// refID is A, B, C, ...
func refID(i int) string { return string(rune('A' + i)) }

// number of one query, as it is now.
func newStat(title, description, unit, expr string) *stat.PanelBuilder {
	now := prometheus.NewDataqueryBuilder().Datasource(dataSource()).RefId(refID(0)).Expr(expr).Instant()
	return stat.NewPanelBuilder().
		Title(title).Description(description).Unit(unit).
		Datasource(dataSource()).WithTarget(now).
		GraphMode(common.BigValueGraphModeNone).Orientation(common.VizOrientationAuto).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		Thresholds(from("text")).
		Span(eighth).Height(4)
}

// newGraph draws lines over time, half as wide as the dashboard.
func newGraph(title, description, unit string, queries ...query) *timeseries.PanelBuilder {
	return timeseries.NewPanelBuilder().
		Title(title).Description(description).Unit(unit).Min(0).
		Datasource(dataSource()).Targets(targets(queries)).
		LineWidth(1).FillOpacity(10).ShowPoints(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().
			ShowLegend(true).Placement(common.LegendPlacementBottom).DisplayMode(common.LegendDisplayModeTable).
			Calcs([]string{"lastNotNull", "max"}).SortBy("Max").SortDesc(true)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)).
		Span(half).Height(8)
}

// stacked puts the series of a graph upon each other, of parts that make up a whole.
func stacked(graph *timeseries.PanelBuilder) *timeseries.PanelBuilder {
	return graph.FillOpacity(60).Stacking(common.NewStackingConfigBuilder().Group("A").Mode(common.StackingModeNormal))
}

// limited draws a line at what an alert or a promise says.
func limited(graph *timeseries.PanelBuilder, limit float64) *timeseries.PanelBuilder {
	return graph.
		Thresholds(from("transparent", step{limit, "red"})).
		ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().Mode(common.GraphThresholdsStyleModeDashed))
}

// step is a colour from a value on.
type step struct {
	value  float64
	colour string
}

// from is a colour below all steps, and theirs.
func from(colour string, steps ...step) *dashboard.ThresholdsConfigBuilder {
	all := []dashboard.Threshold{{Color: colour}}
	for _, s := range steps {
		all = append(all, dashboard.Threshold{Value: &s.value, Color: s.colour})
	}
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(all)
}

// noneIsGood is green at 0.
func noneIsGood() *dashboard.ThresholdsConfigBuilder { return from("green", step{1, "red"}) }

// column of a table is the value of an expression.
type column struct{ title, unit, expr string }

// newTable has a row for each set of labels that its columns' expressions have in common.
func newTable(title, description string, columns ...column) *table.PanelBuilder {
	name := map[string]string{}
	t := table.NewPanelBuilder().Title(title).Description(description).Unit(units.Short).Datasource(dataSource()).Span(half).Height(8)
	for i, c := range columns {
		t.WithTarget(prometheus.NewDataqueryBuilder().
			Datasource(dataSource()).RefId(refID(i)).Expr(c.expr).Instant().Format(prometheus.PromQueryFormatTable))
		name[valueOf(i, len(columns))] = c.title
		t.OverrideByName(c.title, []dashboard.DynamicConfigValue{{Id: "unit", Value: c.unit}})
	}
	return t.
		WithTransformation(dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
			"excludeByName": map[string]bool{"Time": true},
			"renameByName":  name,
		}}).
		SortBy([]cog.Builder[common.TableSortByFieldState]{
			common.NewTableSortByFieldStateBuilder().DisplayName(columns[0].title).Desc(true),
		})
}

// valueOf is how Grafana calls the values of a query, of so many.
func valueOf(i, queries int) string {
	if queries == 1 {
		return "Value"
	}
	return "Value #" + refID(i)
}

// coloured has the series of a name in a colour.
func coloured(graph *timeseries.PanelBuilder, name, colour string) {
	graph.OverrideByName(name, []dashboard.DynamicConfigValue{
		{Id: "color", Value: map[string]string{"mode": string(dashboard.FieldColorModeIdFixed), "fixedColor": colour}},
	})
}

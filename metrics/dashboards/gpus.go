package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// ofHolders selects series of the namespaces and ClusterQueues that are chosen.
const ofHolders = `{namespace=~"$namespace", queue=~"$queue"}`

// gpus is about what is done with the GPUs that are paid for.
func gpus() *dashboard.DashboardBuilder {
	d := newDashboard("muster-gpus", "Muster / GPU use and waste",
		"Who holds GPUs, what they do, what idle ones cost, and which are broken.").
		WithVariable(several(values("namespace", "Namespace", "muster_gpu_allocated_seconds_total", "namespace"))).
		WithVariable(several(values("queue", "ClusterQueue", `muster_gpu_allocated_seconds_total{namespace=~"$namespace"}`, "queue"))).
		WithVariable(values("node", "Node", "muster_gpu_healthy", "Hostname"))
	gpusNow(d)
	gpusUsed(d)
	gpusWasted(d)
	gpusHealth(d)
	gpusOfNode(d)
	return d
}

func gpusNow(d *dashboard.DashboardBuilder) {
	d.WithRow(dashboard.NewRowBuilder("Now")).
		WithPanel(newStat("GPUs", "GPUs that agents see, of all nodes.", units.Short,
			`cluster:muster_gpus:count`)).
		WithPanel(newStat("Held", "GPUs that pods hold, on average over five minutes.", units.Short,
			`sum(namespace_queue:muster_gpus_allocated:rate5m`+ofHolders+`)`).Decimals(1)).
		WithPanel(newStat("Working", "Part of the held GPUs that work.", units.PercentUnit,
			`sum(namespace_queue:muster_gpus_active:rate5m`+ofHolders+`) / (sum(namespace_queue:muster_gpus_allocated:rate5m`+ofHolders+`) > 0)`).
			Thresholds(from("red", step{0.5, "orange"}, step{0.8, "green"}))).
		WithPanel(newStat("Idle", "GPUs that are held and do nothing.", units.Short,
			`sum(namespace_queue:muster_gpus_idle:rate5m`+ofHolders+`)`).Decimals(1).
			Thresholds(from("green", step{1, "orange"})).Links(runbooks("MusterGPUsIdle"))).
		WithPanel(newStat("Stalled", "GPUs that run kernels which get nothing done.", units.Short,
			`sum(namespace_queue:muster_gpus_stalled:rate5m`+ofHolders+`)`).Decimals(1).
			Thresholds(from("green", step{0.5, "red"})).Links(runbooks("MusterGPUsStalled"))).
		WithPanel(newStat("Idle cost", "What the GPUs that were held and idle in the last day cost, at the price of muster:gpu_hour:price.", units.Short,
			`sum(namespace_queue:muster_idle_gpu_cost:increase1d`+ofHolders+`)`)).
		WithPanel(newStat("Unhealthy", "GPUs of all nodes that something is known to be wrong with.", units.Short,
			`cluster:muster_gpus_unhealthy:count`).Thresholds(noneIsGood()).Links(runbooks("MusterGPUUnhealthy"))).
		WithPanel(newStat("Silent", "Nodes whose GPU agent has told nothing for five minutes.", units.Short,
			`count(time() - max by (node) (muster_gpu_node_last_heartbeat_timestamp_seconds) > 300) or vector(0)`).
			Thresholds(noneIsGood()).Links(runbooks("MusterGPUAgentSilent")))
}

func gpusUsed(d *dashboard.DashboardBuilder) {
	doing := newGraph("Held GPUs by what they do", "Held GPUs, on average over five minutes. Unknown is where nothing is measured.", units.Short,
		query{`sum(namespace_queue:muster_gpus_active:rate5m` + ofHolders + `)`, "active"},
		query{`sum(namespace_queue:muster_gpus_idle:rate5m` + ofHolders + `)`, "idle"},
		query{`sum(namespace_queue:muster_gpus_stalled:rate5m` + ofHolders + `)`, "stalled"},
		query{`sum(namespace_queue:muster_gpus_unknown:rate5m` + ofHolders + `)`, "unknown"})
	coloured(doing, "active", "green")
	coloured(doing, "idle", "orange")
	coloured(doing, "stalled", "red")
	coloured(doing, "unknown", "gray")
	d.WithRow(dashboard.NewRowBuilder("Use")).
		WithPanel(stacked(doing)).
		WithPanel(stacked(newGraph("Held GPUs by holder", "Held GPUs by namespace and the ClusterQueue that admitted their job.", units.Short,
			query{`sum by (namespace, queue) (namespace_queue:muster_gpus_allocated:rate5m` + ofHolders + `)`, "{{namespace}} ({{queue}})"}))).
		WithPanel(newGraph("Working part by namespace", "Part of the GPUs held by a namespace that work.", units.PercentUnit,
			query{`sum by (namespace) (namespace_queue:muster_gpus_active:rate5m` + ofHolders + `) / (sum by (namespace) (namespace_queue:muster_gpus_allocated:rate5m` + ofHolders + `) > 0)`, "{{namespace}}"}).
			Max(1)).
		WithPanel(stacked(newGraph("Idle GPUs by kind", "GPUs that are held and do nothing, by the kind of the job or controller whose pods hold them.", units.Short,
			query{`sum by (kind) (rate(muster_gpu_idle_seconds_total` + ofHolders + `[$__rate_interval]))`, "{{kind}}"})))
}

func gpusWasted(d *dashboard.DashboardBuilder) {
	d.WithRow(dashboard.NewRowBuilder("Waste")).
		WithPanel(newTable("The last day by holder", "GPU-hours that were held and idle in the last day, what they cost, and the part of the held GPU-time that worked.",
			column{"Idle GPU-hours", units.Short, `sum by (namespace, queue) (namespace_queue:muster_idle_gpu_hours:increase1d` + ofHolders + `)`},
			column{"Idle cost", units.Short, `sum by (namespace, queue) (namespace_queue:muster_idle_gpu_cost:increase1d` + ofHolders + `)`},
			column{"Working", units.PercentUnit, `sum by (namespace, queue) (namespace_queue:muster_gpus_active:ratio_rate1d` + ofHolders + `)`}).
			Links(runbooks("MusterGPUsIdle"))).
		WithPanel(newTable("Top idle jobs", "The 20 jobs whose GPUs were idle or stalled for most hours of the time range. A GPU that several pods share counts for each.",
			column{"GPU-hours", units.Short, `topk(20, sum by (namespace, queue, workload, verdict) (count_over_time(muster_gpu_holder_verdict{verdict=~"idle|stalled", namespace=~"$namespace", queue=~"$queue"}[$__range:1m])) / 60)`}).
			Links(runbooks("MusterGPUsIdle", "MusterGPUsStalled"))).
		WithPanel(stacked(newGraph("Cost of idle GPUs", "What the GPUs that were idle in the day before cost, by namespace.", units.Short,
			query{`sum by (namespace) (namespace_queue:muster_idle_gpu_cost:increase1d` + ofHolders + `)`, "{{namespace}}"})).
			Span(whole))
}

func gpusHealth(d *dashboard.DashboardBuilder) {
	d.WithRow(dashboard.NewRowBuilder("Health")).
		WithPanel(newTable("Unhealthy GPUs", "GPUs that something is known to be wrong with; no job is placed on them.",
			column{"Healthy", units.Short, `min by (Hostname, gpu, UUID, modelName) (muster_gpu_healthy) == 0`}).
			NoValue("none").Links(runbooks("MusterGPUUnhealthy"))).
		WithPanel(newGraph("Errors that drivers reported", "XID errors of the hour before, by GPU and number.", units.Short,
			query{`sum by (Hostname, gpu, xid) (increase(muster_gpu_xid_errors_total[1h])) > 0`, "{{Hostname}} GPU {{gpu}}: {{xid}}"}).
			NoValue("none").Links(runbooks("MusterGPUUnhealthy"))).
		WithPanel(limited(newGraph("Time since agents told", "Time since the GPU agent of a node last told what its GPUs do, of the 10 that are silent for longest.", units.Seconds,
			query{`topk(10, time() - max by (node) (muster_gpu_node_last_heartbeat_timestamp_seconds))`, "{{node}}"}), 300).
			Links(runbooks("MusterGPUAgentSilent"))).
		WithPanel(newGraph("Nodes that agents know too little of", "Nodes on which a condition is not true. DriverReady: the driver answers. HoldersKnown: it is known which pods hold the GPUs.", units.Short,
			query{`sum by (condition) (1 - muster_gpu_agent_condition)`, "{{condition}}"}).
			Links(runbooks("MusterGPUDriverHangs")))
}

func gpusOfNode(d *dashboard.DashboardBuilder) {
	const node, each = `{Hostname="$node"}`, "GPU {{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}"
	d.WithRow(dashboard.NewRowBuilder("GPUs of node $node")).
		WithPanel(newGraph("Held", "Part of each GPU that pods hold.", units.PercentUnit,
			query{`muster_gpu_allocated_ratio` + node, each}).Max(1).Span(third)).
		WithPanel(newGraph("Busy", "Part of the time in which any kernel ran.", units.PercentUnit,
			query{`muster_gpu_busy_ratio` + node, each}).Max(1).Span(third)).
		WithPanel(newGraph("Multiprocessors at work", "Part of the multiprocessors that had work, where the GPU tells.", units.PercentUnit,
			query{`muster_gpu_sm_active_ratio` + node, each}).Max(1).Span(third)).
		WithPanel(newGraph("Memory in use", "Memory of each GPU that is in use.", units.BytesIEC,
			query{`muster_gpu_memory_used_bytes` + node, each}).Span(third)).
		WithPanel(newGraph("Power", "What each GPU draws.", units.Watt,
			query{`muster_gpu_power_watts` + node, each}).Span(third)).
		WithPanel(newGraph("Temperature", "Temperature of each GPU.", units.Celsius,
			query{`muster_gpu_temperature_celsius` + node, each}).Span(third))
}

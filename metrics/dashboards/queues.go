package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// ofQueues selects series of the ClusterQueues that are chosen, and ofQuota of their quota
// of the resource that is.
const (
	ofQueues = `{cluster_queue=~"$cluster_queue"}`
	ofQuota  = `{cluster_queue=~"$cluster_queue", resource="$resource"}`
	byQuota  = `max by (cohort, cluster_queue, flavor, resource) `
)

// queues is about who waits, why and for how long.
func queues() *dashboard.DashboardBuilder {
	gpu := dashboard.VariableOption{Selected: cog.ToPtr(true), Text: choice("nvidia.com/gpu"), Value: choice("nvidia.com/gpu")}
	d := newDashboard("muster-queues", "Muster / Queues and waiting",
		"Which jobs wait and for how long, what quota is used and borrowed, which jobs were stopped, and how well jobs are placed.").
		WithVariable(several(values("cluster_queue", "ClusterQueue", "muster_cluster_queue_active", "cluster_queue"))).
		WithVariable(values("resource", "Resource", "muster_quota_nominal", "resource").Current(gpu))
	queuesNow(d)
	queuesWaiting(d)
	queuesQuota(d)
	queuesStopped(d)
	queuesPlacement(d)
	return d
}

func queuesNow(d *dashboard.DashboardBuilder) {
	d.WithRow(dashboard.NewRowBuilder("Now")).
		WithPanel(newStat("Jobs that wait", "Jobs that wait to be admitted, without those that are deactivated.", units.Short,
			`sum(cluster_queue:muster_pending_workloads:sum`+ofQueues+`)`).Span(sixth)).
		WithPanel(newStat("Jobs that run", "Jobs that are admitted and have not ended.", units.Short,
			`sum(muster_admitted_workloads`+ofQueues+`)`).Span(sixth)).
		WithPanel(newStat("Admitted", "Jobs that were admitted in the last hour.", units.Short,
			`sum(increase(muster_admissions_total`+ofQueues+`[1h]))`).Decimals(0).Span(sixth).
			Links(runbooks("MusterNothingAdmitted"))).
		WithPanel(newStat("Longest wait", "How long one in twenty jobs had waited at least that were admitted in the last hour, of the ClusterQueue where it is most.", units.Seconds,
			`max(cluster_queue:muster_admission_wait_seconds:p95_1h`+ofQueues+`)`).Span(sixth).
			Thresholds(from("green", step{4 * 3600, "orange"})).Links(runbooks("MusterQueueWaitLong"))).
		WithPanel(newStat("Stopped queues", "ClusterQueues that admit nothing, as their condition Active says.", units.Short,
			`count(max by (cluster_queue) (muster_cluster_queue_active`+ofQueues+`) == 0) or vector(0)`).Span(sixth).
			Thresholds(from("green", step{1, "orange"})).Links(runbooks("MusterQueueStopped"))).
		WithPanel(newStat("Quota overused", "Quotas of which jobs hold more than is allowed, as after one was lowered under jobs that run.", units.Short,
			`count(`+byQuota+`(muster_quota_overuse`+ofQueues+`) > 0) or vector(0)`).Span(sixth).
			Thresholds(noneIsGood()).Links(runbooks("MusterQuotaOveruse")))
}

func queuesWaiting(d *dashboard.DashboardBuilder) {
	const each = "{{cluster_queue}}"
	d.WithRow(dashboard.NewRowBuilder("Waiting")).
		WithPanel(stacked(newGraph("Jobs that wait by ClusterQueue", "Jobs that wait to be admitted.", units.Short,
			query{`sum by (cluster_queue) (cluster_queue:muster_pending_workloads:sum` + ofQueues + `)`, each}))).
		WithPanel(stacked(newGraph("Jobs that wait by status", "Active ones wait for their turn; inadmissible ones were refused and wait for something to change.", units.Short,
			query{`sum by (status) (muster_pending_workloads` + ofQueues + `)`, "{{status}}"}))).
		WithPanel(newGraph("Median wait", "How long half of the jobs had waited at most that were admitted in the hour before.", units.Seconds,
			query{`max by (cluster_queue) (cluster_queue:muster_admission_wait_seconds:p50_1h` + ofQueues + `)`, each})).
		WithPanel(limited(newGraph("Long waits", "How long one in twenty jobs had waited at least that were admitted in the hour before. The line is where MusterQueueWaitLong fires.", units.Seconds,
			query{`max by (cluster_queue) (cluster_queue:muster_admission_wait_seconds:p95_1h` + ofQueues + `)`, each}), 4*3600).
			Links(runbooks("MusterQueueWaitLong"))).
		WithPanel(newGraph("Jobs admitted in an hour", "The rate of admissions over five minutes, for an hour.", units.Short,
			query{`sum by (cluster_queue) (cluster_queue:muster_admissions:rate5m` + ofQueues + `) * 3600`, each}).
			Links(runbooks("MusterNothingAdmitted"))).
		WithPanel(stacked(newGraph("Jobs that run by ClusterQueue", "Jobs that are admitted and have not ended.", units.Short,
			query{`sum by (cluster_queue) (muster_admitted_workloads` + ofQueues + `)`, each})))
}

func queuesQuota(d *dashboard.DashboardBuilder) {
	const used, nominal = byQuota + `(muster_quota_used` + ofQuota + `)`, byQuota + `(muster_quota_nominal` + ofQuota + `)`
	d.WithRow(dashboard.NewRowBuilder("Quota of $resource")).
		WithPanel(limited(newGraph("Part of the nominal quota in use", "What jobs hold of the nominal quota of their ClusterQueue, over all flavors. Above the line it is borrowed.", units.PercentUnit,
			query{`max by (cluster_queue) (cluster_queue_resource:muster_quota_used:ratio` + ofQuota + `)`, "{{cluster_queue}}"}), 1)).
		WithPanel(stacked(newGraph("Borrowed", "What jobs hold beyond the nominal quota of their ClusterQueue, by flavor, in the resource's unit.", units.Short,
			query{`clamp_min(` + used + ` - ` + nominal + `, 0)`, "{{cluster_queue}} ({{flavor}})"}))).
		WithPanel(newTable("Quotas", "What is used of each quota, and its limits, in the resource's unit. An empty limit is none.",
			column{"Used", units.Short, used},
			column{"Nominal", units.Short, nominal},
			column{"Borrowing limit", units.Short, byQuota + `(muster_quota_borrowing_limit` + ofQuota + `)`},
			column{"Lending limit", units.Short, byQuota + `(muster_quota_lending_limit` + ofQuota + `)`},
			column{"Overused", units.Short, byQuota + `(muster_quota_overuse` + ofQuota + `)`}).
			Span(whole).Links(runbooks("MusterQuotaOveruse"))).
		WithPanel(newGraph("Share of what is borrowed", "What a ClusterQueue borrows in its cohort by its weight; only with fair sharing.", units.PercentUnit,
			query{`max by (cohort, cluster_queue) (muster_cluster_queue_weighted_share` + ofQueues + `) / 1000`, "{{cluster_queue}} ({{cohort}})"})).
		WithPanel(newGraph("GPUs held for pods", "GPUs of admitted jobs whose pods are not on their nodes yet, on average over five minutes.", units.Short,
			query{`sum by (cluster_queue) (cluster_queue:muster_gpus_held:rate5m` + ofQueues + `)`, "{{cluster_queue}}"}))
}

func queuesStopped(d *dashboard.DashboardBuilder) {
	d.WithRow(dashboard.NewRowBuilder("Jobs that were stopped")).
		WithPanel(stacked(newGraph("Preemptions by reason", "Jobs that were stopped in the hour before so that jobs of the chosen ClusterQueues can start, by why they may be.", units.Short,
			query{`sum by (reason) (increase(muster_preemptions_total` + ofQueues + `[1h]))`, "{{reason}}"}))).
		WithPanel(stacked(newGraph("Preemptions by ClusterQueue", "Jobs that were stopped in the hour before, by the ClusterQueue of those that start in their place.", units.Short,
			query{`sum by (cluster_queue) (increase(muster_preemptions_total` + ofQueues + `[1h]))`, "{{cluster_queue}}"}))).
		WithPanel(stacked(newGraph("Evictions by reason", "Rate over five minutes, for an hour, at which admitted jobs are stopped, by the reason of their condition Evicted.", units.Short,
			query{`sum by (reason) (cluster_queue_reason:muster_evictions:rate5m` + ofQueues + `) * 3600`, "{{reason}}"}))).
		WithPanel(stacked(newGraph("Evictions by ClusterQueue", "Rate over five minutes, for an hour, at which admitted jobs are stopped, by their ClusterQueue.", units.Short,
			query{`sum by (cluster_queue) (cluster_queue_reason:muster_evictions:rate5m` + ofQueues + `) * 3600`, "{{cluster_queue}}"})))
}

func queuesPlacement(d *dashboard.DashboardBuilder) {
	d.WithRow(dashboard.NewRowBuilder("Placement")).
		WithPanel(newGraph("Free GPUs", "GPUs that no pod uses and no job holds, and how many of them jobs as were asked for lately are expected not to be able to use.", units.Short,
			query{`max(muster_free_gpus)`, "free"},
			query{`max(muster_fragmented_gpus)`, "fragmented"}).Links(runbooks("MusterGPUsFragmented"))).
		WithPanel(limited(newGraph("Fragmented part of the free GPUs", "Part of the free GPUs that jobs as were asked for lately could not use.", units.PercentUnit,
			query{`cluster:muster_fragmented_gpus:ratio`, "fragmented"}), 0.5).Max(1).
			Links(runbooks("MusterGPUsFragmented"))).
		WithPanel(limited(newGraph("Excess domains", "Topology domains that a job is in beyond the fewest that had room for it, on average over the jobs of the 6 hours before.", units.Short,
			query{`max by (cluster_queue) (cluster_queue:muster_placement_excess_domains:mean6h` + ofQueues + `)`, "{{cluster_queue}}"}), 1).
			Links(runbooks("MusterPlacementSpread"))).
		WithPanel(newGraph("Levels crossed", "Topology levels at which a job is in more than one domain, on average over the jobs of the 6 hours before, by what they ask for.", units.Short,
			query{`sum by (asked) (increase(muster_placement_levels_crossed_sum` + ofQueues + `[6h])) / (sum by (asked) (increase(muster_placement_levels_crossed_count` + ofQueues + `[6h])) > 0)`, "{{asked}}"})).
		WithPanel(newGraph("Nodes kept", "Nodes kept for a job that has waited for long.", units.Short,
			query{`max by (cluster_queue) (muster_reserved_nodes` + ofQueues + `)`, "{{cluster_queue}}"}).
			NoValue("none").Span(third)).
		WithPanel(newGraph("Held places lost", "Places held for a pod that were lost in the hour before: to a pod that others had put there, or to a node that became smaller.", units.Short,
			query{`sum by (reason) (increase(muster_holds_broken_total[1h]))`, "{{reason}}"}).
			Span(third).Links(runbooks("MusterHoldsBroken"))).
		WithPanel(newGraph("GPUs charged to nobody", "GPUs of pods that Muster did not admit, by why it did not.", units.Short,
			query{`max by (namespace, reason) (muster_unmanaged_gpus)`, "{{namespace}} ({{reason}})"}).
			NoValue("none").Span(third).Links(runbooks("MusterUnmanagedGPUs")))
}

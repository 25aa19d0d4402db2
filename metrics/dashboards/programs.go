package main

import (
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// programs is about Muster's own programs.
func programs() *dashboard.DashboardBuilder {
	d := newDashboard("muster-programs", "Muster / Muster itself",
		"Whether the scheduler decides, the webhook answers and the GPU agents see, how long they take for it, and what they use.")
	programsNow(d)
	programsScheduler(d)
	programsWebhook(d)
	programsAgents(d)
	programsProcesses(d)
	return d
}

func programsNow(d *dashboard.DashboardBuilder) {
	d.WithRow(dashboard.NewRowBuilder("Now")).
		WithPanel(newStat("Leaders", "Replicas of the scheduler that lead: one is right.", units.Short,
			`sum(muster_scheduler_leading) or vector(0)`).
			Thresholds(from("red", step{1, "green"}, step{2, "red"})).Links(runbooks("MusterSchedulerNotLeading"))).
		WithPanel(newStat("Other deciders", "1 while a Kueue manager is alive too, so that Muster admits nothing.", units.Short,
			`max(muster_another_scheduler)`).
			Thresholds(noneIsGood()).Links(runbooks("MusterAnotherScheduler"))).
		WithPanel(newStat("Webhooks", "Replicas of the webhook that are scraped.", units.Short,
			`count(muster_webhook_certificate_expiry_timestamp_seconds) or vector(0)`).
			Thresholds(from("red", step{1, "green"})).Links(runbooks("MusterWebhookDown"))).
		WithPanel(newStat("Certificate", "Time until the webhook's serving certificate expires.", units.Seconds,
			`min(muster_webhook_certificate_expiry_timestamp_seconds > 0) - time()`).Decimals(0).
			Thresholds(from("red", step{7 * 86400, "green"})).Links(runbooks("MusterWebhookCertificateExpires"))).
		WithPanel(newStat("Broken policies", "Policies whose newest version does not compile.", units.Short,
			`count(min by (policy) (muster_policy_compiled) == 0) or vector(0)`).
			Thresholds(noneIsGood()).Links(runbooks("MusterPolicyBroken"))).
		WithPanel(newStat("GPU agents", "GPU agents that are scraped.", units.Short,
			`count(muster_gpu_agent_last_tick_timestamp_seconds) or vector(0)`)).
		WithPanel(newStat("Late agents", "GPU agents that have not looked at everything for a minute.", units.Short,
			`count(time() - muster_gpu_agent_last_tick_timestamp_seconds > 60) or vector(0)`).
			Thresholds(noneIsGood()).Links(runbooks("MusterGPUAgentSilent"))).
		WithPanel(newStat("Hung drivers", "GPU agents with a call into the driver that has been out for 10 minutes.", units.Short,
			`count(sum by (instance) (min_over_time(muster_gpu_agent_driver_calls_out[10m])) > 0) or vector(0)`).
			Thresholds(noneIsGood()).Links(runbooks("MusterGPUDriverHangs")))
}

func programsScheduler(d *dashboard.DashboardBuilder) {
	d.WithRow(dashboard.NewRowBuilder("Scheduler")).
		WithPanel(newGraph("Leading", "1 for the replica that leads.", units.Short,
			query{`max by (instance) (muster_scheduler_leading)`, "{{instance}}"}).
			Max(1).Span(third).Links(runbooks("MusterSchedulerNotLeading"))).
		WithPanel(newGraph("Time of an admission pass", "Time for which a pass keeps the scheduling goroutine.", units.Seconds,
			quantiles("muster_admission_pass_seconds")...).Span(third)).
		WithPanel(newGraph("Time to plan a job", "Time of finding nodes for all pods of one job, found or not.", units.Seconds,
			quantiles("muster_plan_seconds")...).Span(third)).
		WithPanel(newGraph("Passes and plans", "Admission passes, jobs planned, jobs admitted and admissions taken back, in a second.", units.OpsPerSecond,
			query{`sum(rate(muster_admission_pass_seconds_count[$__rate_interval]))`, "passes"},
			query{`sum(rate(muster_plan_seconds_count[$__rate_interval]))`, "planned"},
			query{`sum(rate(muster_admissions_total[$__rate_interval]))`, "admitted"},
			query{`sum(rate(muster_admissions_undone_total[$__rate_interval]))`, "taken back"}).Span(third)).
		WithPanel(stacked(newGraph("Writes to the API server", "Requests of the scheduler that change something, by method and HTTP code.", units.RequestsPerSecond,
			query{`sum by (method, code) (rate(rest_client_requests_total{job=~".*muster-scheduler", method=~"POST|PUT|PATCH|DELETE"}[$__rate_interval]))`, "{{method}} {{code}}"})).
			Span(third)).
		WithPanel(stacked(newGraph("Templates rendered", "Pod templates rendered as pods: by a dry run, locally, or locally after a dry run was refused.", units.OpsPerSecond,
			query{`sum by (how) (rate(muster_render_total[$__rate_interval]))`, "{{how}}"})).
			Span(third))
}

func programsWebhook(d *dashboard.DashboardBuilder) {
	const path = "{{webhook}}"
	d.WithRow(dashboard.NewRowBuilder("Webhook")).
		WithPanel(newGraph("Requests", "Requests by the webhook's path.", units.RequestsPerSecond,
			query{`sum by (webhook) (rate(muster_webhook_request_seconds_count[$__rate_interval]))`, path}).Span(third)).
		WithPanel(limited(newGraph("Time of an answer", "What 99 of 100 requests took at most in five minutes. The line is where MusterWebhookSlow fires.", units.Seconds,
			query{`max by (webhook) (webhook:muster_webhook_request_seconds:p99_5m)`, path}), 1).
			Span(third).Links(runbooks("MusterWebhookSlow"))).
		WithPanel(limited(newGraph("Part without an answer", "Part of the requests that got no answer, so that the failure policy decided.", units.PercentUnit,
			query{`max by (webhook) (webhook:muster_webhook_errors:ratio_rate5m)`, path}), 0.01).
			Span(third).Links(runbooks("MusterWebhookErrors"))).
		WithPanel(newGraph("Requests not answered", "Requests that the webhook could not answer in the hour before, by its path and the reason.", units.Short,
			query{`sum by (webhook, reason) (increase(muster_webhook_unanswered_total[1h]))`, "{{webhook}} ({{reason}})"}).
			NoValue("none").Span(third).Links(runbooks("MusterWebhookErrors"))).
		WithPanel(stacked(newGraph("Violations of policies", "Violations that policies found in new objects in the hour before, by what they did.", units.Short,
			query{`sum by (policy, enforcement) (increase(muster_policy_violations_total[1h]))`, "{{policy}} ({{enforcement}})"})).
			NoValue("none").Span(third)).
		WithPanel(newGraph("Violations among objects that exist", "What the audit found, by what would be done.", units.Short,
			query{`max by (policy, enforcement) (muster_policy_audit_violations)`, "{{policy}} ({{enforcement}})"}).
			NoValue("none").Span(third)).
		WithPanel(newGraph("Reviews by policy", "How often policies are asked.", units.OpsPerSecond,
			query{`sum by (policy) (rate(muster_policy_reviews_total[$__rate_interval]))`, "{{policy}}"}).
			NoValue("none")).
		WithPanel(newGraph("Policies that fail", "How often a policy could not be evaluated in the hour before, or not in its newest version.", units.Short,
			query{`sum by (policy) (increase(muster_policy_failures_total[1h])) > 0`, "{{policy}}"}).
			NoValue("none").Links(runbooks("MusterPolicyBroken")))
}

func programsAgents(d *dashboard.DashboardBuilder) {
	d.WithRow(dashboard.NewRowBuilder("GPU agents")).
		WithPanel(newGraph("Time of calls into the driver", "What 99 of 100 calls that came back took at most, of all nodes.", units.Seconds,
			query{quantile("0.99", "muster_gpu_agent_driver_call_seconds", "call, le"), "{{call}}"}).Span(third)).
		WithPanel(newGraph("Calls that are out", "Calls into the driver that have not come back, of the 10 agents with most.", units.Short,
			query{`topk(10, sum by (instance) (muster_gpu_agent_driver_calls_out) > 0)`, "{{instance}}"}).
			NoValue("none").Span(third).Links(runbooks("MusterGPUDriverHangs"))).
		WithPanel(newGraph("Calls that fail", "Calls into the driver that came back with an error, of all nodes.", units.OpsPerSecond,
			query{`sum by (call) (rate(muster_gpu_agent_driver_calls_total{result="error"}[$__rate_interval])) > 0`, "{{call}}"}).
			NoValue("none").Span(third)).
		WithPanel(newGraph("Time of a look at everything", "What a look at a node's GPUs and their holders takes, of all nodes.", units.Seconds,
			quantiles("muster_gpu_agent_tick_seconds")...).Span(third)).
		WithPanel(newGraph("Looks by result", "Looks at a node's GPUs in a second; incomplete is where not all could be read and written.", units.OpsPerSecond,
			query{`sum by (result) (rate(muster_gpu_agent_ticks_total[$__rate_interval]))`, "{{result}}"}).Span(third)).
		WithPanel(newGraph("Writes of GPUNodes", "Writes of all agents to the API server in a second, by result.", units.RequestsPerSecond,
			query{`sum by (result) (rate(muster_gpu_agent_writes_total[$__rate_interval]))`, "{{result}}"}).Span(third))
}

// programsProcesses has the scheduler's and the webhook's replicas as lines, and of the
// agents, which may be many, the largest.
func programsProcesses(d *dashboard.DashboardBuilder) {
	const (
		replicas = `{job=~".*muster-(scheduler|webhook)"}`
		agents   = `{job=~".*muster-gpu-agent"}`
		all      = `{job=~".*muster-(scheduler|webhook|gpu-agent)"}`
	)
	each := func(value string) []query {
		return []query{
			{`max by (job, instance) (` + strings.ReplaceAll(value, "SELECTOR", replicas) + `)`, "{{job}} {{instance}}"},
			{`max by (job) (` + strings.ReplaceAll(value, "SELECTOR", agents) + `)`, "{{job}}: the most of one"},
		}
	}
	d.WithRow(dashboard.NewRowBuilder("Processes")).
		WithPanel(newGraph("Memory", "Resident memory.", units.BytesIEC, each(`process_resident_memory_bytesSELECTOR`)...)).
		WithPanel(newGraph("Processors", "Processors in use.", units.Short, each(`rate(process_cpu_seconds_totalSELECTOR[$__rate_interval])`)...)).
		WithPanel(newGraph("Goroutines", "Goroutines of a process.", units.Short, each(`go_goroutinesSELECTOR`)...)).
		WithPanel(newGraph("Restarts", "Restarts of processes in the hour before, where the pod stays.", units.Short,
			query{`sum by (job) (changes(process_start_time_seconds` + all + `[1h]))`, "{{job}}"}))
}

// quantiles are the median of a histogram and what 99 of 100 are below.
func quantiles(histogram string) []query {
	return []query{{quantile("0.5", histogram, "le"), "p50"}, {quantile("0.99", histogram, "le"), "p99"}}
}

func quantile(q, histogram, by string) string {
	return `histogram_quantile(` + q + `, sum by (` + by + `) (rate(` + histogram + `_bucket[$__rate_interval])))`
}

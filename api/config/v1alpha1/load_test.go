package v1alpha1

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const (
	schedulerHead = "apiVersion: config.muster.dev/v1alpha1\nkind: SchedulerConfiguration\n"
	webhookHead   = "apiVersion: config.muster.dev/v1alpha1\nkind: WebhookConfiguration\n"
	gpuAgentHead  = "apiVersion: config.muster.dev/v1alpha1\nkind: GPUAgentConfiguration\n"
)

// examples are the commented files that an admin starts from.
const examples = "../../../manifests/config"

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAFileWithoutFieldsIsTheDefaults(t *testing.T) {
	scheduler, err := LoadScheduler(write(t, schedulerHead))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(DefaultScheduler(), scheduler); diff != "" {
		t.Errorf("scheduler (-default +loaded):\n%s", diff)
	}
	webhook, err := LoadWebhook(write(t, webhookHead))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(DefaultWebhook(), webhook); diff != "" {
		t.Errorf("webhook (-default +loaded):\n%s", diff)
	}
}

func TestTheExampleFilesAreTheDefaults(t *testing.T) {
	scheduler, err := LoadScheduler(filepath.Join(examples, "scheduler.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(DefaultScheduler(), scheduler); diff != "" {
		t.Errorf("scheduler (-default +example):\n%s", diff)
	}
	webhook, err := LoadWebhook(filepath.Join(examples, "webhook.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(DefaultWebhook(), webhook); diff != "" {
		t.Errorf("webhook (-default +example):\n%s", diff)
	}
	agent, err := LoadGPUAgent(filepath.Join(examples, "gpu-agent.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(DefaultGPUAgent(), agent); diff != "" {
		t.Errorf("GPU agent (-default +example):\n%s", diff)
	}
}

func TestTheExampleFilesShowEveryField(t *testing.T) {
	for file, defaults := range map[string]any{"scheduler.yaml": DefaultScheduler(), "webhook.yaml": DefaultWebhook(), "gpu-agent.yaml": DefaultGPUAgent()} {
		t.Run(file, func(t *testing.T) {
			asJSON, err := json.Marshal(defaults)
			if err != nil {
				t.Fatal(err)
			}
			example, err := os.ReadFile(filepath.Join(examples, file))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fieldsOf(t, asJSON), fieldsOf(t, example)); diff != "" {
				t.Errorf("fields (-type +example):\n%s", diff)
			}
		})
	}
}

// fieldsOf lists the paths of the fields of a YAML or JSON document, in order.
func fieldsOf(t *testing.T, doc []byte) []string {
	t.Helper()
	var content map[string]any
	if err := yaml.Unmarshal(doc, &content); err != nil {
		t.Fatal(err)
	}
	var paths []string
	var walk func(prefix string, m map[string]any)
	walk = func(prefix string, m map[string]any) {
		for k, v := range m {
			if inner, ok := v.(map[string]any); ok {
				walk(prefix+k+".", inner)
				continue
			}
			paths = append(paths, prefix+k)
		}
	}
	walk("", content)
	slices.Sort(paths)
	return paths
}

func TestAFieldChangesOnlyItself(t *testing.T) {
	got, err := LoadScheduler(write(t, schedulerHead+`
leaderElection:
  leaderElect: false
profiles: [muster, default-scheduler]
quota: {fairSharing: {enable: true, preemptionStrategies: [LessThanInitialShare]}}
admission:
  passBudget: 50ms
  readyTimeout: 0s
  requeue:
    limitCount: null
`))
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultScheduler()
	want.LeaderElection.LeaderElect = false
	want.Profiles = []string{"muster", "default-scheduler"}
	want.Quota.FairSharing = FairSharing{Enable: true, PreemptionStrategies: []string{InitialShare}}
	want.Admission.PassBudget.Duration = 50 * time.Millisecond
	want.Admission.ReadyTimeout.Duration = 0
	want.Admission.Requeue.LimitCount = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("scheduler (-want +got):\n%s", diff)
	}

	webhook, err := LoadWebhook(write(t, webhookHead+`
metrics: {bindAddress: "0"}
webhook: {hosts: [webhook.example.com, 10.0.0.1, "::1"]}
exemptNamespaces: []
`))
	if err != nil {
		t.Fatal(err)
	}
	wantWebhook := DefaultWebhook()
	wantWebhook.Metrics.BindAddress = MetricsOff
	wantWebhook.Webhook.Hosts = []string{"webhook.example.com", "10.0.0.1", "::1"}
	wantWebhook.ExemptNamespaces = []string{}
	if diff := cmp.Diff(wantWebhook, webhook); diff != "" {
		t.Errorf("webhook (-want +got):\n%s", diff)
	}
}

func TestNamesOfTheLeaseDoNotMatterWithoutLeaderElection(t *testing.T) {
	_, err := LoadScheduler(write(t, schedulerHead+"leaderElection: {leaderElect: false, resourceName: \"\"}\n"))
	if err != nil {
		t.Error(err)
	}
}

func TestAWrongSchedulerFileIsRefusedByField(t *testing.T) {
	tests := map[string]struct{ file, want string }{
		"an empty file":                               {"", `apiVersion "", kind "": want apiVersion "config.muster.dev/v1alpha1"`},
		"another version":                             {"apiVersion: config.muster.dev/v2\nkind: SchedulerConfiguration\n", `apiVersion "config.muster.dev/v2"`},
		"another kind":                                {webhookHead, `kind "WebhookConfiguration": want apiVersion "config.muster.dev/v1alpha1", kind "SchedulerConfiguration"`},
		"not YAML":                                    {"\t{", "yaml"},
		"a second document":                           {schedulerHead + "---\n" + schedulerHead, "more than one YAML document"},
		"an unknown field":                            {schedulerHead + "admission: {passBudgt: 1ms}\n", `unknown field "admission.passBudgt"`},
		"a field in another case":                     {schedulerHead + "admission: {PassBudget: 1ms}\n", `unknown field "admission.PassBudget"`},
		"a field given twice":                         {schedulerHead + "profiles: [a]\nprofiles: [b]\n", `key "profiles" already set`},
		"a number for a list":                         {schedulerHead + "profiles: 3\n", "profiles"},
		"a duration without a unit":                   {schedulerHead + "admission: {startTimeout: \"300\"}\n", "missing unit in duration"},
		"no requests per second":                      {schedulerHead + "clientConnection: {qps: 0}\n", "clientConnection.qps: Invalid value: 0: must be greater than 0"},
		"no burst":                                    {schedulerHead + "clientConnection: {burst: 0}\n", "clientConnection.burst: Invalid value: 0: must be at least 1"},
		"a namespace with a dot":                      {schedulerHead + "leaderElection: {resourceNamespace: a.b}\n", "leaderElection.resourceNamespace: Invalid value"},
		"a lease without a name":                      {schedulerHead + "leaderElection: {resourceName: \"\"}\n", "leaderElection.resourceName: Invalid value"},
		"no retry period":                             {schedulerHead + "leaderElection: {retryPeriod: 0s}\n", `leaderElection.retryPeriod: Invalid value: "0s": must be greater than 0`},
		"a renew deadline too short":                  {schedulerHead + "leaderElection: {renewDeadline: 2s}\n", `leaderElection.renewDeadline: Invalid value: "2s": must be greater than 1.2 times retryPeriod (2s)`},
		"a lease as short as renewal":                 {schedulerHead + "leaderElection: {leaseDuration: 10s}\n", `leaderElection.leaseDuration: Invalid value: "10s": must be greater than renewDeadline (10s)`},
		"an address that is a name":                   {schedulerHead + "secureServing: {bindAddress: localhost}\n", "secureServing.bindAddress: Invalid value"},
		"port zero":                                   {schedulerHead + "secureServing: {port: 0}\n", "secureServing.port: Invalid value: 0"},
		"a port beyond the range":                     {schedulerHead + "secureServing: {port: 70000}\n", "secureServing.port: Invalid value: 70000"},
		"no profile":                                  {schedulerHead + "profiles: []\n", "profiles: Required value: at least one scheduler name"},
		"a profile twice":                             {schedulerHead + "profiles: [muster, muster]\n", `profiles[1]: Duplicate value: "muster"`},
		"a profile without a name":                    {schedulerHead + "profiles: [\"\"]\n", "profiles[0]: Invalid value"},
		"an unknown mode of GPU pods without a queue": {schedulerHead + "unqueued: ignore\n", `unqueued: Unsupported value: "ignore": supported values: "default-queue", "run", "hold"`},
		"another quota provider":                      {schedulerHead + "quota: {provider: both}\n", `quota.provider: Unsupported value: "both": supported values: "native", "kueue"`},
		"fair sharing in another one's quota":         {schedulerHead + "quota: {provider: kueue, fairSharing: {enable: true}}\n", "quota.fairSharing.enable: Invalid value: true: Kueue decides quota"},
		"fair sharing without a strategy":             {schedulerHead + "quota: {fairSharing: {preemptionStrategies: []}}\n", "quota.fairSharing.preemptionStrategies: Invalid value: []: must be [LessThanOrEqualToFinalShare, LessThanInitialShare] or one of them"},
		"strategies in the wrong order":               {schedulerHead + "quota: {fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]}}\n", "quota.fairSharing.preemptionStrategies: Invalid value"},
		"no pass budget":                              {schedulerHead + "admission: {passBudget: 0s}\n", "admission.passBudget: Invalid value"},
		"a pass of two seconds":                       {schedulerHead + "admission: {passBudget: 2s}\n", `admission.passBudget: Invalid value: "2s": must be at most 1s`},
		"no time to start":                            {schedulerHead + "admission: {startTimeout: -1s}\n", `admission.startTimeout: Invalid value: "-1s": must be greater than 0`},
		"less than no time to recover":                {schedulerHead + "admission: {recoveryTimeout: -1s}\n", `admission.recoveryTimeout: Invalid value: "-1s": must be at least 0, which means startTimeout`},
		"less than no time to ready":                  {schedulerHead + "admission: {readyTimeout: -1s}\n", `admission.readyTimeout: Invalid value: "-1s": must be at least 0, which means no limit`},
		"an unknown rendering":                        {schedulerHead + "admission: {rendering: guess}\n", `admission.rendering: Unsupported value: "guess": supported values: "dry-run", "local"`},
		"a reservation before the wait":               {schedulerHead + "admission: {reservationAfter: -1s}\n", `admission.reservationAfter: Invalid value: "-1s": must be at least 0`},
		"a reservation that is over":                  {schedulerHead + "admission: {reservationFor: -1s}\n", `admission.reservationFor: Invalid value: "-1s": must be at least 0`},
		"a node lost before it is":                    {schedulerHead + "admission: {nodeLossGrace: -1s}\n", `admission.nodeLossGrace: Invalid value: "-1s": must be at least 0`},
		"a barrier beyond Permit":                     {schedulerHead + "admission: {barrierTimeout: 16m}\n", `admission.barrierTimeout: Invalid value: "16m0s": must be at most 15m0s`},
		"no back-off":                                 {schedulerHead + "admission: {requeue: {backoffBase: 0s}}\n", "admission.requeue.backoffBase: Invalid value"},
		"a back-off that shrinks":                     {schedulerHead + "admission: {requeue: {backoffMax: 10s}}\n", `admission.requeue.backoffMax: Invalid value: "10s": must be at least backoffBase (1m0s)`},
		"a negative limit":                            {schedulerHead + "admission: {requeue: {limitCount: -1}}\n", "admission.requeue.limitCount: Invalid value: -1"},
		"a class of requests with another name than objects have": {schedulerHead + "autoscaling: {provisioningRequests: {className: Check Capacity}}\n", "autoscaling.provisioningRequests.className: Invalid value"},
		"requests beside Kueue":                                   {schedulerHead + "quota: {provider: kueue}\nautoscaling: {provisioningRequests: {className: check}}\n", "autoscaling.provisioningRequests.className: Invalid value: \"check\": Kueue decides quota"},
		"a parameter that is too long":                            {schedulerHead + "autoscaling: {provisioningRequests: {parameters: {a: " + strings.Repeat("x", 256) + "}}}\n", "autoscaling.provisioningRequests.parameters[a]: Too long"},
		"more parameters than a request may have":                 {schedulerHead + "autoscaling: {provisioningRequests: {parameters: {" + parameters(101) + "}}}\n", "autoscaling.provisioningRequests.parameters: Too many: 101: must have at most 100 items"},
		"a resource without device classes":                       {schedulerHead + "quota: {deviceClassMappings: [{name: gpu}]}\n", "quota.deviceClassMappings[0].deviceClassNames: Required value"},
		"a device class with another name than objects have":      {schedulerHead + "quota: {deviceClassMappings: [{name: gpu, deviceClassNames: [Big GPU]}]}\n", "quota.deviceClassMappings[0].deviceClassNames[0]: Invalid value"},
		"a level that is no label":                                {schedulerHead + "topology: {levels: [row of racks]}\n", "topology.levels[0]: Invalid value"},
		"a preferred level that is no label":                      {schedulerHead + "topology: {levels: [rack], preferredLevel: the rack}\n", "topology.preferredLevel: Invalid value"},
		"a flavor's preferred level that is no label":             {schedulerHead + "topology: {flavors: [{name: a, preferredLevel: the rack}]}\n", "topology.flavors[0].preferredLevel: Invalid value"},
		"a flavor with another name than objects have":            {schedulerHead + "topology: {flavors: [{name: A 100}]}\n", "topology.flavors[0].name: Invalid value"},
		"GPUs that nobody chooses":                                {schedulerHead + "islands: {enforcement: nobody}\n", "islands.enforcement: Unsupported value"},
		"Kueue's names beside Kueue":                              {schedulerHead + "quota: {provider: kueue}\nmetrics: {kueueNames: true}\n", "metrics.kueueNames: Forbidden: Kueue's manager serves these metrics itself"},
		"requests without a back-off":                             {schedulerHead + "autoscaling: {provisioningRequests: {retry: {backoffBase: 0s}}}\n", "autoscaling.provisioningRequests.retry.backoffBase: Invalid value"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := LoadScheduler(write(t, tc.file))
			refused(t, err, tc.want)
		})
	}
}

func TestAWrongWebhookFileIsRefusedByField(t *testing.T) {
	tests := map[string]struct{ file, want string }{
		"another kind":                {schedulerHead, `kind "SchedulerConfiguration"`},
		"an unknown field":            {webhookHead + "webhook: {prot: 1}\n", `unknown field "webhook.prot"`},
		"an unknown level":            {webhookHead + "policies: {library: {queue-label: {level: strict}}}\n", "policies.library[queue-label].level: Unsupported value"},
		"a class that counts twice":   {webhookHead + "policies: {deviceClassMappings: [{name: a, deviceClassNames: [x, x]}]}\n", "policies.deviceClassMappings[0].deviceClassNames[1]: Duplicate value"},
		"a namespace that is no name": {webhookHead + "policies: {configMapNamespace: A}\n", "policies.configMapNamespace: Invalid value"},
		"an audit without an end":     {webhookHead + "policies: {audit: {interval: 1s}}\n", "policies.audit.interval: Invalid value"},
		"an audit of no objects":      {webhookHead + "policies: {audit: {chunkSize: 0}}\n", "policies.audit.chunkSize: Invalid value"},
		"requests per second":         {webhookHead + "clientConnection: {qps: 1}\n", `unknown field "clientConnection.qps"`},
		"an address that is a name":   {webhookHead + "webhook: {bindAddress: localhost}\n", "webhook.bindAddress: Invalid value"},
		"port zero":                   {webhookHead + "webhook: {port: 0}\n", "webhook.port: Invalid value: 0"},
		"no secret namespace":         {webhookHead + "webhook: {secretNamespace: \"\"}\n", "webhook.secretNamespace: Invalid value"},
		"no secret":                   {webhookHead + "webhook: {secretName: \"\"}\n", "webhook.secretName: Invalid value"},
		"a service with a dot":        {webhookHead + "webhook: {serviceName: a.b}\n", "webhook.serviceName: Invalid value"},
		"no webhook configuration":    {webhookHead + "webhook: {mutatingConfigurationName: \"\"}\n", "webhook.mutatingConfigurationName: Invalid value"},
		"a host with a scheme":        {webhookHead + "webhook: {hosts: [a.b, \"https://a\"]}\n", "webhook.hosts[1]: Invalid value"},
		"health without a port":       {webhookHead + "health: {bindAddress: localhost}\n", `health.bindAddress: Invalid value: "localhost": must be host:port or :port`},
		"health cannot be turned off": {webhookHead + "health: {bindAddress: \"0\"}\n", "health.bindAddress: Invalid value"},
		"a port that is a name":       {webhookHead + "metrics: {bindAddress: \":http\"}\n", `metrics.bindAddress: Invalid value: ":http": its port must be a number`},
		"a port beyond the range":     {webhookHead + "metrics: {bindAddress: \":70000\"}\n", "metrics.bindAddress: Invalid value"},
		"a host that is not one":      {webhookHead + "metrics: {bindAddress: \"a_b:80\"}\n", "metrics.bindAddress: Invalid value"},
		"no scheduler name":           {webhookHead + "schedulerName: \"\"\n", "schedulerName: Invalid value"},
		"an unknown mode":             {webhookHead + "unqueued: never\n", `unqueued: Unsupported value: "never": supported values: "default-queue", "run", "hold"`},
		"a namespace in capitals":     {webhookHead + "exemptNamespaces: [kube-system, Team]\n", "exemptNamespaces[1]: Invalid value"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := LoadWebhook(write(t, tc.file))
			refused(t, err, tc.want)
		})
	}
}

func TestAWrongGPUAgentFileIsRefusedByField(t *testing.T) {
	tests := map[string]struct{ file, want string }{
		"another kind":                     {webhookHead, `kind "WebhookConfiguration"`},
		"an unknown reader":                {gpuAgentHead + "reader: {kind: smi}\n", `reader.kind: Unsupported value: "smi"`},
		"a scripted reader without a file": {gpuAgentHead + "reader: {kind: scripted}\n", "reader.script: Required value"},
		"no kubelet":                       {gpuAgentHead + "kubelet: {socket: \"\"}\n", "kubelet.socket: Required value"},
		"a node that is no name":           {gpuAgentHead + "nodeName: Node_1\n", "nodeName: Invalid value"},
		"a tick without an end":            {gpuAgentHead + "tick: 1ms\n", `tick: Invalid value: "1ms": must be from 1s to 1m0s`},
		"a window of three samples":        {gpuAgentHead + "verdicts: {idleAfter: 45s}\n", "verdicts.idleAfter: Invalid value"},
		"a window of two days":             {gpuAgentHead + "verdicts: {stalledAfter: 48h}\n", "verdicts.stalledAfter: Invalid value"},
		"an age below zero":                {gpuAgentHead + "verdicts: {reclaimAge: -1s}\n", "verdicts.reclaimAge: Invalid value"},
		"more than all":                    {gpuAgentHead + "verdicts: {covered: 1.5}\n", "verdicts.covered: Invalid value"},
		"a window of a queue":              {gpuAgentHead + "verdicts: {queues: {research: {idleAfter: 1s}}}\n", "verdicts.queues[research].idleAfter: Invalid value"},
		"an age of a kind":                 {gpuAgentHead + "verdicts: {kinds: {Job: {idleAge: -1s}}}\n", "verdicts.kinds[Job].idleAge: Invalid value"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := LoadGPUAgent(write(t, tc.file))
			refused(t, err, tc.want)
		})
	}
}

func TestAllFieldsThatAreWrongAreNamedAtOnce(t *testing.T) {
	path := write(t, schedulerHead+"profiles: []\nquota: {provider: both}\n")
	_, err := LoadScheduler(path)
	for _, want := range []string{path, "profiles: Required", "quota.provider: Unsupported"} {
		refused(t, err, want)
	}
}

func TestAFileThatIsMissingIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.yaml")
	_, err := LoadWebhook(path)
	refused(t, err, path)
}

// parameters are that many keys with values.
func parameters(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("p%d: x", i)
	}
	return strings.Join(out, ", ")
}

func refused(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Fatalf("accepted; want an error with %q", want)
	}
	if !strings.Contains(err.Error(), want) {
		t.Errorf("error %q does not say %q", err, want)
	}
}

# Muster: everything a developer or CI runs. "make help" lists it.

# One setting for everything, so that the compiled packages are shared.
export CGO_ENABLED := 0
BIN := bin
GO := go

# Packages whose tests need no API server.
UNIT_PACKAGES = $(shell $(GO) list ./... | grep -vE '/test/|/internal/testcluster')

.DEFAULT_GOAL := help

##@ Try it

.PHONY: help
help: ## List the targets
	@echo "Usage: make TARGET"
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z][a-zA-Z0-9_-]*:.*## / {printf "  %-25s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: sandbox ## Show two jobs that would deadlock, and how Muster runs them (a minute and a half once built)
	@$(BIN)/sandbox demo

include hack/sandbox.mk
sandbox: ## Build everything that bin/sandbox runs (cold: about 20 minutes on 2 cores)

sandbox-kueue: ## Build also Kueue's manager, for bin/sandbox up --with ...,kueue (cold: 8 minutes more)

sandbox-training-operator: ## Build also Kubeflow's Training Operator, for bin/sandbox up --with ...,training-operator (cold: 5 minutes more)

sandbox-coscheduling: ## Build also scheduler-plugins' scheduler, for bin/sandbox up --with ...,coscheduling (cold: 10 minutes more)

##@ Develop

.PHONY: build
build: $(BIN)/scheduler $(BIN)/webhook $(BIN)/gpu-agent $(BIN)/sandbox $(BIN)/kubectl-muster ## Build Muster's own programs into bin/

.PHONY: gpu-agent
gpu-agent: ## Build bin/gpu-agent-nvml, the GPU agent that asks NVIDIA's driver (needs a C compiler, and no driver)
	CGO_ENABLED=1 $(GO) build -ldflags "-extldflags=-Wl,-z,lazy" -o $(BIN)/gpu-agent-nvml ./cmd/gpu-agent

include hack/images.mk
images-oci: ## Make images of the scheduler, the webhook and the GPU agent in bin/images, without a container engine (VERSION, IMAGE_PREFIX=your-registry/)

.PHONY: generate
generate: ## Generate the CRDs from their Go types, the policies that need no webhook from the library, the reference of metrics, the PrometheusRule and the Grafana dashboards
	@hack/generate.sh

.PHONY: check-generated
check-generated: ## Fail if what is generated differs from what is committed
	@hack/check-generated.sh

.PHONY: lint
lint: $(BIN)/staticcheck ## gofmt, go vet, staticcheck
	@hack/lint.sh

$(BIN)/staticcheck: tools/staticcheck/go.mod
	@cd tools/staticcheck && ../../hack/compile.sh 1/1 staticcheck "about 1 minute" $(abspath $@) honnef.co/go/tools/cmd/staticcheck
	@touch $@

##@ Test

.PHONY: test-unit
test-unit: ## Tests that need no API server; seconds once compiled
	$(GO) test $(UNIT_PACKAGES)

.PHONY: test-race
test-race: ## The unit tests of the concurrent core under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race ./scheduling/... ./quota/... ./workload/... ./agent/... ./cmd/gpu-agent/...

.PHONY: test-integration
test-integration: ## The scheduler and the webhook in-process against a real API server
	$(GO) test -count=1 -timeout 45m ./test/integration/...

.PHONY: test-e2e
test-e2e: sandbox sandbox-training-operator ## The demo, and jobs on the real controllers, in sandboxes
	$(GO) test -count=1 -timeout 40m ./test/e2e/...

.PHONY: test-handover
test-handover: sandbox-kueue $(BIN)/kubectl-muster ## Kueue and Muster follow each other over running jobs, in a sandbox
	$(GO) test -count=1 -timeout 20m ./test/handover/...

.PHONY: test-bench
test-bench: sandbox ## Admissions never overshoot quota and cost few writes, with a small load in a sandbox (1 minute; PART=10: 1,500 jobs)
	$(GO) test -count=1 -timeout 30m ./test/bench/... -args -part $(or $(PART),0)

.PHONY: test-kubelet
test-kubelet: sandbox $(BIN)/kubelet ## The GPU agent beside a real kubelet and its pods, on a sandbox's API server (2 minutes; skipped without root, containerd, runc and the CNI plugins, unless MUSTER_TEST_KUBELET=1)
	$(GO) test -count=1 -timeout 15m -v ./test/kubelet

.PHONY: test-rules
test-rules: $(BIN)/promtool ## The alert and recording rules and the dashboards, evaluated by Prometheus's engine, and their runbooks (seconds once promtool is built)
	$(BIN)/promtool check rules manifests/monitoring/rules/*.yaml
	$(BIN)/promtool test rules test/rules/*.yaml
	cd test/rules && $(GO) test ./...

# Of the ways in which Prometheus finds what to scrape, rules need none.
$(BIN)/promtool: test/rules/go.mod
	@cd test/rules && ../../hack/compile.sh 1/1 promtool "about 3 minutes" $(abspath $@) github.com/prometheus/prometheus/cmd/promtool -tags remove_all_sd
	@touch $@

.PHONY: test-gpu
test-gpu: ## Read the GPUs of this machine by NVIDIA's driver, and write bin/gpu-report.txt (a minute; skipped without one; LOAD: a command that keeps the first one busy)
	CGO_ENABLED=1 $(GO) test -c -o $(BIN)/nvml.test ./agent/reader/nvml
	MUSTER_TEST_GPU=$(BIN)/gpu-report.txt MUSTER_TEST_GPU_LOAD='$(LOAD)' $(BIN)/nvml.test -test.run TestOnAGPU -test.v -test.timeout 5m

.PHONY: test
test: test-unit test-rules test-integration test-e2e test-handover test-kubelet test-bench ## All tests: unit, rules, integration, end to end, hand-over, kubelet (about 11 minutes once all is built; cold: 40 more)

##@ Measure

.PHONY: bench-plan
bench-plan: ## Time of planning a gang, by nodes and pods, and what it costs to ask for a rack
	$(GO) test ./placement -run '^$$' -bench 'BenchmarkPlan|BenchmarkRackLoad' -benchmem

.PHONY: bench-openb
bench-openb: ## How much of a production cluster's GPUs packing fills (40 s; OPENB_DIR: the folder with openb's lists of nodes and pods)
	$(GO) test ./placement/fragmentation -run '^$$' -bench Openb -benchtime 1x -timeout 20m

.PHONY: bench-pending
bench-pending: ## How long pods are kept by 10,000 gangs that wait (36 shapes: 2 minutes; BENCH=deep: 50,000 gangs; BENCH=all-distinct: worst case, 10 minutes)
	$(GO) test ./scheduling -run '^$$' -bench 'BenchmarkPodCycle/.*/$(or $(BENCH),36-shapes)' -benchtime 5x -timeout 30m

.PHONY: bench-quota
bench-quota: ## How long 1,000 ClusterQueues are asked for their heads, and victims are looked for (1 minute)
	$(GO) test ./quota -run '^$$' -bench 'Heads|Preemption|Changes' -benchmem

.PHONY: bench-simulate
bench-simulate: ## How long the scheduler is kept by "kubectl muster simulate" and "explain", with 1,000 nodes and 10,000 jobs that wait (1 minute)
	$(GO) test ./scheduling -run '^$$' -bench BenchmarkSimulate

.PHONY: bench-pass
bench-pass: ## How long it takes to try all of 50,000 jobs in 1,000 ClusterQueues again, and what each costs in memory
	$(GO) test ./scheduling -run '^$$' -bench 'BenchmarkDecisionPass|BenchmarkPendingMemory' -benchtime 3x -timeout 30m

.PHONY: bench-policy
bench-policy: ## How long all policies take about a JobSet of 32 containers, and what 100 policies and a large cluster keep in memory (10 s; GOGC: as the webhook's)
	GOGC=$(or $(GOGC),200) $(GO) test ./policy/library -run '^$$' -bench . -benchmem

.PHONY: bench-quota-admit
bench-quota-admit: sandbox-kueue ## Muster and Kueue admit the same 1,500 jobs, each on a fresh API server (5 minutes; PART=1: all 15,000; ROUNDS=3)
	$(GO) test ./test/bench -count=1 -run '^$$' -bench QuotaAdmit -benchtime 1x -timeout 180m -part $(or $(PART),10) -rounds $(or $(ROUNDS),1)

.PHONY: bench-gangs
bench-gangs: sandbox-coscheduling ## Gangs bound by Muster, by scheduler-plugins' coscheduling, and at best (6 minutes; GANGS=667x3,100x20,4x500,1x2000; ROUNDS=3)
	$(GO) test ./test/bench -count=1 -run '^$$' -bench Gangs -benchtime 1x -timeout 180m -gangs $(or $(GANGS),100x20) -rounds $(or $(ROUNDS),3)

.PHONY: bench-webhook
bench-webhook: ## How long the webhook takes for what it is asked about new pods with GPUs and JobSets over TLS, 200 a second, beside what sending takes, and for a JobSet of 32 containers (1 minute)
	$(GO) test ./cmd/webhook/app ./admission/defaults -run '^$$' -bench 'Reviews|Handle' -benchtime 2000x

.PHONY: bench-creates
bench-creates: sandbox ## Pods and jobs created with and without the webhook in turns, in a sandbox (1 minute; ROUNDS=5, CREATES=400 of each kind)
	$(GO) test ./test/bench -count=1 -run '^$$' -bench Creates -benchtime 1x -timeout 60m -rounds $(or $(ROUNDS),5) -creates $(or $(CREATES),400)

.PHONY: bench-webhook-memory
bench-webhook-memory: sandbox ## Memory of the webhook in a sandbox with 5,000 namespaces, 1,000 queues, 1,000 GPUNodes and 100 policies (2 minutes; GOGC, GOMEMLIMIT: the webhook's)
	$(GO) test ./test/bench -count=1 -run '^$$' -bench WebhookMemory -benchtime 1x -timeout 20m

.PHONY: bench-scrape
bench-scrape: ## What a scrape of the scheduler costs with 1,000 ClusterQueues, in processor time and size (20 s)
	$(GO) test ./metrics -run '^$$' -bench Scrape -benchtime 20x -benchmem

.PHONY: bench-rss
bench-rss: sandbox ## Memory of an idle scheduler in a sandbox
	@hack/bench-rss.sh

.PHONY: bench-gpu-agent
bench-gpu-agent: sandbox ## What a GPU agent costs with 16 GPUs that pods hold, in a sandbox (6 minutes; SECONDS=300)
	@hack/bench-gpu-agent.sh $(or $(SECONDS),300)

##@ Clean up

.PHONY: clean
clean: ## Remove what was built (the Go build cache stays)
	rm -rf $(BIN)

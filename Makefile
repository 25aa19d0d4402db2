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
build: $(BIN)/scheduler $(BIN)/webhook $(BIN)/sandbox $(BIN)/kubectl-muster ## Build Muster's own programs into bin/

.PHONY: generate
generate: ## Generate the CRDs from their Go types
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
	CGO_ENABLED=1 $(GO) test -race ./scheduling/... ./quota/... ./workload/...

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

.PHONY: test
test: test-unit test-integration test-e2e test-handover test-bench ## All tests: unit, integration, end to end, hand-over (about 9 minutes once all is built; cold: 35 more)

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

.PHONY: bench-pass
bench-pass: ## How long it takes to try all of 50,000 jobs in 1,000 ClusterQueues again, and what each costs in memory
	$(GO) test ./scheduling -run '^$$' -bench 'BenchmarkDecisionPass|BenchmarkPendingMemory' -benchtime 3x -timeout 30m

.PHONY: bench-quota-admit
bench-quota-admit: sandbox-kueue ## Muster and Kueue admit the same 1,500 jobs, each on a fresh API server (5 minutes; PART=1: all 15,000; ROUNDS=3)
	$(GO) test ./test/bench -count=1 -run '^$$' -bench QuotaAdmit -benchtime 1x -timeout 180m -part $(or $(PART),10) -rounds $(or $(ROUNDS),1)

.PHONY: bench-gangs
bench-gangs: sandbox-coscheduling ## Gangs bound by Muster, by scheduler-plugins' coscheduling, and at best (6 minutes; GANGS=667x3,100x20,4x500,1x2000; ROUNDS=3)
	$(GO) test ./test/bench -count=1 -run '^$$' -bench Gangs -benchtime 1x -timeout 180m -gangs $(or $(GANGS),100x20) -rounds $(or $(ROUNDS),3)

.PHONY: bench-rss
bench-rss: sandbox ## Memory of an idle scheduler in a sandbox
	@hack/bench-rss.sh

##@ Clean up

.PHONY: clean
clean: ## Remove what was built (the Go build cache stays)
	rm -rf $(BIN)

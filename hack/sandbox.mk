# What the sandbox runs, each program from its Go module. Included by the
# Makefile; "make sandbox" builds what is missing, a second one does nothing.
#
# The upstream programs are rebuilt when their module's version changes, ours
# when their sources do.

BIN ?= bin

module_version = $(shell awk '$$1 == "$(2)" && $$2 ~ /^v/ {print $$2; exit} $$1 == "require" && $$2 == "$(2)" {print $$3; exit}' $(1))
KUBERNETES_VERSION := $(call module_version,go.mod,k8s.io/kubernetes)
ETCD_VERSION := $(call module_version,go.mod,go.etcd.io/etcd/server/v3)
SCHEDULER_PLUGINS_VERSION := $(call module_version,tools/trainer/go.mod,sigs.k8s.io/scheduler-plugins)
COSCHEDULING_VERSION := $(call module_version,tools/coscheduling/go.mod,sigs.k8s.io/scheduler-plugins)
JOBSET_VERSION := $(call module_version,tools/jobset/go.mod,sigs.k8s.io/jobset)
KUEUE_VERSION := $(call module_version,tools/kueue/go.mod,sigs.k8s.io/kueue)
TRAINING_OPERATOR_VERSION := $(call module_version,tools/training-operator/go.mod,github.com/kubeflow/training-operator)
TRAINER_VERSION := $(call module_version,tools/trainer/go.mod,github.com/kubeflow/trainer/v2)

# Clients parse the API server's version; one that is built from a module
# reports a placeholder unless it is told its own.
kubernetes_ldflags = -X k8s.io/component-base/version.gitVersion=$(1) -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(1)))
KUBERNETES_LDFLAGS := $(call kubernetes_ldflags,$(KUBERNETES_VERSION))
COSCHEDULING_LDFLAGS := $(call kubernetes_ldflags,$(call module_version,tools/coscheduling/go.mod,k8s.io/kubernetes))

# etcd and kube-apiserver are not built where KUBEBUILDER_ASSETS has them.
SANDBOX_UPSTREAM := $(if $(wildcard $(KUBEBUILDER_ASSETS:%=%/etcd)),,etcd) \
	$(if $(wildcard $(KUBEBUILDER_ASSETS:%=%/kube-apiserver)),,kube-apiserver) \
	kube-controller-manager kube-scheduler jobset-controller trainer-controller \
	$(if $(shell command -v kubectl),,kubectl)
SANDBOX_OURS := sandbox scheduler webhook gpu-agent
SANDBOX_PROGRAMS := $(strip $(SANDBOX_UPSTREAM)) $(SANDBOX_OURS)

# The place of a program in the order above, as "2/9".
sandbox_count = $(words $(SANDBOX_PROGRAMS))
sandbox_before = $(shell printf '%s\n' $(SANDBOX_PROGRAMS) | awk '$$1 == "$(1)" {print NR}')
sandbox_place = $(or $(call sandbox_before,$(1)),1)/$(sandbox_count)

SOURCE_FOLDERS := $(wildcard admission agent api cmd config internal manifests metrics placement plugins policy quota scheduling workload)
GO_SOURCES := $(shell find $(SOURCE_FOLDERS) -name '*.go' ! -name '*_test.go')
MANIFEST_SOURCES := $(shell find manifests -type f ! -name '*.go')

.PHONY: sandbox
sandbox: $(SANDBOX_PROGRAMS:%=$(BIN)/%) $(BIN)/upstream/.complete

# Kueue's manager is needed only by those who run it beside Muster.
.PHONY: sandbox-kueue
sandbox-kueue: sandbox $(BIN)/kueue-controller $(BIN)/upstream/.kueue

# The Training Operator is needed only by those who run jobs of Kubeflow's
# version 1.
.PHONY: sandbox-training-operator
sandbox-training-operator: sandbox $(BIN)/training-operator $(BIN)/upstream/training-operator.yaml

# scheduler-plugins' scheduler is needed only by those who measure beside it.
.PHONY: sandbox-coscheduling
sandbox-coscheduling: sandbox $(BIN)/coscheduling

# A file whose name holds a version is a prerequisite that changes with it.
$(BIN)/.version/%:
	@mkdir -p $(@D)
	@rm -f $(@D)/$(firstword $(subst @, ,$(@F)))@*
	@touch $@

# go leaves a program alone that would not change, so it is touched.
$(BIN)/etcd: $(BIN)/.version/etcd@$(ETCD_VERSION)
	@hack/compile.sh $(call sandbox_place,etcd) "etcd $(ETCD_VERSION)" "about 30 seconds" $@ go.etcd.io/etcd/server/v3
	@touch $@

$(BIN)/kube-apiserver: $(BIN)/.version/kube-apiserver@$(KUBERNETES_VERSION)
	@hack/compile.sh $(call sandbox_place,kube-apiserver) "kube-apiserver $(KUBERNETES_VERSION)" "about 10 minutes" $@ k8s.io/kubernetes/cmd/kube-apiserver -ldflags "$(KUBERNETES_LDFLAGS)"
	@touch $@

$(BIN)/kube-controller-manager: $(BIN)/.version/kube-controller-manager@$(KUBERNETES_VERSION)
	@hack/compile.sh $(call sandbox_place,kube-controller-manager) "kube-controller-manager $(KUBERNETES_VERSION)" "about 2 minutes" $@ k8s.io/kubernetes/cmd/kube-controller-manager -ldflags "$(KUBERNETES_LDFLAGS)"
	@touch $@

$(BIN)/kube-scheduler: $(BIN)/.version/kube-scheduler@$(KUBERNETES_VERSION)
	@hack/compile.sh $(call sandbox_place,kube-scheduler) "kube-scheduler $(KUBERNETES_VERSION)" "about 2 minutes" $@ k8s.io/kubernetes/cmd/kube-scheduler -ldflags "$(KUBERNETES_LDFLAGS)"
	@touch $@

$(BIN)/kubectl: $(BIN)/.version/kubectl@$(KUBERNETES_VERSION)
	@hack/compile.sh $(call sandbox_place,kubectl) "kubectl $(KUBERNETES_VERSION)" "about 1 minute" $@ k8s.io/kubernetes/cmd/kubectl -ldflags "$(KUBERNETES_LDFLAGS)"
	@touch $@

# Only tests beside a real kubelet need it, which are not of a sandbox alone.
$(BIN)/kubelet: $(BIN)/.version/kubelet@$(KUBERNETES_VERSION)
	@hack/compile.sh 1/1 "kubelet $(KUBERNETES_VERSION)" "about 2 minutes" $@ k8s.io/kubernetes/cmd/kubelet -ldflags "$(KUBERNETES_LDFLAGS)"
	@touch $@

$(BIN)/jobset-controller: tools/jobset/go.mod
	@cd tools/jobset && ../../hack/compile.sh $(call sandbox_place,jobset-controller) "JobSet $(JOBSET_VERSION)" "about 3 minutes" $(abspath $@) sigs.k8s.io/jobset
	@touch $@

$(BIN)/trainer-controller: tools/trainer/go.mod
	@cd tools/trainer && ../../hack/compile.sh $(call sandbox_place,trainer-controller) "Kubeflow Trainer $(TRAINER_VERSION)" "about 3 minutes" $(abspath $@) github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager
	@touch $@

# It parses the version that the API server reports, which is stamped above.
$(BIN)/kueue-controller: tools/kueue/go.mod
	@cd tools/kueue && ../../hack/compile.sh 1/1 "Kueue $(KUEUE_VERSION)" "about 8 minutes" $(abspath $@) sigs.k8s.io/kueue/cmd/kueue
	@touch $@

$(BIN)/training-operator: tools/training-operator/go.mod tools/training-operator/main.go
	@cd tools/training-operator && ../../hack/compile.sh 1/1 "Training Operator $(TRAINING_OPERATOR_VERSION)" "about 5 minutes" $(abspath $@) .
	@touch $@

$(BIN)/coscheduling: tools/coscheduling/go.mod
	@cd tools/coscheduling && ../../hack/compile.sh 1/1 "scheduler-plugins $(COSCHEDULING_VERSION)" "about 10 minutes" $(abspath $@) sigs.k8s.io/scheduler-plugins/cmd/scheduler -ldflags "$(COSCHEDULING_LDFLAGS)"
	@touch $@

$(BIN)/sandbox: $(GO_SOURCES) $(MANIFEST_SOURCES)
	@hack/compile.sh $(call sandbox_place,sandbox) "sandbox" "about 1 minute" $@ ./cmd/sandbox
	@touch $@

$(BIN)/scheduler: $(GO_SOURCES)
	@hack/compile.sh $(call sandbox_place,scheduler) "scheduler" "about 1 minute" $@ ./cmd/scheduler
	@touch $@

$(BIN)/gpu-agent: $(GO_SOURCES)
	@hack/compile.sh $(call sandbox_place,gpu-agent) "gpu-agent" "about 1 minute" $@ ./cmd/gpu-agent
	@touch $@

$(BIN)/kubectl-muster: $(GO_SOURCES)
	@hack/compile.sh 1/1 "kubectl-muster" "about 1 minute" $@ ./cmd/kubectl-muster
	@touch $@

$(BIN)/webhook: $(GO_SOURCES)
	@hack/compile.sh $(call sandbox_place,webhook) "webhook" "about 1 minute" $@ ./cmd/webhook
	@touch $@

# The manifests of the upstream controllers come out of the module cache and
# are not part of this repository.
module_folder = $$(cd $(1) && go mod download $(2) && go list -m -f '{{.Dir}}' $(2))
$(BIN)/upstream/.complete: tools/jobset/go.mod tools/trainer/go.mod $(BIN)/.version/scheduler-plugins@$(SCHEDULER_PLUGINS_VERSION) internal/sandbox/upstream.go internal/sandbox/manifests.go | $(BIN)/sandbox
	@echo "Rendering the manifests of JobSet and the Trainer"
	@mkdir -p $(@D)
	@$(BIN)/sandbox render-upstream --out $(BIN)/upstream \
		--jobset "$(call module_folder,tools/jobset,sigs.k8s.io/jobset)" \
		--trainer "$(call module_folder,tools/trainer,github.com/kubeflow/trainer/v2)" \
		--scheduler-plugins "$(call module_folder,tools/trainer,sigs.k8s.io/scheduler-plugins)" 2> $(@D)/.log || { cat $(@D)/.log; exit 1; }
	@touch $@

$(BIN)/upstream/.kueue: tools/kueue/go.mod internal/sandbox/upstream.go internal/sandbox/manifests.go | $(BIN)/sandbox
	@echo "Rendering the manifests of Kueue"
	@mkdir -p $(@D)
	@$(BIN)/sandbox render-upstream --out $(BIN)/upstream \
		--kueue "$(call module_folder,tools/kueue,sigs.k8s.io/kueue)" 2> $(@D)/.log || { cat $(@D)/.log; exit 1; }
	@touch $@

$(BIN)/upstream/training-operator.yaml: tools/training-operator/go.mod internal/sandbox/upstream.go internal/sandbox/trainingoperator.go internal/sandbox/manifests.go | $(BIN)/sandbox
	@echo "Rendering the manifests of the Training Operator"
	@mkdir -p $(@D)
	@$(BIN)/sandbox render-upstream --out $(BIN)/upstream \
		--training-operator "$(call module_folder,tools/training-operator,github.com/kubeflow/training-operator)" 2> $(@D)/.log || { cat $(@D)/.log; exit 1; }
	@touch $@

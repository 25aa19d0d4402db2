# Images of Muster's programs, as archives of OCI layouts, without a container engine.
# Included by the Makefile. The same sources give the same digests, wherever they are and
# whoever builds them with the same Go (for the GPU agent, the same C library too):
# -trimpath leaves out where they are, and -buildvcs=false what Git says of the folder,
# which a source archive has not. Which version it is says VERSION, and "go version -m"
# lists the modules of a program.

VERSION ?= $(shell git describe --tags --always --dirty)
REVISION ?= $(shell git rev-parse HEAD)
# The time of the image, and of the files in it: that of the commit.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
# What goes before the names of images, such as your-registry/.
IMAGE_PREFIX ?=

IMAGE_BUILD := -trimpath -buildvcs=false
IMAGE_LDFLAGS = -w -X github.com/muster-gpu/muster/internal/version.Version=$(VERSION)
# NVIDIA's library, which a node brings, needs these beside it.
C_LIBRARIES = $(shell for l in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1; do realpath -s $$(gcc -print-file-name=$$l); done; readelf -l $(BIN)/images/gpu-agent | sed -n 's/.*interpreter: \(.*\)]/\1/p')

.PHONY: images-oci
images-oci: $(BIN)/images/muster-scheduler.tar $(BIN)/images/muster-webhook.tar $(BIN)/images/muster-gpu-agent.tar

.PHONY: $(BIN)/images/scheduler $(BIN)/images/webhook $(BIN)/images/gpu-agent
$(BIN)/images/scheduler $(BIN)/images/webhook:
	$(GO) build $(IMAGE_BUILD) -ldflags "$(IMAGE_LDFLAGS)" -o $@ ./cmd/$(@F)
$(BIN)/images/gpu-agent:
	CGO_ENABLED=1 $(GO) build $(IMAGE_BUILD) -ldflags "$(IMAGE_LDFLAGS) -extldflags=-Wl,-z,lazy" -o $@ ./cmd/$(@F)

image = $(GO) run ./hack/images -program $< -name "$(IMAGE_PREFIX)$(basename $(@F))" -version "$(VERSION)" -revision "$(REVISION)" -created "$(SOURCE_DATE_EPOCH)" -out $@

$(BIN)/images/muster-scheduler.tar: $(BIN)/images/scheduler
	@$(image)
$(BIN)/images/muster-webhook.tar: $(BIN)/images/webhook
	@$(image)
# It is root, because the folder of the kubelet's socket is root's.
$(BIN)/images/muster-gpu-agent.tar: $(BIN)/images/gpu-agent
	@$(image) -user 0:0 -libraries "$(C_LIBRARIES)"

# `make` lists the targets that people use. Go is all that most of them need; those of a real Kubernetes want Linux and
# root. More targets lie beside their tests, in the files that are included below.

SHELL := bash

# Twelve digits of the commit in every clone: git's own choice depends on how much the clone has.
VERSION ?= $(shell git describe --tags --always --abbrev=12 --dirty 2>/dev/null || echo v0.1.0)
COMMIT ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
# When the commit was made (seconds since 1970): the time of all files in an image or archive.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
# The image that the manifests name. The lab loads it, so nothing is pulled.
IMAGE := $(shell sed -n 's/^ *image: \(ghcr.*\)/\1/p' manifests/base/deployment.yaml)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
# What an image says of itself, in the Dockerfile too (a test compares them). There is no image below it.
OF_IMAGE := -entrypoint /quorate -cmd serve -user 65532:65532 -created $(SOURCE_DATE_EPOCH) \
  -label org.opencontainers.image.title=Quorate -label 'org.opencontainers.image.description=etcd clusters on Kubernetes' \
  -label org.opencontainers.image.source=https://github.com/quorate-dev/quorate -label org.opencontainers.image.licenses=Apache-2.0 \
  -label org.opencontainers.image.version=$(VERSION) -label org.opencontainers.image.revision=$(COMMIT)
# Without gRPC's way to Google's storage, which quorate-snapshot does not take, without gRPC's own pages of traces, which
# nothing serves and whose templates keep the linker from leaving code out, and without gin's MessagePack.
TAGS := disable_grpc_modules,grpcnotrace,nomsgpack

# One set of flags for programs and tests, in every folder: what they share is compiled once.
export CGO_ENABLED := 0
export GOFLAGS := -buildvcs=false -trimpath -tags=$(TAGS) $(filter-out -buildvcs% -trimpath -tags%,$(GOFLAGS))
# Compilers live for a second and need not tidy up: that saves a quarter of their time. Few reach the limit.
COMPILE := GOGC=off GOMEMLIMIT=3GiB go build

.DEFAULT_GOAL := help
.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^##@/{printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Try

.PHONY: try
try: ## Quorate in this terminal, on real etcds: Go alone, no root, no Kubernetes; ARGS=--once for the tour alone, --ui for a page beside it
	@[ -x bin/try ] || echo "building, once (a minute or two)"
	@$(COMPILE) -ldflags '-s -w' -o bin/try ./test/real/try && bin/try $(ARGS)

.PHONY: demo
demo: ## from nothing to a three-member etcd on a real Kubernetes, with the time it takes (Linux, root)
	@test/real/demo/demo.sh

.PHONY: demo-kind
demo-kind: ## the same on a cluster of kind's, for those who have Docker and kind
	@test/real/demo/demo.sh kind

##@ Build

.PHONY: build
build: ## bin/quorate, bin/quorate-snapshot and bin/quorate-trim, static
	$(COMPILE) -ldflags '$(LDFLAGS)' -o bin/ $(foreach program,$(PROGRAMS),$(MAIN_$(program)))

# What an image has. quorate-snapshot, with the clouds' SDKs, takes a minute to compile: `make demo` leaves it out.
PROGRAMS ?= quorate quorate-snapshot quorate-trim
MAIN_quorate := .
MAIN_quorate-snapshot := ./etcdops/quorate-snapshot
MAIN_quorate-trim := ./etcdops/quorate-trim

.PHONY: image
image: build bin/lab ## bin/quorate.tar, an OCI image, without Docker
	bin/lab image -o $(CURDIR)/bin/quorate.tar -ref $(IMAGE) $(OF_IMAGE) $(foreach program,$(PROGRAMS),$(CURDIR)/bin/$(program)=/$(program))

# What the scripts of a release are told.
RELEASE = OF_IMAGE="$(OF_IMAGE)" VERSION='$(VERSION)' REVISION=$(shell git rev-parse HEAD) TAGS='$(TAGS)' LDFLAGS='$(LDFLAGS)'

.PHONY: release
release: ## bin/release: binaries, plugin, image for amd64 and arm64, SBOMs, licences, checksums; the same bytes from the same commit
	@$(RELEASE) test/tools/release.sh bin/release

.PHONY: reproducible
reproducible: # build the release twice, from two folders, and compare every byte
	@$(RELEASE) test/tools/reproducible.sh

.PHONY: rehearse
rehearse: bin/helm # with what is in bin/release: push, sign, attest, verify, with a registry and a key of this machine
	@test/tools/rehearse.sh

.PHONY: generate generate-check
generate: bin/controller-gen bin/crd-ref-docs bin/jsonnet ## deepcopy functions, CRDs, docs/reference/api.md, etcd's alerts, templates of the chart
	test/tools/generate.sh
generate-check: bin/controller-gen bin/crd-ref-docs bin/jsonnet # fail if `make generate` would change anything
	test/tools/generate.sh --check

.PHONY: site
site: # bin/site, the documents as pages that need no server, with a search, by Sphinx (python3-sphinx python3-myst-parser furo)
	@rm -rf bin/site
	@sphinx-build -q -W --keep-going -c test/tools/site -b html . bin/site
	@ln -s README.html bin/site/index.html

.PHONY: clean
clean: # remove bin/ (the lab's binaries stay: they are in the user's cache)
	rm -rf bin

##@ Test

# A line for each package, failures whole at the end. With RESULTS set to a folder, what `go test -json` says is kept
# there. FORMAT=standard-verbose shows all of it.
GOTEST := test/tools/gotest.sh
export QUORATE_VERIFY := 1

# What links the clouds' SDKs takes minutes to compile, and `make try` is played at its prompt: `make check` has both.
LATER := /etcdops/(backup/(archive|mirror|rescue|seed|snapshot|stream)|quorate-snapshot)|/test/real/try

# The packages that have more than tests.
PROGRAM_PACKAGES := go list -f '{{if .GoFiles}}{{.ImportPath}}{{end}}' ./...

.PHONY: test
test: bin/gotestsum ## decisions, stories, a small model, the server, and a real etcd, with Go alone
	@$(COMPILE) $$($(PROGRAM_PACKAGES) | grep -vE '$(LATER)') && $(GOTEST) -short -vet=off $$(go list ./... | grep -vE '$(LATER)')

.PHONY: check
check: ## the rest that needs no Kubernetes: lint, generated files, walks, snapshots and stores, licences, manifests, alerts
	@$(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target tools lint generate-check long later licences monitoring

.PHONY: lint
lint: bin/golangci-lint ## gofmt, vet, linters, and how documents are written
	@for module in . test/tools; do (cd $$module && $(CURDIR)/bin/golangci-lint run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./...) || failed=1; done; exit $${failed:-0}
	@go test -vet=off ./docs -run TestStyle

.PHONY: long later licences tools monitoring
long: bin/gotestsum # what is shorter with -short
	@$(GOTEST) -vet=off ./hooks/schedule ./test/simulated/scenario ./test/simulated/model -run 'Wander|TheModelIsTheWorld|NothingIsStuck|ThreeYears'
later: bin/gotestsum store-servers # what `make test` leaves out
	@$(COMPILE) $$($(PROGRAM_PACKAGES) | grep -E '$(LATER)') && $(GOTEST) -vet=off $$(go list ./... | grep -E '$(LATER)')
licences: bin/go-licenses # fail if a module is linked whose licence does not suit
	@TAGS='$(TAGS)' test/tools/licences.sh > /dev/null
tools: bin/gotestsum bin/helm # the tools' own tests; manifests, and the documents of alerts
	@$(GOTEST) -C test/tools -vet=off ./...
monitoring: bin/promtool # the alert rules by Prometheus' own tool: when each fires, and when it must not
	@test/tools/monitoring/promtool.sh check && test/tools/monitoring/promtool.sh play

include test/simulated/simulated.mk test/real/real.mk test/real/bench/bench.mk

# The tools have one module: what they share is compiled once.
TOOLS := test/tools/go.mod test/tools/go.sum
bin/controller-gen bin/crd-ref-docs bin/jsonnet bin/kustomize &: $(TOOLS)
	go build -C test/tools -o $(CURDIR)/bin/ sigs.k8s.io/controller-tools/cmd/controller-gen github.com/elastic/crd-ref-docs github.com/google/go-jsonnet/cmd/jsonnet sigs.k8s.io/kustomize/kustomize/v5
	@touch bin/controller-gen bin/crd-ref-docs bin/jsonnet bin/kustomize

# Prometheus' without the clouds' ways to find targets, and their SDKs.
bin/golangci-lint: FROM := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
bin/go-licenses: FROM := github.com/google/go-licenses/v2
bin/gotestsum: FROM := gotest.tools/gotestsum
bin/helm: FROM := helm.sh/helm/v3/cmd/helm
bin/prometheus: FROM := -tags remove_all_sd,enable_kubernetes_sd github.com/prometheus/prometheus/cmd/prometheus
bin/promtool: FROM := -tags remove_all_sd github.com/prometheus/prometheus/cmd/promtool
bin/golangci-lint bin/go-licenses bin/gotestsum bin/helm bin/prometheus bin/promtool: $(TOOLS)
	@echo "building $(@F), once: up to two minutes" >&2
	@$(COMPILE) -C test/tools -o $(CURDIR)/$@ $(FROM)
	@touch $@

bin/lab: $(wildcard test/real/lab/*.go test/real/lab/conf/*) go.mod go.sum
	@$(COMPILE) -ldflags '-s -w -X main.source=$(CURDIR)/test/real/lab' -o bin/lab ./test/real/lab
	@touch bin/lab

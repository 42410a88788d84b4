# `make` lists the targets. Go is all that most of them need; lab-up and what builds on it want Linux and root.

SHELL := bash
export GOFLAGS := -buildvcs=false $(filter-out -buildvcs%,$(GOFLAGS))

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo v0.1.0)
COMMIT ?= $(shell git rev-parse --short HEAD 2>/dev/null)
# The image that the manifests name. The lab loads it, so nothing is pulled.
IMAGE := $(shell sed -n 's/^ *image: \(ghcr.*\)/\1/p' manifests/base/deployment.yaml)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
# Without gRPC's way to Google's storage, which Quorate does not take: 13 MB of 71 (docs/decisions/0018-snapshots.md).
TAGS := disable_grpc_modules

LAB := go run -C test/lab .
# The running lab's KUBECONFIG, kubectl and network, for the commands behind it.
IN_LAB := eval "$$($(LAB) env)" &&

RUN ?= .
FUZZTIME ?= 30s
STEPS ?= 1000000
FOR ?= 5m
SEED ?= 0

.DEFAULT_GOAL := help
.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^##@/{printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Build

.PHONY: build
build: ## bin/quorate, static
	CGO_ENABLED=0 go build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o bin/quorate .

.PHONY: image
image: build ## bin/quorate.tar, an OCI image, without Docker
	$(LAB) image -o $(CURDIR)/bin/quorate.tar -ref $(IMAGE) -entrypoint /quorate -user 65532:65532 $(CURDIR)/bin/quorate=/quorate

.PHONY: generate
generate: bin/controller-gen bin/crd-ref-docs ## deepcopy functions, CRDs, docs/api.md
	test/tools/generate.sh

.PHONY: clean
clean: ## remove bin/ (the lab's binaries stay: they are in the user's cache)
	rm -rf bin

##@ Test

.PHONY: test
test: bin/steps ## everything that needs Go alone: lint, generated files, all tests; V=1 shows all of it
	@bin/steps \
	  "lint: $(MAKE) -s lint" \
	  "generated files: $(MAKE) -s generate-check" \
	  "etcd binaries: $(MAKE) -s etcd-binaries" \
	  "servers of stores: $(MAKE) -s store-servers" \
	  "tests: QUORATE_VERIFY=1 go test -json ./..." \
	  "manifests: go test -C test/manifests -json ./..." \
	  "lab: go test -C test/lab -json -short ./..."

.PHONY: unit
unit: ## the decisions alone, in seconds
	QUORATE_VERIFY=1 go test ./hooks/...

.PHONY: scenario
scenario: ## the stories without etcd or Kubernetes
	QUORATE_VERIFY=1 go test ./test/scenario/...

.PHONY: model
model: ## every state of a small world, with the shipped decisions in it: minutes, up to 8 GiB (docs/model.md)
	go test ./test/model -count=1 -v -deep -timeout 60m -steps $(STEPS) -agreements 1000

.PHONY: conformance
conformance: etcd-binaries store-servers ## the same code against real etcd processes
	QUORATE_VERIFY=1 go test ./test/conformance/...

.PHONY: etcd-binaries
etcd-binaries: ## real etcd of every release, once
	@$(LAB) build etcd

.PHONY: store-servers
store-servers: ## servers that speak S3 and Google's storage, once
	@$(LAB) build s3 fake-gcs-server

.PHONY: lint
lint: bin/golangci-lint ## gofmt, vet, linters, and the direction of imports
	@for module in . test/lab test/manifests test/tools; do (cd $$module && $(CURDIR)/bin/golangci-lint run --config $(CURDIR)/.golangci.yml ./...) || failed=1; done; exit $${failed:-0}

.PHONY: generate-check
generate-check: bin/controller-gen bin/crd-ref-docs ## fail if `make generate` would change anything
	test/tools/generate.sh --check

.PHONY: fuzz
fuzz: ## every fuzz test for FUZZTIME (30s)
	QUORATE_VERIFY=1 test/tools/fuzz.sh $(FUZZTIME)

##@ A real Kubernetes on this machine (Linux, root)

.PHONY: demo
demo: ## from nothing to a three-member etcd, with the time it takes
	@test/demo/demo.sh

.PHONY: lab-build
lab-build: ## build Kubernetes and all the rest from source: some minutes, once
	$(LAB) build

.PHONY: lab-up
lab-up: ## start it; NODES=3 for more nodes
	$(LAB) up

.PHONY: lab-down
lab-down: ## end it, leaving nothing behind
	$(LAB) down

.PHONY: install
install: image lab-up ## Metacontroller and this Quorate, into the running lab; CERT_MANAGER=1 for cert-manager too, EXPANDABLE=1 for volumes that grow
	$(LAB) load $(CURDIR)/bin/quorate.tar
	@if [ -n "$(EXPANDABLE)" ]; then $(LAB) expandable; fi
	$(IN_LAB) test/tools/install.sh

.PHONY: e2e
e2e: install bin/steps ## the README's stories on it; RUN=Create chooses
	@$(IN_LAB) V=1 bin/steps "e2e: go test -json -count=1 -timeout 55m -parallel 3 -tags e2e -run '$(RUN)' ./test/e2e/..."

.PHONY: chaos
chaos: install bin/steps ## faults between Metacontroller, Quorate and etcd; FOR=30m for longer, SEED=7 to repeat a run
	@$(IN_LAB) V=1 bin/steps "chaos: go test -json -count=1 -timeout 6h -tags e2e -run '^TestChaos$$' ./test/e2e/ -chaos.for $(FOR) -chaos.seed $(SEED)"

.PHONY: bench
bench: install ## what a decision, a call and a cluster cost, as a table (docs/performance.md)
	@$(IN_LAB) test/bench/bench.sh

.PHONY: bench-snapshots
bench-snapshots: build etcd-binaries ## what a snapshot costs beside etcdctl's: 64 MiB and 1 GiB of data (docs/performance.md)
	@for mib in 64 1024; do go test ./test/bench -count=1 -timeout 30m -run TestSnapshots -v -snapshot.mib $$mib -snapshot.quorate $(CURDIR)/bin/quorate | grep '^|'; done

# Drains want three nodes, one story wants cert-manager, and claims that grow want a class whose volumes can.
e2e chaos: export NODES ?= 3
e2e: export CERT_MANAGER ?= 1
e2e: export EXPANDABLE ?= 1
e2e: s3

.PHONY: s3
s3: ## an S3 server for the stories of snapshots, once
	@$(LAB) build s3

# The tools have modules of their own, so that the product's go.mod holds nothing but the product's.
bin/controller-gen bin/crd-ref-docs bin/kustomize &: test/tools/go.mod test/tools/go.sum
	go build -C test/tools -o $(CURDIR)/bin/ sigs.k8s.io/controller-tools/cmd/controller-gen github.com/elastic/crd-ref-docs sigs.k8s.io/kustomize/kustomize/v5
	@touch bin/controller-gen bin/crd-ref-docs bin/kustomize

bin/steps: $(wildcard test/tools/steps/*.go) test/tools/go.mod
	@go build -C test/tools -o $(CURDIR)/bin/steps ./steps
	@touch bin/steps

bin/golangci-lint: test/tools/lint/go.mod test/tools/lint/go.sum
	@echo "building golangci-lint: two minutes, once" >&2
	@go build -C test/tools/lint -o $(CURDIR)/bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch bin/golangci-lint

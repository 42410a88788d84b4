# `make` lists the targets. Go is all that most of them need; lab-up and what builds on it want Linux and root.

SHELL := bash
export GOFLAGS := -buildvcs=false $(filter-out -buildvcs%,$(GOFLAGS))

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
# Without gRPC's way to Google's storage, which quorate-snapshot does not take (docs/decisions/0018-snapshots.md), and without gRPC's own
# pages of traces, which nothing serves and whose templates keep the linker from leaving code out (docs/decisions/0031-two-programs.md).
# And without gin's MessagePack, which takes half a minute to compile.
TAGS := disable_grpc_modules,grpcnotrace,nomsgpack

# Compilers live for a second and need not tidy up: that saves a quarter of their time. Few reach the limit.
NO_GC := GOGC=off GOMEMLIMIT=3GiB
LAB := bin/lab
# The running lab's KUBECONFIG, kubectl and network, for the commands behind it.
IN_LAB := eval "$$($(LAB) env)" &&

# The stories. How many there are at once depends on the load (test/real/e2e/room_test.go).
E2E = go test -json -count=1 -timeout 75m -parallel 1000 -shuffle $(SHUFFLE) -tags e2e -run '$(RUN)' ./test/real/e2e/ $(if $(WITHIN),-begin.within $(WITHIN))

# What the scripts of a release are told.
RELEASE = OF_IMAGE="$(OF_IMAGE)" VERSION='$(VERSION)' TAGS='$(TAGS)' LDFLAGS='$(LDFLAGS)'

RUN ?= .

TIMES ?= 1

# The order of the stories: a number, or off; and after how long none begins, as 40m. Continuous integration sets both.
SHUFFLE ?= off
WITHIN ?=

FUZZTIME ?= 30s
STEPS ?= 1000000
FOR ?= 5m
SEED ?= 0
CLUSTERS ?= 100

.DEFAULT_GOAL := help
.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^##@/{printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Try

# Compiled as Quorate is: what both use is compiled once.
TRY := CGO_ENABLED=0 $(NO_GC) go build -trimpath -tags '$(TAGS)' -ldflags '-s -w' -o bin/try ./test/real/try

.PHONY: try
try: ## Quorate in this terminal, on real etcds: Go alone, no root, no Kubernetes; ARGS=--once for the tour without the prompt
	@[ -x bin/try ] || echo "building, once (a minute or two)"
	@$(TRY) && bin/try $(ARGS)

##@ Build

.PHONY: build
build: ## bin/quorate and bin/quorate-snapshot, static
	CGO_ENABLED=0 $(NO_GC) go build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o bin/ . ./etcdops/quorate-snapshot

.PHONY: image
image: build bin/lab ## bin/quorate.tar, an OCI image, without Docker
	$(LAB) image -o $(CURDIR)/bin/quorate.tar -ref $(IMAGE) $(OF_IMAGE) $(CURDIR)/bin/quorate=/quorate $(CURDIR)/bin/quorate-snapshot=/quorate-snapshot

.PHONY: release
release: ## bin/release: binaries, plugin, image for amd64 and arm64, SBOMs, licences, checksums; the same bytes from the same commit
	@$(RELEASE) test/tools/release.sh $(CURDIR)/bin/release

.PHONY: reproducible
reproducible: ## build the release twice, from two folders, and compare every byte
	@$(RELEASE) test/tools/reproducible.sh

.PHONY: generate
generate: bin/controller-gen bin/crd-ref-docs bin/jsonnet ## CRDs, docs/reference/api.md, etcd's alerts, templates of the chart
	test/tools/generate.sh

.PHONY: site
site: ## bin/site, the documents as pages that need no server, with a search; fails at a link that leads nowhere
	@go run -C test/tools ./site $(CURDIR) $(CURDIR)/bin/site

.PHONY: clean
clean: ## remove bin/ (the lab's binaries stay: they are in the user's cache)
	rm -rf bin

##@ Test

# What is shorter with -short, and whole in `make check`.
LONG := Wander|TheModelIsTheWorld|NothingIsStuck|ThreeYears

# What links the clouds' SDKs takes minutes to compile, so `make check` has it.
CLOUDS := /etcdops/(archive|rescue|seed|snapshot|quorate-snapshot)

# What types at the prompt of `make try`, with etcds behind it: `make check` has that too.
TRIED := /test/real/try

.PHONY: test
test: bin/steps ## decisions, stories, a small model, the server, and a real etcd, with Go alone; V=1 shows all of it
	@bin/steps "tests: packages=\$$(go list ./... | grep -vE '$(CLOUDS)|$(TRIED)') && QUORATE_VERIFY=1 go test -short -tags nomsgpack -json \$$packages"

.PHONY: check
check: bin/steps ## the rest that needs no Kubernetes: lint, generated files, every release of etcd, stores, manifests, alerts
	@bin/steps \
	  "lint: make -s lint" \
	  "generated files: make -s generate-check" \
	  "what -short leaves out: QUORATE_VERIFY=1 go test -json ./hooks/schedule ./test/simulated/scenario ./test/simulated/model -run '$(LONG)'" \
	  "etcd binaries: make -s etcd-binaries" \
	  "servers of stores: make -s store-servers" \
	  "helm: make -s bin/helm" \
	  "promtool: make -s bin/promtool" \
	  "etcd and stores: packages=\$$(go list ./... | grep -E '$(CLOUDS)') && QUORATE_VERIFY=1 go test -tags releases -json ./test/real/conformance \$$packages" \
	  "manifests: go test -C test/static/manifests -json ./..." \
	  "monitoring: go test -C test/static/monitoring -json ./..." \
	  "alert rules: test/static/monitoring/promtool.sh check" \
	  "alert cases: test/static/monitoring/promtool.sh play" \
	  "try: go test -json ./test/real/try" \
	  "site: make -s site" \
	  "tools: go test -C test/tools -json ./..."

.PHONY: nightly
nightly: bin/steps ## what is long and rare; PART=2 one part of it, BRIEF=1 in some minutes (continuous integration turns)
	@test/tools/nightly.sh $(PART)

.PHONY: unit
unit: ## the decisions alone, in seconds
	QUORATE_VERIFY=1 go test ./hooks/...

.PHONY: scenario
scenario: ## the stories without etcd or Kubernetes
	QUORATE_VERIFY=1 go test ./test/simulated/scenario/...

.PHONY: model
model: ## every state of a small world, with the shipped decisions in it: minutes, up to 8 GiB (docs/evidence/model.md)
	go test ./test/simulated/model -count=1 -v -deep -timeout 60m -steps $(STEPS) -agreements 1000
	go test ./etcdops/seed -count=1 -run TestStreamModel -timeout 60m -schedules 20000

.PHONY: conformance
conformance: etcd-binaries store-servers ## the same code against real etcd of every release, and stores
	QUORATE_VERIFY=1 go test -tags releases ./test/real/conformance/...

.PHONY: etcd-binaries
etcd-binaries: bin/lab ## real etcd of every release, once
	@$(LAB) build etcd

.PHONY: store-servers
store-servers: bin/lab ## servers that speak S3 and Google's storage, once
	@$(LAB) build s3 fake-gcs-server

.PHONY: lint
lint: bin/golangci-lint ## gofmt, vet, linters, the direction of imports, and how documents are written
	@for module in . test/static/manifests test/static/monitoring test/tools; do (cd $$module && $(CURDIR)/bin/golangci-lint run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./...) || failed=1; done; exit $${failed:-0}
	@go test ./docs -run 'TestPhrases|TestLines|TestCells|TestContents|TestWords'

.PHONY: generate-check
generate-check: bin/controller-gen bin/crd-ref-docs bin/jsonnet ## fail if `make generate` would change anything
	test/tools/generate.sh --check

.PHONY: alerts
alerts: bin/promtool bin/steps ## the alert rules by Prometheus' own tool: when each fires, and when it must not; builds it, once
	@bin/steps "alert rules: test/static/monitoring/promtool.sh check" "alert cases: test/static/monitoring/promtool.sh play"

.PHONY: fuzz
fuzz: ## every fuzz test for FUZZTIME (30s)
	QUORATE_VERIFY=1 test/tools/fuzz.sh $(FUZZTIME)

##@ A real Kubernetes on this machine (Linux, root)

.PHONY: demo
demo: ## from nothing to a three-member etcd, with the time it takes
	@test/real/demo/demo.sh

.PHONY: demo-kind
demo-kind: ## the same on a cluster of kind's, for those who have Docker and kind
	@test/real/demo/demo.sh kind

.PHONY: lab-build
lab-build: bin/lab ## build Kubernetes and all the rest from source: some minutes, once
	$(LAB) build

.PHONY: lab-up
lab-up: bin/lab ## start it; NODES=3 for more nodes
	$(LAB) up

.PHONY: lab-down
lab-down: bin/lab ## end it, leaving nothing behind
	$(LAB) down

.PHONY: install
install: image lab-up ## Metacontroller and this Quorate, into the running lab; CERT_MANAGER=1 for cert-manager too, EXPANDABLE=1 for volumes that grow, ETCD_RELEASES=1 for every release of etcd
	$(LAB) load $(CURDIR)/bin/quorate.tar
	@if [ -n "$(ETCD_RELEASES)" ]; then $(LAB) etcd; fi
	@if [ -n "$(EXPANDABLE)" ]; then $(LAB) expandable; fi
	$(IN_LAB) test/tools/install.sh

# Stories on the lab, and how each is told again alone.
STORIES = V=1 STEPS_AGAIN="make story RUN=TEST" bin/steps

.PHONY: e2e
e2e: install bin/steps ## the README's stories on it; RUN=TestMembers chooses
	@$(IN_LAB) $(STORIES) "e2e: $(E2E)"

.PHONY: e2e-busy
e2e-busy: install bin/steps ## the same TIMES=1 times, while other work takes both cores and writes to the disk
	@$(IN_LAB) $(STORIES:bin/%=test/tools/busy.sh bin/%) $(foreach n,$(shell seq $(TIMES)),"e2e $(n): $(E2E)")

.PHONY: story
story: install bin/steps ## one story, as RUN=TestMembers/Pause; if it fails, what it made stays
	@[ '$(RUN)' != . ] || { echo 'make story RUN=TestMembers/Pause: say which' >&2; exit 2; }
	@$(IN_LAB) $(STORIES) "story: $(E2E) -keep -nightly" || { printf '%s\n' 'To look at it:' '  eval "$$(bin/lab env)"' \
	  '  kubectl get etcdcluster,pods -A' '  make story RUN=... # again' '  make lab-down      # ends it' >&2; exit 1; }

.PHONY: e2e-upgrade
e2e-upgrade: image lab-up bin/steps ## this Quorate takes over from the previous release under running clusters, and back; needs the lab for itself
	$(LAB) load $(CURDIR)/bin/quorate.tar
	$(LAB) metacontroller
	@$(IN_LAB) V=1 STEPS_AGAIN="make e2e-upgrade" bin/steps "upgrade: go test -json -count=1 -timeout 60m -tags e2e -run '^TestUpgradeOfQuorate$$' ./test/real/e2e/ -alone"

# A lab of its own, beside the other if that is up: the Quorate in that one looks after everything.
.PHONY: e2e-install
e2e-install: export QUORATE_LAB_NAME := quorate-install
e2e-install: export QUORATE_LAB_RUN := /tmp/quorate-lab-install
e2e-install: export QUORATE_LAB_API_PORT := 7443
e2e-install: export NODES := 1
e2e-install: image bin/helm bin/steps ## helm installs, upgrades and uninstalls, for one namespace, and two Quorates side by side: in a lab of its own
	@trap '$(LAB) down' EXIT; $(LAB) down && $(LAB) up && $(LAB) load $(CURDIR)/bin/quorate.tar && $(LAB) metacontroller && \
	  $(IN_LAB) V=1 STEPS_AGAIN="make e2e-install RUN=TEST" bin/steps "e2e-install: go test -json -count=1 -timeout 40m -tags e2e -run '$(RUN)' ./test/real/install/"

# A lab of its own: its API server has its data in the EtcdCluster afterwards.
.PHONY: e2e-selfhosted
e2e-selfhosted: export QUORATE_LAB_NAME := quorate-selfhosted
e2e-selfhosted: export QUORATE_LAB_RUN := /tmp/quorate-lab-selfhosted
e2e-selfhosted: export QUORATE_LAB_API_PORT := 8443
e2e-selfhosted: export QUORATE_LAB_ETCD := 3.5.35
e2e-selfhosted: export NODES := 5
e2e-selfhosted: image bin/steps ## a Kubernetes moves its own data into an EtcdCluster that it runs, and lives with that: in a lab of its own; BRIEF=1 some of it
	@trap '$(LAB) down' EXIT; $(LAB) down && $(LAB) build etcd && $(LAB) up && $(LAB) load $(CURDIR)/bin/quorate.tar && $(LAB) etcd && \
	  $(IN_LAB) test/tools/install.sh && \
	  V=1 STEPS_AGAIN="make e2e-selfhosted" bin/steps "selfhosted: go test -json -count=1 -timeout 40m -tags e2e -run '^TestSelfHosted$$' $(if $(BRIEF),-skip '^TestSelfHosted$$/$(shell test/tools/nightly.sh skipped)') ./test/real/e2e/ -alone"

# Labs of its own, one after the other: one without IPv4, and one where pods and Services can have both.
.PHONY: e2e-ipv6
e2e-ipv6: export QUORATE_LAB_NAME := quorate-ipv6
e2e-ipv6: export QUORATE_LAB_RUN := /tmp/quorate-lab-ipv6
e2e-ipv6: export QUORATE_LAB_API_PORT := 9443
e2e-ipv6: export NODES := 3
e2e-ipv6: image s3 bin/steps ## clusters live with IPv6 addresses alone, and with both families: in labs of its own
	@trap '$(LAB) down' EXIT; for both in 'v6 IPFamilies|OnTheHostsNetwork|JoinByTLSAndStay' 'dual IPFamilies'; do set -- $$both; export QUORATE_LAB_IP=$$1; $(LAB) down && $(LAB) up && $(LAB) load $(CURDIR)/bin/quorate.tar && \
	  $(IN_LAB) test/tools/install.sh && \
	  V=1 STEPS_AGAIN="make e2e-ipv6" bin/steps "$$1: go test -json -count=1 -timeout 30m -tags e2e -run '^Test($$2)\$$' ./test/real/e2e/" || exit; done

.PHONY: chaos
chaos: install bin/steps ## faults between Metacontroller, Quorate and etcd; FOR=30m for longer, SEED=7 to repeat a run
	@$(IN_LAB) V=1 STEPS_AGAIN="make chaos FOR=$(FOR) SEED=$(SEED)" bin/steps "chaos: go test -json -count=1 -timeout 6h -tags e2e -run '^TestChaos$$' ./test/real/e2e/ -chaos.for $(FOR) -chaos.seed $(SEED)"

.PHONY: bench
bench: install ## what a decision, a call and a cluster cost, as a table (docs/evidence/performance.md)
	@$(IN_LAB) test/real/bench/bench.sh

.PHONY: timings
timings: ## how long every target takes, cold and warm, as a table; hours. TARGETS="unit test" chooses
	@test/real/bench/timings.sh $(TARGETS)

.PHONY: bench-snapshots
bench-snapshots: build etcd-binaries ## what a snapshot costs beside etcdctl's: 64 MiB and 1 GiB of data (docs/evidence/performance.md)
	@for mib in 64 1024; do go test -tags releases ./test/real/bench -count=1 -timeout 30m -run TestSnapshots -v -snapshot.mib $$mib -snapshot.quorate $(CURDIR)/bin/quorate-snapshot | grep '^|'; done

.PHONY: bench-streams
bench-streams: build etcd-binaries ## what a stream of 1,000,000 changes costs, its restore, and mirrors beside etcdctl's (docs/evidence/performance.md)
	@go test -tags releases ./test/real/bench -count=1 -timeout 60m -run 'TestStreamAndRestore|TestMirrors' -v -stream.changes 1000000 -mirror.keys 200000 \
	  -snapshot.quorate $(CURDIR)/bin/quorate-snapshot -stream.etcdbrctl "$(ETCDBRCTL)" | grep '^|'

.PHONY: bench-operators
bench-operators: install bin/helm ## changes of members by other operators beside ours; COZYSTACK and ETCD_IO are checkouts of theirs (docs/evidence/comparison.md)
	@$(IN_LAB) COZYSTACK=$(COZYSTACK) ETCD_IO=$(ETCD_IO) test/real/bench/operators.sh

.PHONY: kamaji
kamaji: export CERT_MANAGER := 1
kamaji: RUN = ^TestKamaji$$
kamaji: install bin/helm bin/steps ## control planes of Kamaji's live in an EtcdCluster; KAMAJI is a checkout of its sources (docs/how-to/control-planes.md)
	@$(IN_LAB) KAMAJI=$(KAMAJI) test/real/planes/kamaji.sh && $(STORIES) "kamaji: $(E2E) -keep -nightly"

.PHONY: karmada
karmada: export CERT_MANAGER := 1
karmada: RUN = ^TestKarmada$$
karmada: install bin/steps ## Karmada's control plane lives in an EtcdCluster; KARMADA is a checkout of its sources (docs/how-to/control-planes.md)
	@$(IN_LAB) KARMADA=$(KARMADA) test/real/planes/karmada.sh && $(STORIES) "karmada: $(E2E) -keep -nightly"

.PHONY: bench-scale
bench-scale: build ## how many clusters one core of Quorate serves, with Metacontroller and etcd stubbed (docs/evidence/scale.md); root, 20 minutes, two cores
	@test/real/bench/scale.sh

.PHONY: bench-fleet
bench-fleet: install bin/steps ## CLUSTERS=100 real clusters of one member in the lab: time, memory, writes at rest (docs/evidence/scale.md)
	@$(IN_LAB) V=1 STEPS_AGAIN="make bench-fleet CLUSTERS=$(CLUSTERS)" \
	  bin/steps "fleet: QUORATE_FLEET=$(CLUSTERS) go test -json -count=1 -timeout 40m -tags e2e -run '^TestFleet$$' ./test/real/e2e/"

.PHONY: recording
recording: install ## play create, kill, upgrade and restore in the lab, and write docs/evidence/recording.txt
	@$(IN_LAB) test/real/demo/record.sh

.PHONY: dashboard
dashboard: install bin/prometheus ## draw docs/dashboard.png again, from a real Prometheus in the lab: six minutes and a build, with npm and chromium
	@$(IN_LAB) test/real/dashboard/dashboard.sh

# Upgrades want more than one release of etcd. Drains want three nodes, one story wants cert-manager, and claims that grow want a class whose volumes can.
e2e e2e-busy story e2e-upgrade chaos kamaji karmada bench-fleet dashboard: export NODES ?= 3
e2e e2e-busy story chaos kamaji karmada recording dashboard bench bench-operators: export ETCD_RELEASES ?= 1
e2e e2e-busy story: export CERT_MANAGER ?= 1
e2e e2e-busy story: export EXPANDABLE ?= 1
e2e e2e-busy story e2e-upgrade: s3

.PHONY: s3
s3: bin/lab ## an S3 server for the stories of snapshots, once
	@$(LAB) build s3

# The tools have modules of their own: each is built with the versions that its makers tested.
bin/controller-gen bin/crd-ref-docs bin/jsonnet bin/kustomize &: test/tools/go.mod test/tools/go.sum
	go build -C test/tools -o $(CURDIR)/bin/ sigs.k8s.io/controller-tools/cmd/controller-gen github.com/elastic/crd-ref-docs github.com/google/go-jsonnet/cmd/jsonnet sigs.k8s.io/kustomize/kustomize/v5
	@touch bin/controller-gen bin/crd-ref-docs bin/jsonnet bin/kustomize

# The lab's program, compiled as Quorate is: what both use is compiled once.
bin/lab: $(wildcard test/real/lab/*.go test/real/lab/conf/*) go.mod go.sum
	@CGO_ENABLED=0 $(NO_GC) go build -trimpath -ldflags '-s -w -X main.source=$(CURDIR)/test/real/lab' -o bin/lab ./test/real/lab
	@touch bin/lab

bin/steps: $(wildcard test/tools/steps/*.go) test/tools/go.mod
	@go build -C test/tools -o $(CURDIR)/bin/steps ./steps
	@touch bin/steps

# Both without the clouds' ways to find targets, and their SDKs.
bin/promtool: test/static/monitoring/go.mod test/static/monitoring/go.sum
	@echo "building promtool: two minutes, once" >&2
	@go build -C test/static/monitoring -tags remove_all_sd -o $(CURDIR)/bin/promtool github.com/prometheus/prometheus/cmd/promtool
	@touch bin/promtool

bin/prometheus: test/static/monitoring/go.mod test/static/monitoring/go.sum
	go build -C test/static/monitoring -tags remove_all_sd,enable_kubernetes_sd -o $(CURDIR)/bin/prometheus github.com/prometheus/prometheus/cmd/prometheus
	@touch bin/prometheus

bin/helm: test/static/manifests/go.mod test/static/manifests/go.sum
	@echo "building helm: a minute or two, once" >&2
	@go build -C test/static/manifests -o $(CURDIR)/bin/helm helm.sh/helm/v3/cmd/helm
	@touch bin/helm

bin/golangci-lint: test/tools/lint/go.mod test/tools/lint/go.sum
	@echo "building golangci-lint: two minutes, once" >&2
	@go build -C test/tools/lint -o $(CURDIR)/bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch bin/golangci-lint
